"""A plan: a compiled graph, ready to run over buffers, as often as wanted, from any thread.

Addresses are not known when a plan is made. A run packs them into one block of words, the *io block*:

    arena (if it comes from the pool) | input buffers | fresh output buffers | parameters

and the native runner makes every kernel's argument words from it (`runtime/runner.py`). A host call splits the plan into
native segments with a Python call between them. A small arena stays with the plan, and its addresses are in the words.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, ErrorRecord, Function, IndexRangeError, Kernel, Scratch, Table, refused_index
from flambeau.compiler.kernels.host_step import HostCall
from flambeau.compiler.place import ALIGNMENT, Placement
from flambeau.compiler.schedule import Schedule, Step
from flambeau.python_code import compiled
from flambeau.symbols import Sym, at_hints, at_most, maximum

if TYPE_CHECKING:
    from flambeau.compiler.sized import Row, Sized
    from flambeau.compiler.tables import Memory
    from flambeau.runtime.buffers import Buffer
    from flambeau.runtime.costs import Costs
    from flambeau.runtime.runner import Program, Relocation, Task

# An arena up to this size stays with its plan between runs; a larger one goes back to the pool.
KEPT_ARENA_BYTES: Final = 1 << 16  # a process may have thousands of plans; taking one from the pool costs 0.3 us
# A run of so little traffic (bytes) and arithmetic takes about as long as giving the GIL away and getting it back
# (some microseconds on one core's first-level cache): it keeps it.
SMALL_BYTES: Final = 1 << 16
SMALL_OPERATIONS: Final = 1 << 18

Number = int | float | bool
Run = Callable[[Sequence["Buffer"], Sequence[Number]], "list[Buffer]"]

_PACK: Final = {"int64": "q", "float64": "d", "bool": "q"}  # of a parameter's word, by dtype


class Plan:
    """What `compile_graph` returns. `run(inputs, parameters)` gives one Buffer for each of the graph's outputs.

    `steps` and `phases` are in order; `kernels` are the native ones. `statistics`: bytes of memory traffic, operations,
    tasks, phases, unshared_bytes (the arena's size if no two values shared memory). `run` raises IndexError if a kernel
    meets an index out of range, RuntimeError if a host call fails; external buffers are updated after what can fail.
    """

    def __init__(
        self, graph: Graph, order: Schedule, placement: Placement, final: Callable[[], Graph] | None = None, over_symbols: bool = False
    ) -> None:  # fmt: skip
        """`graph` after all passes; or, with `final`, which gives that one, any with the same inputs, parameters and outputs.

        `over_symbols`: its sizes are symbols (symbols.py): it has no `run`; trace/class_plans.py makes one for given sizes. Of a plan for
        another machine than this one `run` raises a RuntimeError; compiler/objects.py has its code.
        """
        self.interface = graph
        self._final = final
        self.schedule = order
        self.placement = placement
        self.steps: list[Step] = []
        self.phases: list[int] = []
        self.places: list[int] = []  # of each step, its position in the schedule
        for position, (step, phase) in enumerate(zip(order.steps, order.phases, strict=True)):
            if isinstance(step, HostCall) or step.units > 0:
                self.steps.append(step)
                self.phases.append(phase)
                self.places.append(position)
        self.arena_bytes = placement.arena_bytes
        self.kernels: list[Kernel] = [step for step in self.steps if isinstance(step, Kernel)]
        self.kernel_count = len({(p, s.key) for s, p in zip(self.steps, self.phases, strict=True)})
        self.statistics: dict[str, int] = {
            "bytes": sum([s.bytes for s in self.steps]), "operations": sum([s.operations for s in self.steps]),
            "tasks": len(self.steps), "phases": len(set(self.phases)), "unshared_bytes": placement.unshared_bytes,
        }  # fmt: skip
        self.direct: dict[str, Any] | None = None  # what makes its only result, if it is one small program (trace/immediate.py)
        self.run: Run
        if not graph.target.is_host:
            self.run = partial(_elsewhere, graph.target.name)
        elif not over_symbols:
            self.run, self.direct = Assembly(self).make_run()

    @property
    def graph(self) -> Graph:
        """The graph after all passes, as the steps' value ids and nodes mean it."""
        if self._final is not None:
            self.interface, self._final = self._final(), None
        return self.interface

    def finish(self, interrupt: BaseException, inputs: Sequence[Buffer], parameters: Sequence[Number]) -> list[Buffer] | None:
        """What `run` would have returned, had the interrupt not been raised in the middle of it; None if that cannot be had.

        Native code always runs to its end, and most interrupts that come meanwhile are raised right after it: then the results are there.
        """
        return self.finish_run(self.run, interrupt, inputs, parameters)

    def finish_run(self, run: Run, interrupt: BaseException, inputs: Sequence[Buffer], parameters: Sequence[Number]) -> list[Buffer] | None:
        """`finish` of a `run` that was made from this plan."""
        inside = _locals_of(run, interrupt)
        returned = self.schedule.returned
        if inside is None or not self.interface.updates or not (inside.get("ran") or self.calls_host()):
            return run(inputs, parameters)
        if self.calls_host() or inside["ran"][0]:
            return None  # which of its parts have run is not known, or one of them has failed
        return [inputs[returned[j]] if j in returned else inside[f"o{j}"] for j in range(len(self.interface.outputs))]

    def outputs_of_failed(self, run: Run, error: Exception) -> dict[int, Buffer]:
        """The outputs (by root) that a `run` made from this plan had computed when it failed."""
        failed = getattr(error, "step", None)
        inside = _locals_of(run, error)
        if failed is None or inside is None:
            return {}
        last: dict[Any, int] = {}  # by home: the phase of its last step
        for step, phase in zip(self.steps, self.phases, strict=True):
            for root in step.writes:
                home = self.placement.places[root]
                last[home] = max(last.get(home, 0), phase)
        now, returned = self.phases[failed], self.schedule.returned
        outputs = enumerate(self.interface.outputs)
        return {root: inside[f"o{j}"] for j, root in outputs if j not in returned and ("output", j) in last and last["output", j] < now}

    def calls_host(self) -> bool:
        """Whether some of its steps are host calls."""
        return len(self.kernels) != len(self.steps)

    def __repr__(self) -> str:
        return f"<Plan of {self.kernel_count} kernels, {len(self.steps)} tasks, arena {self.arena_bytes} bytes>"


def _elsewhere(name: str, inputs: Sequence[Buffer], parameters: Sequence[Number]) -> list[Buffer]:
    raise RuntimeError(f"run(): this plan is compiled for {name}, another machine than this one; objects(plan) gives its code")


def _locals_of(run: Run, error: BaseException) -> dict[str, Any] | None:
    """The variables of a `run` that an exception has come through; None if it has not."""
    at, inside = error.__traceback__, None
    while at is not None:
        if at.tb_frame.f_code is run.__code__:  # type: ignore[attr-defined]
            inside = at.tb_frame.f_locals
        at = at.tb_next
    return inside


def time_steps(plan: Plan, inputs: Sequence[Buffer], parameters: Sequence[Number], repeat: int = 5) -> list[float]:
    """Seconds of each native step of a plan (0 for host calls), run alone, best of `repeat`; for `explain`.

    Writes into the inputs that the plan updates, as `run` does, but once for every repetition.
    """
    from flambeau.runtime import twice
    from flambeau.runtime.buffers import allocate, arena

    twice.settle()
    assembly = Assembly(plan)
    temporary = [arena(plan.arena_bytes)] if assembly.pooled else []
    fresh = [allocate(plan.graph.values[plan.graph.outputs[j]].nbytes) for j in assembly.fresh]
    values = (*[b.address for b in (*temporary, *inputs, *fresh)], *parameters)
    for part in assembly.parts:  # once in order, so that every step meets sensible numbers
        if not isinstance(part, HostCall):
            assembly.program(part).run(values)
    seconds = []
    for index, step in enumerate(plan.steps):
        best = 0.0
        if isinstance(step, Kernel):
            execute = assembly.program([index]).run
            for attempt in range(repeat):
                start = perf_counter()
                execute(values)
                best = min(best, perf_counter() - start) if attempt else perf_counter() - start
        seconds.append(best)
    return seconds


class Layout(NamedTuple):
    """A native program before its tables are made: what runner.Program takes, and (word, io slot whose own address it is)."""

    words: Sequence[int]
    plain: Sequence[int]  # relocations, see runner.Relocations
    dynamic: Sequence[int]
    phases: list[list[Task]]
    from_io: list[tuple[int, int]]
    small: int  # 1: it is, see runner.Program
    functions: list[int]  # the words that are addresses of code


class Hosted(NamedTuple):
    """What of a host call depends on sizes: of its operands, inputs first, (io slot, byte offset, bytes of the root, shape, strides, offset)."""

    operands: tuple[tuple[Any, ...], ...]
    kwargs: tuple[tuple[str, Any], ...]


class Numbers(NamedTuple):
    """All of a plan that depends on sizes: a layout for each native part, operands of each host call, bytes of each fresh output, bytes of the arena."""

    layouts: list[Layout | Hosted]
    fresh: list[int]
    arena_bytes: int


def _from_io(program: Program, layout: Layout) -> None:
    """Put the addresses of io words into the words that need them."""
    io = ctypes.addressof(program.io)
    for at, slot in layout.from_io:
        program.words[at] = io + 8 * slot


class Assembly:
    """Numbers the words of a plan and makes its `run`."""

    def __init__(self, plan: Plan, over_symbols: bool = False) -> None:
        self.plan = plan
        graph = plan.interface
        homes = plan.placement.places
        self.parts = _split(plan)
        self.fresh = [j for j in range(len(graph.outputs)) if j not in plan.schedule.returned]
        hosted = any(isinstance(part, HostCall) for part in self.parts)
        moves = over_symbols and (plan.arena_bytes.__class__ is Sym or plan.arena_bytes > 0)  # plans for several sizes must not share one
        self.pooled = moves or (plan.arena_bytes > 0 and (hosted or plan.arena_bytes > KEPT_ARENA_BYTES))
        first = int(self.pooled)
        self.input_slot = first
        first += len(graph.inputs)
        self.output_slot = {j: first + i for i, j in enumerate(self.fresh)}
        first += len(self.fresh)
        self.parameter_slot = {root: first + i for i, root in enumerate(graph.parameters)}
        self.io_words = first + len(graph.parameters)
        self.format = "Q" * first + "".join([_PACK[graph.values[i].dtype.name] for i in graph.parameters])
        self.homes = homes
        self.kept: Any = None  # the memory of a kept arena
        self.arena = 0  # its address
        if plan.arena_bytes and not self.pooled:
            self.kept = ctypes.create_string_buffer(plan.arena_bytes + ALIGNMENT)
            self.arena = -(-ctypes.addressof(self.kept) // ALIGNMENT) * ALIGNMENT
        self.record = (ctypes.c_int64 * 3)()
        self.tables = _tables(plan)
        self.makers: dict[tuple[bool, ...], Callable[..., Run]] = {}

    def slot(self, root: int) -> tuple[int, int]:
        """(io slot, byte offset) of a root's buffer; slot -1: the offset is the address itself."""
        kind, at = self.homes[root]
        inside = self.plan.schedule.inside.get(root, 0)
        if kind == "arena":
            return (0, at + inside) if self.pooled else (-1, self.arena + at + inside)
        return (self.input_slot + at if kind == "input" else self.output_slot[at]), inside

    def program(self, indices: list[int]) -> Program:
        """The native program of some steps."""
        return self._program(self.layout(indices))

    def _program(self, layout: Layout) -> Program:
        from flambeau.runtime.runner import Program, Relocations

        relocations = Relocations(layout.plain, layout.dynamic)
        program = Program(layout.words, relocations, layout.phases, self.io_words, self.format, bool(layout.small), layout.functions)
        _from_io(program, layout)
        return program

    def layout(self, indices: list[int]) -> Layout:
        """What the native program of some steps is made from."""
        from flambeau.runtime import jit, twice
        from flambeau.runtime.runner import Relocation, Task, flat

        plan, costs = self.plan, self.plan.interface.target.costs
        kernels: list[Kernel] = [k for k in [plan.steps[i] for i in indices] if isinstance(k, Kernel)]
        shared = [word for k in kernels for word in k.words if isinstance(word, Function)]
        heavy = {key for k in kernels if at_hints(_nanoseconds(k, costs)) > twice.LONGEST_NANOSECONDS for key in _keys(k)}
        light = frozenset([key for k in kernels for key in _keys(k)]) - heavy
        used: list[Kernel | Function] = [*kernels, *shared]
        wanted = [(x.key, partial(x.emit, plan.interface.target)) for x in used]
        addresses = jit.functions(wanted, light=light)
        shared_addresses = {f.key: address for f, address in zip(shared, addresses[len(kernels) :], strict=True)}
        words: list[int] = []
        relocations: list[Relocation] = []
        from_io: list[tuple[int, int]] = []  # (word, io slot whose own address it is)
        functions: list[int] = []
        phases: list[list[Task]] = []
        last = -1
        parameter_slot = self.parameter_slot
        for index, kernel, address in zip(indices, kernels, addresses[: len(kernels)], strict=True):
            first = len(words)
            for at, word in enumerate(kernel.words):
                if isinstance(word, int):
                    words.append(word)
                    continue
                constant = 0
                if isinstance(word, Address):
                    if word.value in parameter_slot:
                        from_io.append((len(words), parameter_slot[word.value]))
                    else:
                        slot, offset = self.slot(word.value)
                        constant = offset + word.offset
                        if slot >= 0 or word.dynamic:
                            dynamic = tuple([(parameter_slot[p], m) for p, m in word.dynamic])
                            if slot < 0:  # io[slot 0] cannot be the base: let the first parameter be, and take it off again
                                slot, dynamic = dynamic[0][0], (*dynamic, (dynamic[0][0], -1))
                            relocations.append(Relocation(len(words), slot, constant, dynamic))
                elif isinstance(word, Scratch):
                    offset = plan.placement.scratch[plan.places[index], at]
                    if self.pooled:
                        relocations.append(Relocation(len(words), 0, offset))
                    constant = self.arena + offset
                elif isinstance(word, ErrorRecord):
                    constant = ctypes.addressof(self.record)
                elif isinstance(word, Table):
                    constant = self.tables[word].address
                elif isinstance(word, Function):
                    constant = shared_addresses[word.key]
                    functions.append(len(words))
                words.append(constant)
            if plan.phases[index] != last:
                last = plan.phases[index]
                phases.append([])
            phases[-1].append(Task(address, first, kernel.units, kernel.grain, kernel.min_units_per_thread, _nanoseconds(kernel, costs)))
        traffic, operations = sum([k.bytes for k in kernels]), sum([k.operations for k in kernels])
        small = at_most(traffic, SMALL_BYTES) * at_most(operations, SMALL_OPERATIONS)
        return Layout(words, *flat(relocations), phases, from_io, small, functions)

    def numbers(self) -> Numbers:
        """What of the plan depends on sizes."""
        graph, plan = self.plan.interface, self.plan
        return Numbers(
            [self.hosted(part) if isinstance(part, HostCall) else self.layout(part) for part in self.parts],
            [graph.values[graph.outputs[j]].nbytes for j in self.fresh], plan.arena_bytes,
        )  # fmt: skip

    def make_run(self, numbers: Numbers | None = None) -> tuple[Run, dict[str, Any] | None]:
        """What runs the plan at given numbers (allocate, pack, call, return), and what makes its only result (`Plan.direct`)."""
        from flambeau.runtime import buffers

        layouts, fresh, arena_bytes = numbers or self.numbers()
        programs = [None if isinstance(layout, Hosted) else self._program(layout) for layout in layouts]
        hosts = [self.host_part(part, x) if isinstance(part, HostCall) and isinstance(x, Hosted) else None for part, x in zip(self.parts, layouts, strict=True)]
        keep_gil = tuple([program is not None and program.keeps_gil for program in programs])
        make = self.makers.get(keep_gil)
        if make is None:
            make = self.makers[keep_gil] = self._maker(keep_gil)
        allocate = [buffers.allocator(nbytes) for nbytes in fresh]
        arena = buffers.allocator(arena_bytes, temporary=True) if self.pooled else None
        direct: dict[str, Any] | None = None
        if keep_gil == (True,) and len(self.plan.interface.outputs) == len(fresh) == 1 and not self.pooled:
            (program,) = programs
            direct = {"call": program.call, "allocate": allocate[0], "program": program}  # type: ignore[union-attr]
        return make(allocate, arena, programs, hosts), direct

    def sized(self, numbers: Numbers) -> Sized | None:
        """The program for all sizes of a plan over symbols, if it can have one."""
        from flambeau.compiler.sized import sized

        return sized(numbers.layouts, numbers, self.io_words)

    def sized_program(self, sized: Sized) -> Callable[[int], Program]:
        """Gives the one program of all sizes at which it is small (1), and that of all others (0)."""
        programs: dict[int, Program] = {}

        def program(small: int) -> Program:
            found = programs.get(small)
            if found is None:
                found = programs[small] = sized.program(self.format, bool(small))
                _from_io(found, sized.layout)
            return found

        return program

    def make_sized(self, program: Callable[[int], Program]) -> Callable[[Row], Run]:
        """Makes `run` for the row of some sizes, all with one program."""
        from flambeau.runtime import buffers

        pooled, allocator = self.pooled, buffers.allocator
        makers: dict[int, tuple[Callable[..., Run], list[Program]]] = {}  # by whether it is small

        def maker(small: int) -> tuple[Callable[..., Run], list[Program]]:
            found = program(small)
            return self._maker((found.keeps_gil,), sized=True), [found]

        def run_at(row: Row) -> Run:
            fresh, arena_bytes, words, small = row
            found = makers.get(small)
            if found is None:
                found = makers[small] = maker(small)
            make, programs = found
            return make([allocator(nbytes) for nbytes in fresh], allocator(arena_bytes, temporary=True) if pooled else None, programs, (), words)

        return run_at

    def _maker(self, keep_gil: Sequence[bool], sized: bool = False) -> Callable[..., Run]:
        """Makes `run` for some sizes: of what allocates results and the arena, and of the programs. `keep_gil`: which of these do so; `sized`: `make` is also
        given the words that depend on sizes."""
        from flambeau.runtime import buffers

        plan, graph = self.plan, self.plan.interface
        # What depends on sizes is given to `make`, so plans that differ in sizes only share the compiled text.
        scope: dict[str, Any] = {"kept": self.kept, "tables": self.tables}  # live as long as `run`
        before = [f"allocate{j} = allocators[{i}]" for i, j in enumerate(self.fresh)]
        lines = []
        count = len(graph.inputs)
        if 0 < count <= 8:
            lines.append(f"{''.join([f'i{i}, ' for i in range(count)])} = inputs")
            given = "".join([f"i{i}.address, " for i in range(count)])
        else:
            scope["addresses"] = buffers.addresses
            given = "*addresses(inputs), " if count else ""
        lines += [f"o{j} = allocate{j}()" for j in self.fresh]
        if self.pooled:
            lines.append("arena = allocate()")
        head = "arena.address, " if self.pooled else ""
        made = "".join([f"o{j}.address, " for j in self.fresh])
        tail = "*parameters, " if graph.parameters else ""  # the comma: they may be all there is
        tail += "*words, " * sized
        values = f"({head}{given}{made}{tail})"
        lines.append("ran = []")  # for `finish`
        if len(self.parts) != 1 or isinstance(self.parts[0], HostCall):
            lines.append(f"io = {values}")
            values = "io"
        for number, part in enumerate(self.parts):
            if isinstance(part, HostCall):
                before.append(f"host{number} = hosts[{number}]")
                lines.append(f"host{number}(io, inputs)")
                continue
            scope[f"fail{number}"] = self.fail_part(part)
            if keep_gil[number] and not graph.updates:  # it may run twice
                before.append(f"call{number} = programs[{number}].call")
                lines.append(f"code = call{number}({'*io' if values == 'io' else values[1:-1]})")
            else:
                before.append(f"execute{number} = programs[{number}].run")
                lines.append(f"code = execute{number}({values}, ran)")
            lines.append(f"if code: fail{number}(code)")
        results = [f"inputs[{plan.schedule.returned[j]}]" if j in plan.schedule.returned else f"o{j}"
                   for j in range(len(graph.outputs))]  # fmt: skip
        # `held`: the tables of the programs live as long as `run`.
        text = "\n".join((
            f"def make(allocators, allocate, programs, hosts{', words' * sized}):", *[f"    {line}" for line in before],
            "    def run(inputs, parameters, held=programs):", *[f"        {line}" for line in lines],
            f"        return [{', '.join(results)}]", "    return run",
        ))  # fmt: skip
        exec(compiled(text, "<flambeau plan>"), scope)
        return scope.pop("make")  # type: ignore[no-any-return]

    def fail_part(self, indices: list[int]) -> Callable[[int], NoReturn]:
        """Raise the IndexError of the failed task (numbered from 1) of a native part."""
        steps, record = self.plan.steps, self.record

        def fail(code: int) -> NoReturn:
            step = steps[indices[code - 1]]
            assert isinstance(step, Kernel)
            text = step.fails or f"{step.name}: index {{value}} is out of bounds for dimension with size {{bound}}"
            value, bound = refused_index(record[1]), record[2]
            error = IndexRangeError(text.format(value=value, bound=bound))
            error.value, error.bound, error.step = value, bound, indices[code - 1]
            raise error

        return fail

    def hosted(self, step: HostCall) -> Hosted:
        """What of a host call depends on sizes."""
        graph = self.plan.graph
        operands = []
        for i in (*step.inputs, *step.outputs):
            value, root = graph.values[i], graph.root(i)
            slot, at = (self.parameter_slot[root], 0) if root in self.parameter_slot else self.slot(root)
            operands.append((slot, at, graph.values[root].nbytes, tuple(value.shape), value.strides, value.offset))
        return Hosted(tuple(operands), tuple(step.kwargs.items()))

    def host_part(self, step: HostCall, hosted: Hosted | None = None) -> Callable[[Sequence[Any], Sequence[Buffer]], None]:
        """Run a host call over the memory that the io words name."""
        from flambeau.compiler.kernels import host
        from flambeau.runtime.memory import view_as_numpy

        graph = self.plan.graph
        parameter_slot = self.parameter_slot
        operands, kwargs = hosted or self.hosted(step)
        values = [
            replace(graph.values[i], shape=shape, strides=strides, offset=offset)
            for i, (*_, shape, strides, offset) in zip((*step.inputs, *step.outputs), operands, strict=True)
        ]
        count = len(step.inputs)
        called = replace(step, kwargs=dict(kwargs))
        parameters = [graph.root(i) in parameter_slot for i in (*step.inputs, *step.outputs)]

        def array(position: int, io: Sequence[Any], owner: Any) -> host.Array:
            value = values[position]
            slot, at, nbytes, *_ = operands[position]
            if parameters[position]:
                return host.number(io[slot], value)
            memory = view_as_numpy(io[slot] + at if slot >= 0 else at, nbytes, owner)
            moved = sum([io[parameter_slot[p]] * m for p, m in value.dynamic])
            return host.numpy_view(memory, value, value.offset + moved)

        def run(io: Sequence[Any], owner: Any) -> None:
            try:
                arrays = [array(position, io, owner) for position in range(len(values))]
                host.call(called, arrays[:count], arrays[count:])
            except Exception as error:
                error.step = self.plan.steps.index(step)  # type: ignore[attr-defined]  # for trace/salvage.py
                raise

        return run


def _nanoseconds(kernel: Kernel, costs: Costs) -> Any:
    """What one core needs for a kernel at least: weighs the kernels of a phase against each other, and says whose code may be plain at first."""
    return maximum(kernel.bytes / costs.bytes_per_nanosecond, kernel.operations / costs.operations_per_nanosecond)


def _tables(plan: Plan) -> dict[Table, Memory]:
    """The tables that its kernels read. They live as long as who holds this."""
    wanted = [word for kernel in plan.kernels for word in kernel.words if type(word) is Table]
    if not wanted:
        return {}
    from flambeau.compiler.tables import memory

    return {table: memory(table) for table in wanted}


def _keys(kernel: Kernel) -> list[str]:
    """The keys of its function and of those that it calls."""
    return [kernel.key, *[word.key for word in kernel.words if type(word) is Function]]


def _split(plan: Plan) -> list[list[int] | HostCall]:
    """Runs of native steps (as indices), and the host calls between them."""
    parts: list[list[int] | HostCall] = []
    for index, step in enumerate(plan.steps):
        if isinstance(step, HostCall):
            parts.append(step)
        elif parts and isinstance(parts[-1], list):
            parts[-1].append(index)
        else:
            parts.append([index])
    return parts
