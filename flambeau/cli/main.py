"""`flambeau`: reads the command and its arguments, and hands over to the command's module."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import flambeau


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="flambeau", description="A deep-learning framework with PyTorch's API, compiled by itself.")
    parser.add_argument("--version", action="version", version=f"flambeau {flambeau.__version__}", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="train a small network on handwritten digits and draw the curves")
    demo.add_argument("--data", metavar="DIR", help="train PyTorch's MNIST example network on the IDX files (plain or .gz) in DIR")
    demo.add_argument("--epochs", type=int, help="passes over the training images (20 on the shipped digits, 3 with --data)")
    demo.add_argument("--out", metavar="DIR", default="flambeau-demo", help="where the checkpoint and the picture go")
    demo.add_argument("--seed", type=int, default=1, help="of the random numbers")
    demo.add_argument("--web", action="store_true", help="write two pages that compute in the browser instead: digits that are drawn, a GPT that writes")
    demo.add_argument("--gpt", action="store_true", help="train a small GPT that writes letter by letter instead, and save its checkpoint")
    demo.add_argument("--steps", type=int, help="with --gpt and --web: of the GPT's training (1500)")
    run = commands.add_parser("run", help="run a PyTorch script: `import torch` gives flambeau")
    run.add_argument("-m", dest="module", metavar="MODULE", help="run a module instead of a file")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="SCRIPT [ARGS]", help="the Python file, and its own arguments")
    launch = commands.add_parser("launch", add_help=False, help="run a PyTorch script in several processes; the arguments are torchrun's")
    launch.add_argument("arguments", nargs=argparse.REMAINDER)
    bench = commands.add_parser("bench", help="measure; beside PyTorch where it is installed")
    bench.add_argument("cases", nargs="*", help="names of cases, or parts of them; all by default")
    bench.add_argument("--torch", action="store_true", help="insist on PyTorch")
    bench.add_argument("--rounds", type=int, default=5, help="how often the two programs alternate; the best counts")
    bench.add_argument("--sweep", action="store_true", help="also sizes that nobody listed")
    bench.add_argument("--fresh", action="store_true", help="programs in which every step brings something new, with empty and warm caches")
    bench.add_argument("--steps", type=int, default=60, help="of each program of --fresh")
    bench.add_argument("--memory", action="store_true", help="also print the peaks of memory")
    bench.add_argument("--markdown", action="store_true", help="print the table for a page")
    explain = commands.add_parser("explain", help="run a script and print its traces, graphs and kernels")
    explain.add_argument("--html", metavar="FILE", help="time every kernel and write a page with graphs and rooflines instead")
    explain.add_argument("script")
    explain.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments (after -- if one is --html)")
    export = commands.add_parser("export", help="write a checkpoint as a .pt2, an ONNX model, a page, or with weights of 8 or 4 bits")
    export.add_argument("checkpoint", metavar="CHECKPOINT", help="what torch.save has written of a state_dict; or a program (.pt2)")
    export.add_argument("--to", required=True, choices=("pt2", "onnx", "page", "int8", "int4"), help="int8, int4: a .pt2 whose dense layers have such weights")
    export.add_argument("-o", "--out", metavar="FILE", help="where it goes (the network's name, in this folder)")
    export.add_argument("--group", type=int, help="of int8 and int4: weights that share a scale (a row, and 32)")
    _network_options(export)
    build = commands.add_parser("build", help="make a library of a model, called from C, Rust or Python without flambeau")
    build.add_argument("model", metavar="MODEL", help="what torch.export.save has written (.pt2), or a checkpoint")
    build.add_argument("--target", required=True, help="host, x86-64-v3, znver4, sapphirerapids, aarch64-linux, aarch64-android, apple-m1, wasm32, webgpu")
    build.add_argument("-o", "--out", metavar="DIR", required=True, help="where the library, its header and the examples go")
    _network_options(build)
    build.add_argument("--name", help="what its functions begin with (the file's name)")
    build.add_argument("--weights", choices=("beside", "inside"), default="beside", help="in a file of their own, or in the library")
    cache = commands.add_parser("cache", help="show, clear or fill the compiled code on disk")
    cache.add_argument("action", nargs="?", choices=("show", "clear", "warm"), default="show")
    cache.add_argument("arguments", nargs=argparse.REMAINDER, help="of warm: [--settled SECONDS] SCRIPT [its arguments]")
    coverage = commands.add_parser("coverage", help="compare names and signatures with the installed PyTorch's; prints a page")
    coverage.add_argument("--out", metavar="FILE", help="write the page to FILE (docs/coverage.md)")
    torch = commands.add_parser("torch", help="make `import torch` give flambeau in this environment")
    torch.add_argument("action", choices=("install", "remove", "status", "wheel"), help="wheel: write the same as a file that pip installs")
    torch.add_argument("--out", metavar="DIR", default="dist", help="of wheel: where the file goes")
    calibrate = commands.add_parser("calibrate", help="measure what work costs on this machine, once, for the compiler; some seconds")
    calibrate.add_argument("--show", action="store_true", help="only print what was measured")
    serve = commands.add_parser("serve", help="serve the models of a folder over HTTP and gRPC")
    serve.add_argument("folder", metavar="DIR", help="models as NAME/VERSION/model.pt2, model.onnx or model.py, settings as NAME/config.toml; "
                       "or one file: .pt2, .onnx, a checkpoint")  # fmt: skip
    _network_options(serve)
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this machine only)")
    serve.add_argument("--port", type=int, default=8000, help="of HTTP")
    serve.add_argument("--grpc-port", type=int, metavar="PORT", help="also serve gRPC there")
    serve.add_argument("--workers", type=int, default=1, help="processes; they share the weights of .pt2 files")
    serve.add_argument("--threads", type=int, help="of the kernels of one worker (the processors divided by the workers)")
    serve.add_argument("--allow-code", action="store_true", help="also run model.py, which is Python code")
    serve.add_argument("--poll", type=float, default=1.0, metavar="SECONDS", help="how often the folder is looked at (0: never)")
    serve.add_argument("--max-body", type=int, default=64 << 20, metavar="BYTES", help="longest body of a request")
    serve.add_argument("--drain", type=float, default=30.0, metavar="SECONDS", help="how long open requests may take after SIGTERM")
    serve.add_argument("--certificate", metavar="FILE", help="of TLS, in PEM")
    serve.add_argument("--key", metavar="FILE", help="of TLS, in PEM")
    serve.add_argument("--tokens", metavar="FILE", help="a token a line; requests need one: Authorization: Bearer TOKEN")
    serve.add_argument("--log-requests", action="store_true", help="log each request")
    pipeline = commands.add_parser("pipeline", help="run the steps of a TOML file whose data, code or parameters have changed")
    pipeline.add_argument("file", metavar="FILE", help="a TOML file of steps: docs/pipeline.md")
    pipeline.add_argument("steps", nargs="*", metavar="STEP", help="these and what they need; all by default")
    pipeline.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="changed", help="another value of a parameter")
    pipeline.add_argument("--force", action="store_true", help="also run what is up to date")
    pipeline.add_argument("--dry-run", action="store_true", help="only print what would run")
    commands.add_parser("info", help="print versions, processor, threads, memory, cache")
    return parser


def _network_options(parser: argparse.ArgumentParser) -> None:
    """How a checkpoint becomes a network: of each command that takes one."""
    parser.add_argument("--network", metavar="NAME", help="of a checkpoint: digits, mnist, gpt, or FILE.py:CLASS; by default the one whose weights these are")
    parser.add_argument("--input", action="append", default=[], metavar="NAME:SIZES[:DTYPE]", help="of a network of yours, each: x:batch,3,224,224")
    parser.add_argument("--range", action="append", default=[], metavar="NAME=LEAST..MOST", help="of a dynamic size: batch=1..64")


def _html_option(html: str | None, arguments: list[str]) -> tuple[str | None, list[str]]:
    """`--html FILE` may also stand behind the script, where argparse takes it for the script's own; `--` ends ours."""
    if arguments[:1] == ["--"]:
        return html, arguments[1:]
    if html is None and arguments[:1] == ["--html"] and len(arguments) > 1:
        html, arguments = arguments[1], arguments[2:]
        return html, arguments[1:] if arguments[:1] == ["--"] else arguments
    return html, arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["launch"]:  # whose options argparse would take for its own
        from flambeau.distributed.run import main as launch
        from flambeau.distributed.run import told

        return told(launch, words[1:])
    parser = _parser()
    options = parser.parse_args(words)
    if options.command == "demo":
        if options.web:
            from flambeau.cli.demo_web import demo_web

            return demo_web(options.epochs, options.steps, options.out, options.seed)
        if options.gpt:
            from flambeau.cli.demo_gpt import demo as demo_gpt

            return demo_gpt(options.steps, options.out, options.seed)
        from flambeau.cli.demo import demo

        return demo(options.data, options.epochs, options.out, options.seed)
    if options.command == "export":
        from flambeau.cli.export import export

        return export(options)
    if options.command == "run":
        from flambeau.cli.run import run

        if options.module is None and not options.arguments:
            parser.error("run: give a script, or -m MODULE")
        return run(options.arguments, options.module)
    if options.command == "bench":
        if options.fresh:
            from flambeau.cli.bench_fresh import bench_fresh

            return bench_fresh(options.cases, options.torch, options.rounds, options.markdown, options.steps)
        from flambeau.cli.bench import bench

        return bench(options.cases, options.torch, options.rounds, options.markdown, options.sweep, options.memory)
    if options.command == "explain":
        from flambeau.cli.explain import explain

        html, arguments = _html_option(options.html, options.arguments)
        return explain(options.script, arguments, html)
    if options.command == "cache":
        from flambeau.cli.cache import show_cache, warm

        if options.action != "warm":
            return show_cache(options.action)
        warming = argparse.ArgumentParser(prog="flambeau cache warm", description="Run a script, so that all its kernels are in the cache.")
        warming.add_argument("--settled", metavar="SECONDS", type=float, help="end the script when nothing was compiled for so long")
        warming.add_argument("script", help="the script whose kernels are compiled")
        warming.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
        given = warming.parse_args(options.arguments)
        return warm(given.script, given.arguments, given.settled)
    if options.command == "build":
        from flambeau.cli.build import build

        return build(options)
    if options.command == "coverage":
        from flambeau.cli.coverage import coverage

        return coverage(options.out)
    if options.command == "torch":
        from flambeau.cli.torch_package import main as torch_package

        return torch_package(options.action, options.out)
    if options.command == "calibrate":
        from flambeau.cli.calibrate import calibrate

        return calibrate(options.show)
    if options.command == "serve":
        from flambeau.cli.serve import serve

        return serve(options)
    if options.command == "pipeline":
        from flambeau.cli.pipeline import pipeline

        return pipeline(options.file, options.steps, options.changed, options.force, options.dry_run)
    from flambeau.cli.info import info

    return info()


if __name__ == "__main__":
    sys.exit(main())
