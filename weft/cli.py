"""The command line: `weft demo | explain | check | source | tune | bench`.

A kernel is named `FILE:NAME`; inputs are given as `x=float32[64,1024]` or `eps=1e-6`, and the kernel's own example
stands for those not given. Errors for users print without a traceback and exit with status 2.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

from weft.errors import CompileError, TypeMismatch, UndefinedName, WeftError

if TYPE_CHECKING:
    from weft.pytorch.specs import Spec

ARCHITECTURES = ("cpu", "sm_80", "sm_86", "sm_89", "sm_90a")


class Explainable(Protocol):
    """What the command line asks of a kernel."""

    py: Callable[..., Any]
    name: str
    example: Mapping[str, Any]

    def explain(self, *args: Any, format: str = "text", detail: bool = False) -> str: ...
    def source(self, *args: Any, arch: str | None = None) -> str: ...
    def check(self, *args: Any, **options: Any) -> Any: ...
    def tune(self, *args: Any, **options: Any) -> Any: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 where `check` finds something, 2 for an error of the user's."""
    options = _parser().parse_args(argv)
    try:
        return cast(int, options.run(options))
    except WeftError as error:
        print(error.render(), file=sys.stderr)
        return 2
    except BrokenPipeError:  # `weft source ... | head`
        sys.stderr.close()
        return 0


def load_kernel(target: str) -> Explainable:
    """The kernel at `FILE:NAME`; a plain function there is taken as if it were decorated.

    Raises UndefinedName where the file or the name is not there, TypeMismatch where the name is no kernel.
    """
    file, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        raise UndefinedName(f"{target!r} names no kernel", remedy="write FILE:NAME, as weft/kernels/linrec.py:linrec")
    module = _load_module(Path(file))
    found = getattr(module, name, None)
    if found is None:
        kernels = sorted(n for n, v in vars(module).items() if _is_kernel(v))
        raise UndefinedName(
            f"{file} defines no {name!r}",
            evidence=[f"kernels there: {', '.join(kernels) or 'none'}"],
            remedy="name one of the kernels of the file",
        )
    if _is_kernel(found):
        return cast(Explainable, found)
    if inspect.isfunction(found):
        import weft

        return cast(Explainable, weft.kernel(found))
    what = type(found).__name__
    raise TypeMismatch(f"{name} in {file} is no kernel but a {what}", remedy="name a function with loops")


def arguments(kernel: Explainable, given: Mapping[str, Spec]) -> tuple[Any, ...]:
    """The arguments of a kernel in order: those given, else its example's, else the function's defaults.

    Raises TypeMismatch for a name the kernel does not have, or an argument that none of the three supplies.
    """
    from weft.pytorch.specs import parse

    parameters = inspect.signature(kernel.py).parameters
    unknown = [name for name in given if name not in parameters]
    if unknown:
        raise TypeMismatch(
            f"{kernel.name} has no parameter {unknown[0]!r}",
            evidence=[f"its parameters: {', '.join(parameters)}"],
            remedy="give inputs by the names of the parameters",
        )
    example = {n: parse(v) if isinstance(v, str) else v for n, v in (kernel.example or {}).items()}
    values: list[Any] = []
    for name, parameter in parameters.items():
        value = given.get(name, example.get(name, parameter.default))
        if value is inspect.Parameter.empty:
            raise TypeMismatch(
                f"{kernel.name} needs its argument {name!r}",
                evidence=["it carries no example input of that name"],
                remedy=f"add {name}=float32[64,1024], or another shape or number",
            )
        values.append(value)
    return tuple(values)


# ---------------------------------------------------------------- commands


# How the dependence graph of the statements is written; it needs no inputs.
_GRAPHS = {"graph": "to_text", "graph-mermaid": "to_mermaid", "graph-json": "to_json"}


def _explain(options: argparse.Namespace) -> int:
    kernel = load_kernel(options.kernel)
    try:
        _write(_explanation(kernel, options), options.output)
    except WeftError as error:
        if options.format == "html":  # the page then says why
            from weft.explain import refusal

            _write(refusal(kernel.name, error), options.output)
        raise
    return 0


def _write(text: str, output: Path | None) -> None:
    if output is None:
        print(text, end="" if text.endswith("\n") else "\n")
    else:
        output.write_text(text, encoding="utf-8")


def _explanation(kernel: Explainable, options: argparse.Namespace) -> str:
    import weft
    from weft.pytorch.specs import parse_named

    if options.format in _GRAPHS:
        return cast(str, getattr(weft.analyze(kernel.py).graph, _GRAPHS[options.format])())
    if not options.inputs and not kernel.example and _required(kernel):
        return weft.analyze(kernel.py).explain(options.format, options.detail)  # all but the plan
    given = arguments(kernel, parse_named(options.inputs))
    return kernel.explain(*given, format=options.format, detail=options.detail)


def _required(kernel: Explainable) -> bool:
    """Whether a kernel has parameters without defaults."""
    return any(p.default is inspect.Parameter.empty for p in inspect.signature(kernel.py).parameters.values())


def _check(options: argparse.Namespace) -> int:
    from rich.console import Console

    from weft.pytorch.specs import parse_named

    kernel = load_kernel(options.kernel)
    given = arguments(kernel, parse_named(options.inputs))
    chosen = {"seeds": options.seeds, "arch": options.arch, "tolerance": options.tolerance, "gradients": options.gradients}
    report = kernel.check(*given, **chosen)
    if sys.stdout.isatty():
        Console().print(report)
    else:
        print(report.text(), end="")
    if options.html is not None:
        options.html.write_text(report.html(), encoding="utf-8")
    return 0 if report.ok else 1


def _tune(options: argparse.Namespace) -> int:
    from rich.console import Console

    from weft.pytorch.specs import parse_named

    kernel = load_kernel(options.kernel)
    given = arguments(kernel, parse_named(options.inputs))
    tuned = kernel.tune(*given, gradients=options.gradients, seconds=options.seconds)
    if sys.stdout.isatty():
        Console().print(tuned)
    else:
        print(tuned, end="")
    return 0


def _source(options: argparse.Namespace) -> int:
    from weft.pytorch.specs import parse_named

    kernel = load_kernel(options.kernel)
    text = kernel.source(*arguments(kernel, parse_named(options.inputs)), arch=options.arch)
    if not sys.stdout.isatty():
        print(text)
        return 0
    from rich.console import Console
    from rich.syntax import Syntax

    Console().print(Syntax(text, "cuda" if options.arch != "cpu" else "cpp", background_color="default"))
    return 0


def _demo(options: argparse.Namespace) -> int:
    from weft import demo

    return demo.run()


def _bench(options: argparse.Namespace) -> int:
    root = Path(__file__).resolve().parent.parent
    names = sorted(p.stem for p in (root / "bench").glob("*.py") if "\ndef run(" in p.read_text())
    name = options.name.replace("-", "_")
    if name not in names:
        raise UndefinedName(
            f"there is no benchmark {options.name!r}",
            evidence=[f"benchmarks here: {', '.join(names)}" if names else f"{root} holds no bench directory"],
            remedy="name one of them" if names else "run from a checkout of weft's repository",
        )
    sys.path.insert(0, str(root))
    harness = importlib.import_module("bench.harness")
    return cast(int, harness.main(name, options.rest))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="weft", description="Python loops to CUDA kernels for PyTorch, and why.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="compile two kernels from their loops, run, check and time them here")
    demo.set_defaults(run=_demo)

    explain = commands.add_parser("explain", help="the loops of a kernel, their classes and why")
    explain.add_argument("--format", choices=("text", "mermaid", "html", *_GRAPHS), default="text")
    explain.add_argument("--detail", action="store_true", help="also why, the dependences, the program that runs, remedies")
    explain.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to a file")
    explain.set_defaults(run=_explain)

    source = commands.add_parser("source", help="the generated CUDA C++ (or C++ for the CPU)")
    source.add_argument("--arch", choices=ARCHITECTURES, help="the target; what this machine has if left out")
    source.set_defaults(run=_source)

    check = commands.add_parser(
        "check", help="execute the generated CUDA on the CPU: races, stray accesses, costs by line, against the Python"
    )
    check.add_argument("--seeds", type=int, default=1, metavar="N", help="schedules of the threads to try (1)")
    check.add_argument("--arch", choices=ARCHITECTURES[1:], default="sm_90a", help="the target (sm_90a)")
    check.add_argument("--tolerance", type=float, metavar="T", help="how far an element may be off, of its magnitude")
    check.add_argument("--gradients", action="store_true", help="check the kernels of the gradients too")
    check.add_argument("--html", type=Path, metavar="FILE", help="also write the report as a page beside the code")
    check.set_defaults(run=_check)

    tune = commands.add_parser("tune", help="measure the plans that a call may take on this GPU, and keep the fastest")
    tune.add_argument("--gradients", action="store_true", help="tune the kernels of the gradients too")
    tune.add_argument("--seconds", type=float, default=0.2, metavar="S", help="how long to measure each plan, about (0.2)")
    tune.set_defaults(run=_tune)

    for command in (explain, check, source, tune):
        command.add_argument("kernel", metavar="FILE:NAME")
        command.add_argument("inputs", nargs="*", metavar="NAME=SPEC", help="x=float32[64,1024] or eps=1e-6")

    bench = commands.add_parser("bench", help="run one benchmark of the repository and record its results")
    bench.add_argument("name", metavar="NAME")
    bench.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="options of the benchmark")
    bench.set_defaults(run=_bench)
    return parser


# ---------------------------------------------------------------- modules from paths


def _is_kernel(value: object) -> bool:
    return not inspect.isclass(value) and all(hasattr(value, a) for a in ("py", "example", "explain", "source"))


def _load_module(path: Path) -> ModuleType:
    """The module of a file. A file inside a package is imported under its real name, so that it exists once."""
    if not path.is_file():
        raise UndefinedName(f"there is no file {path}", remedy="give the path of a Python file, from where you are")
    path = path.resolve()
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    if str(root) not in sys.path:
        sys.path.append(str(root))
    loaded = sys.modules.get(name)
    if loaded is None or _file(loaded) != path:
        spec = importlib.util.find_spec(name) if "." in name else None
        if spec is not None and spec.origin is not None and Path(spec.origin).resolve() == path:
            return importlib.import_module(name)
        return _load_alone(path)
    return loaded


def _load_alone(path: Path) -> ModuleType:
    """A file outside any package, under a name that shadows no installed module."""
    name = f"weft_loaded_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CompileError(f"{path} is no Python file", remedy="give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and inspect look a function's module up there
    spec.loader.exec_module(module)
    return module


def _file(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file).resolve()


if __name__ == "__main__":
    sys.exit(main())
