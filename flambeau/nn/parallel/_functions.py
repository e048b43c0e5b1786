"""torch.nn.parallel._functions: the differentiable copies between devices, on one device."""

from __future__ import annotations

from typing import Any


class Broadcast:
    """`apply(target_gpus, *inputs)`: the inputs, as the copies on each device."""

    @staticmethod
    def apply(target_gpus: Any, *inputs: Any) -> tuple[Any, ...]:
        """The inputs, once for each device."""
        from flambeau.nn.parallel.scatter_gather import on_cpu

        return inputs * on_cpu(target_gpus)


class ReduceAddCoalesced:
    """`apply(destination, num_inputs, *grads)`: sums of every num_inputs-th tensor."""

    @staticmethod
    def apply(destination: Any, num_inputs: int, *grads: Any) -> tuple[Any, ...]:
        """One sum for each of the inputs."""
        rows = [grads[i : i + num_inputs] for i in range(0, len(grads), num_inputs)]
        return tuple(sum(column[1:], column[0]) for column in zip(*rows, strict=True))


class Gather:
    """`apply(target_device, dim, *inputs)`: the inputs as one."""

    @staticmethod
    def apply(target_device: Any, dim: int, *inputs: Any) -> Any:
        """The inputs concatenated."""
        from flambeau.nn.parallel.scatter_gather import gather

        return gather(list(inputs), target_device, dim)


class Scatter:
    """`apply(target_gpus, chunk_sizes, dim, input)`: the input in chunks."""

    @staticmethod
    def apply(target_gpus: Any, chunk_sizes: Any, dim: int, input: Any) -> tuple[Any, ...]:
        """A chunk for each device."""
        from flambeau.nn.parallel.scatter_gather import scatter

        return tuple(scatter(input, target_gpus, dim))
