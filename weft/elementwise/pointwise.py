"""`weft.pointwise`: a scalar function as an operator on tensors, by PyTorch's rules of dtypes, broadcasting and strides."""

from __future__ import annotations

import ast
import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import torch
from torch.compiler import is_compiling

from weft.elementwise.applied import Applied, applied
from weft.elementwise.declared import declared, require_as_declared
from weft.elementwise.loops import Given, Loops, as_they_lie, by_shape
from weft.elementwise.told import operand_lines, widths_of
from weft.elementwise.views import as_it_lies, by_dimensions, result_of
from weft.errors import DeviceMismatch, NotDifferentiable, NumberOverflow, TypeMismatch, UnsupportedSyntax
from weft.language import Capture, capture
from weft.language.pointwise import Elementwise, Operand
from weft.language.source import plain_function
from weft.loops.ir import Function
from weft.loops.types import BOOL, COMPLEX128, COMPLEX_OF, COMPLEX_TYPES, FLOAT64, INT64, SCALAR_TYPES, Typed
from weft.plan.facts import Geometry
from weft.pytorch.call import COMPLEX, DTYPES, CallPlan, as_pairs, plain
from weft.pytorch.executable import call_key
from weft.pytorch.quick import MISS, PLAIN, Seen, Ways, eager, never
from weft.pytorch.traced import tag_caches
from weft.pytorch.viewed import recorded_with_views
from weft.runtime import quick
from weft.runtime.stack import deep

if TYPE_CHECKING:
    from weft.check.report import Report
    from weft.compiler import Analysis, Launch
    from weft.explain import Explanation

_NUMBERS = {bool: BOOL, int: INT64, float: FLOAT64, complex: COMPLEX128}
_DTYPES = DTYPES | COMPLEX
_NONE = Ways()


def _reads(captured: Capture) -> tuple[str, ...]:
    """The parameters in the order in which the function reads them first: in that order PyTorch's operators look at strides."""
    names: dict[str, None] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names[node.id] = None
        for child in ast.iter_child_nodes(node):
            visit(child)

    for statement in captured.source.node.body:
        visit(statement)
    return tuple(names)


def _listed(out: Any) -> tuple[Any, ...]:
    """The results that are given."""
    return () if out is None else tuple(out) if isinstance(out, (tuple, list)) else (out,)


class _Program:
    """A scalar function while the places that it reads from outside hold what they held: its programs, by kinds of call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        own = plain_function(function)
        if own is None:
            raise UnsupportedSyntax(f"{function!r} is not a Python function", remedy="pass a function written with def")
        self.function = own
        self.captured: Capture = deep(capture)(own)
        self.default = torch.get_default_dtype()
        self.reads = _reads(self.captured)
        self._made: dict[Elementwise, Applied] = {}

    def holds(self) -> bool:
        return all(w.holds() for w in self.captured.watches) and torch.get_default_dtype() is self.default

    def applied(self, call: Elementwise) -> Applied:
        found = self._made.get(call)
        if found is None:
            found = self._made[call] = applied(self.function, self.captured, call)
        return found


class Pointwise:
    """A scalar function of any number of operands and results, applied to every element of tensors.

    Call it with tensors of any shapes that broadcast, of any dtypes and strides, and with numbers; `out=` takes the results,
    one tensor or a tuple of them. None, text, True and False where the default is one of them, and defaults are constants of
    the program. Dtypes, promotion and strides of results are PyTorch's for the same function of tensors.
    """

    def __init__(
        self, function: Callable[..., Any], strict: bool = False, parameters: frozenset[str] = frozenset()
    ) -> None:
        """parameters: those whose numbers are no operands of the iteration."""
        self.py = function
        self.name = function.__name__
        self.strict = strict
        self.quick: Callable[..., Any] = never  # the quick way of the last calls
        self._ways: dict[int, Ways] = {}  # of calls into so many given results, which come last
        self._parameters = inspect.signature(function)
        self._declared = declared(self._parameters)
        self._apart = parameters
        self._names = tuple(self._parameters.parameters)
        kinds = [p.kind for p in self._parameters.parameters.values()]
        self._positional = sum(k is not inspect.Parameter.KEYWORD_ONLY for k in kinds)
        self._orders: dict[tuple[Any, ...], tuple[tuple[str, ...], dict[str, Any]] | None] = {}  # of arguments by name
        self._choices = {n for n, p in self._parameters.parameters.items() if type(p.default) is bool}  # constants, too
        self._by_key: dict[str, Applied] = {}  # programs of calls that torch.compile recorded
        self._lock = threading.RLock()
        self._program: _Program | None = None
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<weft.Pointwise {self.name}>"

    def __reduce__(self) -> str:
        return self.py.__qualname__

    @property
    def program(self) -> _Program:
        program = self._program
        if program is None or not program.holds():
            with self._lock:
                program = self._program = _Program(self.py)
                self.quick = never
                self._ways = {}
        return program

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        if is_compiling():
            return self._traced(args, kwargs, out)
        placed = self._by_position(args, kwargs) if kwargs else args
        if placed is not None and len(args) <= self._positional:
            try:
                if out is None:
                    made = self.quick(*placed)
                elif isinstance(out, (tuple, list)):
                    made = (self._ways.get(len(out)) or _NONE).quick(*placed, *out)
                else:
                    made = (self._ways.get(1) or _NONE).quick(*placed, out)
                if made is not MISS:
                    return made
            except TypeError:  # another number of arguments
                pass
            made = self._earlier(placed, out)
            if made is not MISS:
                return made
        return self._called(args, kwargs, placed, out)

    # ---- a call that torch.compile records: shapes, dtypes and kinds decide the program, which is looked up as it traces

    def _traced(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Any:
        outs = _listed(out)
        values = {**dict(zip(self._names, args, strict=False)), **kwargs}
        tensors = {n: v for n, v in values.items() if isinstance(v, torch.Tensor)}
        loops = by_shape(tuple(tensors.values()), outs)
        axes = dict(zip(tensors, loops.axes, strict=False))
        facts: list[Any] = []
        own: list[Any] = []
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                facts.append((name, value.dtype, value.dim(), axes[name]))
                view = by_dimensions(value, loops.shape, loops.order, [loops.sizes[a] for a in axes[name]])
                own.append(as_pairs(view) if value.is_complex() else view)
            elif isinstance(value, complex):
                facts.append((name, complex))
                own += (value.real, value.imag)
            elif isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat)) and not (
                isinstance(value, bool) and name in self._choices
            ):
                kind = bool if isinstance(value, bool) else float if isinstance(value, (float, torch.SymFloat)) else int
                facts.append((name, kind))
                own.append(value)
            else:
                facts.append((name, value))
        on_gpu = any([t.device.type == "cuda" for t in tensors.values()])
        key = self._traced_program(tuple(facts), len(loops.sizes), on_gpu, tuple([o.dtype for o in outs]))
        made = self._by_key[key].program.operator(*own, *[torch.view_as_real(o) if o.is_complex() else o for o in outs])
        if outs:
            return out
        pairs = self._traced_pairs(key)
        if True not in pairs:
            return made
        if len(pairs) == 1:
            return torch.view_as_complex(made)
        return tuple([torch.view_as_complex(m) if pair else m for m, pair in zip(made, pairs, strict=True)])

    def _traced_pairs(self, key: str) -> tuple[bool, ...]:
        """Which results of such a program are of complex numbers."""
        function = self._by_key[key].function
        return tuple([r in function.pairs for r in function.results])

    _traced_pairs._dynamo_marked_constant = True  # type: ignore[attr-defined]

    def _traced_program(self, facts: tuple[Any, ...], rank: int, on_gpu: bool, outs: tuple[torch.dtype, ...]) -> str:
        """The name under which the program of such calls is kept, which is made if it is not yet."""
        operands, constants = [], []
        for name, *fact in facts:
            if len(fact) == 3:
                dtype, dim, axes = fact
                self._require_declared(name, dtype)
                operands.append(Operand(name, Typed(_DTYPES[dtype], 2 if dim else 1), axes))
            elif isinstance(fact[0], type) and fact[0] in _NUMBERS:
                self._require_declared(name, fact[0])
                operands.append(Operand(name, Typed(_NUMBERS[fact[0]], 0), None))
            else:
                constants.append((name, _DTYPES.get(fact[0], fact[0])))
        given = {name for name, *_ in facts}
        constants += [(n, p.default) for n, p in self._parameters.parameters.items() if n not in given]
        order = {n: k for k, n in enumerate(self._names)}
        call = Elementwise(
            tuple(operands), tuple(sorted(constants, key=lambda c: order[c[0]])), rank,
            tuple(zip(self._called_outs(len(outs)), (_DTYPES[d] for d in outs), strict=True)),
            checked=not on_gpu, strict=self.strict,
        )  # fmt: skip
        one = self.program.applied(call)
        key = one.program.operator.name
        self._by_key[key] = one
        tag_caches(one.program.specializable.identity)
        return key

    _traced_program._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compile calls it and does not trace it

    # ---- a call

    def _called(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], placed: tuple[Any, ...] | None, out: Any
    ) -> Any:
        """placed: all arguments in their places, where a quick way may take them so."""
        quick.begin()
        outs = _listed(out)
        one, given, loops = self._applied(args, kwargs, outs)
        tensors = (*given.tensors.values(), *outs)
        recorded = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if recorded and outs:
            raise NotDifferentiable(
                f"{self.name} is given out=, and a gradient is to be recorded",
                location=one.signature.location,
                remedy="call it without out=, or under torch.no_grad()",
            )
        if recorded and loops.strides is not None and placed is not None:
            made = self._recorded(placed, given, one, loops)
            if made is not MISS:
                return made
        own = _over_axes(given, outs, loops, recorded)
        if loops.strides is None or recorded:
            made = one.program.operator(*own)
        else:
            plan = one.program.call(call_key(one.signature, own), own)
            made = plan.tensors(own)
            if placed is not None:
                self._keep(placed, outs, given, one, plan, own, loops)
        results = made if isinstance(made, (tuple, list)) else (made,)
        made_strides = None if recorded else loops.made
        if one.function.pairs and not outs:
            named = zip(results, one.function.results, strict=True)
            results = tuple(torch.view_as_complex(r) if n in one.function.pairs else r for r, n in named)
        results = outs or tuple(result_of(r, loops.shape, loops.order, made_strides) for r in results)
        if one.function.container:
            return list(results) if one.function.container == "list" else tuple(results)
        return results[0] if len(results) == 1 else tuple(results)

    def _keep(
        self, placed: tuple[Any, ...], outs: tuple[torch.Tensor, ...], given: Given, one: Applied, plan: CallPlan,
        own: tuple[Any, ...], loops: Loops,
    ) -> None:  # fmt: skip
        """Remember the quick way of calls like this one, if there is one."""
        function = one.function
        alike = _own_is_given(own, given, outs) and not function.pairs
        if alike and outs:
            way = self._quick(placed, outs, given, lambda args, constants: plan.seen(Seen(args, constants=constants)))
        elif alike and loops.made is not None:
            new = {r: Geometry(function.array(r).dtype, loops.shape, loops.made, 0) for r in function.results}
            way = self._quick(placed, (), given, lambda args, constants: plan.seen(Seen(args, new, constants)))
        elif not outs and loops.made is not None and not function.container:
            way = self._quick(placed, (), given, lambda args, constants: _of_pairs(plan, args, function, loops, constants))
        else:
            return
        self._remember(placed, outs, way)

    def _recorded(self, placed: tuple[Any, ...], given: Given, one: Applied, loops: Loops) -> Any:
        """A call that autograd records as one step; MISS where it cannot be."""
        positions = tuple(k for k, (n, _) in enumerate(zip(self._names, placed, strict=False)) if n in given.operands)
        numbers = [placed[k] for k in positions if not isinstance(placed[k], torch.Tensor)]
        if any(t.is_complex() for t in given.tensors.values()) or any(type(n) not in (bool, int, float) for n in numbers):
            return MISS
        if not self._is_plain(placed, given):
            return MISS
        shape, order = loops.shape, loops.order
        sizes = dict(zip(given.tensors, ([loops.sizes[a] for a in axes] for axes in loops.axes), strict=False))
        own_sizes = [sizes.get(self._names[k]) for k in positions]

        def inside(*args: Any) -> list[Any]:
            operands = [args[k] for k in positions]
            return [o if s is None else by_dimensions(o, shape, order, s) for o, s in zip(operands, own_sizes, strict=True)]

        def outside(result: torch.Tensor) -> torch.Tensor:
            return result_of(result, shape, order, None)

        with torch.no_grad(), self._lock:
            own, ways = tuple(inside(*placed)), self._ways.setdefault(0, Ways())
        made = recorded_with_views(one.program, ways, placed, own, inside, outside, positions)
        self.quick = ways.quick
        return made

    def _earlier(self, placed: tuple[Any, ...], out: Any) -> Any:
        """The quick way of a call like one before the last few, or MISS."""
        outs = _listed(out)
        ways = self._ways.get(len(outs)) or _NONE
        made = ways.earlier((*placed, *outs))
        if made is not MISS and not outs:
            self.quick = ways.quick
        return made

    def _remember(self, placed: tuple[Any, ...], outs: tuple[torch.Tensor, ...], way: Callable[..., Any]) -> None:
        """Take a quick way of calls with such arguments and given results from now on, besides the last ones."""
        with self._lock:
            ways = self._ways.setdefault(len(outs), Ways())
            ways.add(way, (*placed, *outs))
        if not outs:
            self.quick = ways.quick

    def _by_position(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """The arguments in their places, with what constants between them are by default; None where there is no such order."""
        given = (len(args), *kwargs)
        try:
            order = self._orders[given]
        except KeyError:
            order = self._orders[given] = self._order(given)
        if order is None:
            return None
        names, between = order
        return (*args, *map((between | kwargs if between else kwargs).__getitem__, names))

    def _order(self, given: tuple[Any, ...]) -> tuple[tuple[str, ...], dict[str, Any]] | None:
        """Of calls with so many arguments and then these names: the names in order, and the constants between them."""
        count, *names = given
        parameters = self._parameters.parameters
        named = {n for n, p in parameters.items() if p.kind is not p.POSITIONAL_ONLY}
        places = [self._names.index(n) for n in names if n in named]
        if len(places) < len(names) or min(places) < count:
            return None
        order = self._names[count : max(places) + 1]
        defaults = {n: parameters[n].default for n in order if n not in names}
        fixed = all(d is None or type(d) in (bool, str) for d in defaults.values())
        return (order, defaults) if fixed else None

    def _quick(
        self,
        args: tuple[Any, ...],
        outs: tuple[torch.Tensor, ...],
        given: Given,
        made: Callable[[tuple[Any, ...], frozenset[int]], Callable[..., Any]],
    ) -> Callable[..., Any]:
        """The quick way of calls like this one. made: that of arguments and given results, with constants at some positions."""
        places = {k for k, (n, _) in enumerate(zip(self._names, args, strict=False)) if n in given.operands}
        if not self._is_plain(args, given):
            return never
        return made((*args, *outs), frozenset(range(len(args))) - places)

    def _is_plain(self, args: tuple[Any, ...], given: Given) -> bool:
        """Whether a call's arguments are its operands, and constants whose values are equal where they do not differ."""
        named = list(zip(self._names, args, strict=False))
        constants = [v for n, v in named if n not in given.operands]
        if len(named) - len(constants) != len(given.operands):
            return False
        if any(v is not None and type(v) not in (bool, str) for v in constants):
            return False
        # the number of a tensor on the CPU is another one in another call
        return not any(isinstance(v, torch.Tensor) and n in given.numbers for n, v in named)

    def _applied(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], outs: tuple[torch.Tensor, ...]
    ) -> tuple[Applied, Given, Loops]:
        """The program of a call, its arguments, and how it iterates."""
        given = self._given(args, kwargs)
        self._require_writable(outs)
        tensors = tuple(given.tensors.values())
        names = self._called_outs(len(outs))
        if eager() and all(type(t) in PLAIN for t in (*tensors, *outs)):
            loops = as_they_lie(given, dict(zip(names, outs, strict=True)), self.program.reads, self._apart)
        else:
            loops = by_shape(tensors, outs)
        axes = dict(zip(given.tensors, loops.axes, strict=False))
        operands = tuple(
            Operand(n, Typed(_DTYPES[given.tensors[n].dtype], 2 if given.tensors[n].dim() else 1), axes[n])
            if n in axes
            else Operand(n, given.numbers[n][1], None)
            for n in given.operands
        )
        call = Elementwise(
            operands,
            given.constants,
            len(loops.sizes),
            tuple((n, _DTYPES[t.dtype]) for n, t in zip(names, outs, strict=True)),
            checked=tensors[0].device.type != "cuda",
            strict=self.strict,
        )
        return self.program.applied(call), given, loops

    def _require_writable(self, outs: Sequence[torch.Tensor]) -> None:
        for out, name in zip(outs, self._called_outs(len(outs)), strict=True):
            if not isinstance(out, torch.Tensor):
                raise TypeMismatch(
                    f"{name} is {out!r}", location=self._location, remedy="pass a tensor, one for each result, or leave it out"
                )
            if out.is_conj():
                raise UnsupportedSyntax(
                    f"{name} is written, and is a lazily conjugate view",
                    location=self._location,
                    remedy=f"pass {name}.resolve_conj(), or write into the tensor and conjugate the result",
                )
            if out.dtype not in _DTYPES:
                self._require_known(name, out)

    def _called_outs(self, count: int) -> list[str]:
        """What given results are called: as no parameter is."""
        names = [f"out_{k}" if count > 1 else "out" for k in range(count)]
        while set(names) & {*self._names}:
            names = [f"{n}_" for n in names]
        return names

    def _given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Given:
        try:
            bound = self._parameters.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeMismatch(
                f"{self.name}{self._parameters}: {error}", location=self._location, remedy="pass each operand once"
            ) from None
        tensors: dict[str, torch.Tensor] = {}
        numbers: dict[str, tuple[bool | int | float | complex, Typed]] = {}
        constants: list[tuple[str, Any]] = []
        passed = {n: plain(v) for n, v in bound.arguments.items()}
        for name, value in passed.items():
            if isinstance(value, torch.Tensor):
                self._require_known(name, value)
                self._require_declared(name, value.dtype)
                tensors[name] = value.resolve_conj() if value.is_complex() else value
            elif type(value) in _NUMBERS and not (type(value) is bool and name in self._choices):
                self._require_declared(name, type(value))
                if type(value) is int and not -(2**63) <= value < 2**63:
                    raise NumberOverflow(
                        f"{name} is an int that leaves 64 bits",
                        location=self._location,
                        remedy="pass a float, or a smaller number",
                    )
                numbers[name] = value, Typed(_NUMBERS[type(value)], 0)
            elif value is None or isinstance(value, (bool, str, torch.dtype)):
                constants.append((name, _DTYPES.get(value, value) if isinstance(value, torch.dtype) else value))
            else:
                raise TypeMismatch(
                    f"{name} is {value!r}",
                    location=self._location,
                    evidence=[f"{self.name} takes tensors, numbers, None and text"],
                    remedy="pass a tensor or a number",
                )
        if not tensors:
            raise TypeMismatch(
                f"{self.name} is called without a tensor",
                location=self._location,
                remedy=f"pass a tensor, or call {self.name}.py with numbers",
            )
        constants += [(n, p.default) for n, p in self._parameters.parameters.items() if n not in passed]
        self._gather(tensors, numbers)
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors.values()):
            tensors = {n: _own(t) if type(t) in PLAIN else t for n, t in tensors.items()}
        operands = tuple(n for n in self._parameters.parameters if n in tensors or n in numbers)
        return Given(tensors, numbers, tuple(constants), operands)

    def _gather(
        self, tensors: dict[str, torch.Tensor], numbers: dict[str, tuple[bool | int | float | complex, Typed]]
    ) -> None:
        """Tensors without dimensions on the CPU, beside others on a GPU, as the numbers that PyTorch takes them for."""
        devices = {n: t.device for n, t in tensors.items()}
        if len(set(devices.values())) == 1:
            return
        beside = {n for n, t in tensors.items() if t.dim() == 0 and t.device.type == "cpu"}
        others = {d for n, d in devices.items() if n not in beside}
        if len(others) != 1:
            raise DeviceMismatch(
                f"the tensors of {self.name} lie on different devices",
                location=self._location,
                evidence=[f"{n} lies on {d}" for n, d in devices.items()],
                remedy="move them to one; a tensor without dimensions may lie on the CPU",
            )
        (device,) = others
        for name in beside:
            tensor = tensors[name]
            if tensor.requires_grad or type(tensor) not in PLAIN:
                tensors[name] = tensor.to(device)
            else:
                numbers[name] = tensors.pop(name).item(), Typed(_DTYPES[tensor.dtype], 1)

    def _require_declared(self, name: str, passed: torch.dtype | type) -> None:
        if name in self._declared:
            require_as_declared(name, passed, self._declared[name], self.name, self._location)

    def _require_known(self, name: str, value: torch.Tensor) -> None:
        if value.dtype not in _DTYPES or value.layout is not torch.strided or value.is_nested:
            what = "nested" if value.is_nested else str(value.dtype if value.dtype not in _DTYPES else value.layout)
            raise TypeMismatch(
                f"{name} is a tensor that {self.name} does not take: {what}",
                location=self._location,
                remedy=f"use strided tensors of {', '.join(SCALAR_TYPES | COMPLEX_TYPES)}",
            )

    @property
    def _location(self) -> Any:
        return self.program.captured.source.where

    # ---- looking inside

    def explain(self, *args: Any, format: str = "text", detail: bool = False, **kwargs: Any) -> Explanation:
        """The loops of a call, their plan, and for each operand how it is read; see `weft.Kernel.explain`."""
        from weft.pytorch.inspection import explain

        one, own = self._inspected(args, kwargs)
        first = one.function.results[0]
        dtype = one.function.array(first).dtype
        result = COMPLEX_OF[dtype] if first in one.function.pairs else dtype

        def lines(analysis: Analysis, launches: Sequence[Launch]) -> tuple[str, ...]:
            return operand_lines(one.call, own, result, widths_of(analysis.lowered, launches))

        return explain(one, own, format, detail, lines)

    def source(self, *args: Any, arch: str | None = None, **kwargs: Any) -> str:
        """The generated code of a call; see `weft.Kernel.source`."""
        from weft.pytorch.inspection import source

        return source(*self._inspected(args, kwargs), arch)

    def resources(self, *args: Any, arch: str | None = None, **kwargs: Any) -> Any:
        """Registers, spills and shared memory of each kernel of a call; see `weft.Kernel.resources`."""
        from weft.pytorch.inspection import resources

        return resources(*self._inspected(args, kwargs), arch)

    def check(
        self, *args: Any, seeds: int = 1, arch: str = "sm_90a", tolerance: float | None = None, gradients: bool = False,
        **kwargs: Any,
    ) -> Report:  # fmt: skip
        """Execute on the CPU the CUDA that a call would launch; see `weft.Kernel.check`."""
        from weft.pytorch.check import check_call

        one, own = self._inspected(args, kwargs)
        return check_call(one, own, seeds=seeds, arch=arch, tolerance=tolerance, gradients=gradients)

    def _inspected(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        """What stands for a kernel, and its own arguments: the tensors over the axes of the iteration, and the numbers."""
        from weft.pytorch.specs import TensorSpec, make_arguments

        specs = {n: v for n, v in zip(self._parameters.parameters, args, strict=False)}
        read = {n: TensorSpec.parse(v) if isinstance(v, str) and "[" in v else v for n, v in specs.items()}
        values = tuple(make_arguments(read).values())
        one, given, loops = self._applied(values, kwargs, ())
        return one, _over_axes(given, (), loops, False)


def _over_axes(given: Given, outs: Sequence[torch.Tensor], loops: Loops, recorded: bool) -> tuple[Any, ...]:
    """What the program of a call takes: the operands, tensors over the axes of the iteration, then the given results. recorded:
    by views that PyTorch differentiates.
    """
    tensors = (*given.tensors.values(), *outs)
    if loops.strides is None or recorded:
        sizes = [[loops.sizes[a] for a in axes] for axes in loops.axes]
        views = [by_dimensions(t, loops.shape, loops.order, own) for t, own in zip(tensors, sizes, strict=True)]
    else:
        lying = zip(tensors, loops.strides, loops.axes, strict=True)
        views = [as_it_lies(t, loops.sizes, strides, axes) for t, strides, axes in lying]
    views = [as_pairs(v) if v.is_complex() else v for v in views]
    by_name = dict(zip(given.tensors, views, strict=False))
    operands: list[Any] = []
    for name in given.operands:
        number = None if name in by_name else given.numbers[name][0]
        operands += (number.real, number.imag) if isinstance(number, complex) else (by_name.get(name, number),)
    return (*operands, *views[len(given.tensors) :])


def _of_pairs(
    plan: CallPlan, args: tuple[Any, ...], function: Function, loops: Loops, constants: frozenset[int]
) -> Callable[..., Any]:
    """The quick way of a call with complex operands or results: that of their parts. args: as they were passed, with constants
    at some positions.
    """
    assert loops.made is not None
    complexes = [isinstance(v, complex) or (isinstance(v, torch.Tensor) and v.is_complex()) for v in args]
    pairs = [r in function.pairs for r in function.results]
    new = {}
    for r, pair in zip(function.results, pairs, strict=True):
        made = ((*loops.shape, 2), (*(2 * s for s in loops.made), 1)) if pair else (loops.shape, loops.made)
        new[r] = Geometry(function.array(r).dtype, *made, 0)

    def parts(values: tuple[Any, ...]) -> list[Any] | None:
        """The arguments by their parts; None where they are of other kinds, or lazily conjugate."""
        found: list[Any] = []
        for value, is_complex in zip(values, complexes, strict=True):
            if not is_complex:
                found.append(value)
            elif type(value) is complex:
                found += (value.real, value.imag)
            elif type(value) not in PLAIN or not value.is_complex() or value.is_conj() or value.is_neg():
                return None
            else:
                found.append(torch.view_as_real(value))
        return found

    first = parts(args)
    before = [sum(1 + isinstance(v, complex) for v in args[:k]) for k in constants]  # how many parts
    quick = never if first is None else plan.seen(Seen(tuple(first), new, frozenset(before)))
    if quick is never:
        return never

    def around(*values: Any) -> Any:
        own = parts(values) if len(values) == len(complexes) else None
        made = MISS if own is None or len(own) != len(first or ()) else quick(*own)
        if made is MISS:
            return MISS
        if len(pairs) == 1:
            return torch.view_as_complex(made) if pairs[0] else made
        return tuple(torch.view_as_complex(m) if pair else m for m, pair in zip(made, pairs, strict=True))

    return around


def _own_is_given(own: Sequence[Any], given: Given, outs: Sequence[torch.Tensor]) -> bool:
    """Whether a program's arguments are what the call was given: none of it is complex."""
    taken = len(own) - len(outs) == len(given.operands)
    return taken and not any(t.is_complex() for t in (*given.tensors.values(), *outs))


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with an element of its own at every place, so that each has its own gradient."""
    repeated = any(n > 1 and s == 0 for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.contiguous() if repeated else tensor


@overload
def pointwise(function: Callable[..., Any], *, strict: bool = False) -> Pointwise: ...
@overload
def pointwise(function: None = None, *, strict: bool = False) -> Callable[[Callable[..., Any]], Pointwise]: ...
def pointwise(
    function: Callable[..., Any] | None = None, *, strict: bool = False
) -> Pointwise | Callable[[Callable[..., Any]], Pointwise]:
    """Decorate a scalar function that weft applies to tensors element by element.

    strict: every operation rounds to the dtype that its result has in eager PyTorch; otherwise what a chain computes stays in
    the precision of its arithmetic until it is stored.
    """
    if function is None:
        return lambda f: Pointwise(f, strict)
    return Pointwise(function, strict)
