"""`weft.kernel`: a plain Python function with loops as a PyTorch operator."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import types
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

import torch
from torch._compile import _disable_dynamo
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from weft.errors import Location, NotDifferentiable, SourceMismatch, TypeMismatch, UnsupportedSyntax
from weft.language import ArgumentType, Capture, Signature, capture, read_signature
from weft.language.source import plain_function
from weft.language.text import ANONYMOUS, function_of_text
from weft.loops.ir import Tiles
from weft.pytorch.call import COMPLEX, argument_types, as_pairs, call_types, finisher, gathered, plain, repeated
from weft.pytorch.executable import Executable, Keeping, keeping_of
from weft.pytorch.operator import Operator, has_tangent
from weft.pytorch.quick import MISS, PLAIN, Ways, eager, never
from weft.pytorch.specialize import Specializable, Specializer
from weft.pytorch.specs import TensorSpec
from weft.pytorch.telling import Place, tell
from weft.pytorch.traced import tag_caches
from weft.pytorch.variants import Variant, function_of, is_complex, is_structured, is_tensor, read_structure, variant
from weft.pytorch.watching import stale, watch
from weft.pytorch.witness import Witness, witnesses
from weft.runtime import cache
from weft.runtime.guard import Guard
from weft.runtime.stack import deep

if TYPE_CHECKING:
    from weft.check.report import Report
    from weft.explain import Explanation
    from weft.pytorch.tuning import Tuning

_COST = "as Python does, at half the rate of float32 on a GPU like the H200 and at a 64th of it on most others"
_MOST_PROGRAMS = 64
_MANY_PROGRAMS = 8


class Program(Executable):
    """What a kernel is while the places that its function reads from outside hold what they held; `captured` says which."""

    def __init__(self, kernel: Kernel, captured: Capture, first: bool) -> None:
        signature = deep(read_signature)(captured.source)
        specializer = Specializer(captured, signature, kernel.tiles)
        own = None if first or not kernel.name.isascii() else f"{kernel.name}_{cache.key(specializer.identity)[:8]}"
        super().__init__(kernel.name, signature, specializer, own, Guard())
        self.kernel, self.told = kernel, kernel.told
        self.arity = len(signature.parameters)
        self.numbers = tuple(k for k, p in enumerate(signature.parameters) if p.kind != "tensor")
        self.default = torch.get_default_dtype()
        self.witnesses: tuple[Witness, ...] | None = None
        self._keeping: dict[tuple[ArgumentType, ...], Keeping | None] = {}
        self.watch(captured)

    @property
    def identity(self) -> str:
        return self.specializable.identity

    def watch(self, captured: Capture) -> None:
        """Take over the places of a capture of the same meaning."""
        assert self.guard is not None
        self.captured = captured
        watch(self.guard, captured)

    def keeping(self, types: tuple[ArgumentType, ...], args: tuple[Any, ...]) -> Executable | None:
        """What also returns what gradients need of folds, for arguments of these types, if it pays for these."""
        if types not in self._keeping:
            self._keeping[types] = keeping_of(self, types)
        found = self._keeping[types]
        return found if found is not None and found.pays(args) else None

    def recording(self, types: tuple[ArgumentType, ...], args: tuple[Any, ...]) -> Executable:
        return self.keeping(types, args) or self

    def holds(self) -> bool:
        """Whether the kernel is this program."""
        assert self.guard is not None
        return self.guard.holds() and torch.get_default_dtype() is self.default

    def has_variant(self, args: tuple[Any, ...]) -> bool:
        """Whether there are parts of the program among the arguments, tensors in the place of numbers, or complex numbers."""
        if any(map(is_structured, args)) or any(is_complex(a) or type(a) is complex for a in args):
            return True
        return any(is_tensor(args[k]) for k in self.numbers if k < len(args))

    def prepared(self, args: tuple[Any, ...]) -> None:
        """Warn once, there, of each place that computes in double precision because Python's floats are doubles."""
        types = call_types(self.signature, args, repeated(self.signature, args))
        for widening in self.specializable.analysis(types, True).function.widenings:
            place = (widening.location, widening.text)
            message = f"{self.name} computes {widening.text} in double precision, {_COST}; {widening.instead}"
            tell(message, widening.location or Location(self.name, 1), place, self.told)

    def require_current(self) -> None:
        """Raise StateChanged where the kernel is another program by now: a graph that was made before asks for it."""
        before = self.captured
        if not self.holds() and self.kernel.program.captured.identity != before.identity:
            raise stale(self.name, before, self.signature.location)


class Kernel:
    """A compiled function. Call it like the function; `.py` is the function itself, and its meaning.

    Results are new tensors; arguments that the function writes are written in place. What the function reads from outside
    (globals, closure, helpers, their defaults) is what it is at each call: the values are a part of what is compiled.
    """

    def __init__(
        self,
        function: Callable[..., Any] | str,
        example: Mapping[str, Any] | None = None,
        told: set[Place] | None = None,
        tiles: Tiles = (),
    ) -> None:
        function = _written(function)
        self.tiles = tiles
        self.name = ANONYMOUS if function.__name__ == "<lambda>" else function.__name__
        self.py = function
        self.example: Mapping[str, Any] = dict(example or {})
        self.quick: Callable[..., Any] = never  # the quick way of the last calls
        self._ways = Ways()
        self._lock = threading.RLock()
        self._program: Program | None = None
        self._programs: dict[str, Program] = {}
        self._variants: dict[str, Kernel] = {}  # by how their arguments are built
        self.told: set[Place] = set() if told is None else told  # what was warned of
        self._variadic = bool(function.__code__.co_flags & inspect.CO_VARARGS)
        if self._variadic:  # a program for each number of arguments
            functools.update_wrapper(self, function)
            return
        with contextlib.suppress(SourceMismatch):  # of a helper that a module which is loaded again still has: it is told
            self._renewed().operator  # noqa: B018  now: torch.compile cannot register one while it traces a call
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<weft.Kernel {self.name}>"

    @property
    def program(self) -> Program:
        """The program that the function is now."""
        program = self._program
        return program if program is not None and program.holds() else self._renewed()

    @property
    def signature(self) -> Signature:
        return self.program.signature

    @property
    def specializable(self) -> Specializable:
        return self.program.specializable

    @property
    def operator(self) -> Operator:
        """The operator registered with PyTorch for what the function is now, in `torch.ops.weft`."""
        return self.program.operator

    def _renewed(self) -> Program:
        """The program for what is outside now, a new one where it never was so before."""
        function = plain_function(self.py)
        if function is None:
            raise UnsupportedSyntax(f"{self.py!r} is not a Python function", remedy="pass a function written with def")
        with self._lock:
            made = Program(self, deep(capture)(function), first=not self._programs)
            program = self._programs.setdefault(made.identity, made)
            if program is not made:
                program.watch(made.captured)
            elif len(self._programs) > _MOST_PROGRAMS:
                del self._programs[next(iter(self._programs))]
            elif len(self._programs) == _MANY_PROGRAMS:
                _warn_of_many(self, made.captured)
            if program is not self._program:
                self._forget()
                self._program = program
            return program

    def _defined(self) -> str:
        """The name of the operator of what the function is now, which has one afterwards, and witnesses."""
        program = self.program
        if program.witnesses is None:
            program.witnesses = witnesses(program.captured)
        tag_caches(program.identity)
        return program.operator.name

    _defined._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compile calls it and does not trace it

    def _variant_of(self, *kinds: str) -> str:
        """The text of the variant for arguments of these kinds in the place of numbers, which is made if it is not yet."""
        stand_ins: list[Any] = [TensorSpec("float32", ())] * self.program.arity
        for k, kind in zip(self.program.numbers, kinds, strict=True):
            stand_ins[k] = {"bool": False, "int": 0, "float": 0.0}.get(kind, stand_ins[k])
        made = self._variant(tuple(stand_ins), {}, self.program)
        assert made is not None
        if made.text not in self._variants:
            self._variants[made.text] = self._made(made)
        return made.text

    _variant_of._dynamo_marked_constant = True  # type: ignore[attr-defined]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            if self._variadic:
                return _uncompiled(self, args, kwargs)
            self._defined()
            program: Any = self._program
            for witness in program.witnesses:
                for value, then in zip(witness.read(), witness.values, strict=True):
                    if value != then:  # torch.compile guards what is asked here; that it is so says `_defined`
                        break
            if kwargs or len(args) != program.arity:
                args = _bound(program.signature, args, kwargs)
            for a in args:
                if is_structured(a) or isinstance(a, complex) or (isinstance(a, torch.Tensor) and a.is_complex()):
                    return _uncompiled(self, args, {})
            if program.numbers:
                kinds = [_kind_of(args[k]) for k in program.numbers]
                if "tensor" in kinds:
                    return self._variants[self._variant_of(*kinds)](*args)
            return program.operator(*gathered(program.signature, args))
        if not kwargs:
            try:
                made = self.quick(*args)
                if made is not MISS:
                    return made
            except TypeError:  # another number of arguments: told below
                pass
        if self._variadic:
            return self._special(args, kwargs, None)
        program = self.program
        if kwargs or len(args) != program.arity:
            args = _bound(program.signature, args, kwargs)
        for k in program.numbers:
            if isinstance(args[k], torch.Tensor):
                return self._special(args, {}, program)
        if not eager():
            return self._special(args, {}, program)
        # The next quickest, for plain tensors when nothing of PyTorch's wants to see the call: one look-up and go.
        key: list[Any] = [torch.get_default_dtype()]
        differentiable = False
        try:
            for a in args:
                kind = type(a)
                if kind in PLAIN:
                    if a.dtype in COMPLEX:
                        return self._special(args, {}, program)
                    address = a.data_ptr()
                    if not address and a.numel():  # a wrapper of a tensor, which the dispatcher knows
                        return _dispatched(program, args)
                    key += (a.dtype, a.shape, a.stride(), a.device, address & 31)
                    differentiable = differentiable or a.requires_grad
                elif kind is float:
                    key.append(float)
                elif kind is int or kind is bool:
                    key += (kind, a)
                else:
                    return self._special(args, {}, program)
        except RuntimeError:  # a tensor without strides or storage
            return _dispatched(program, args)
        if differentiable and torch.is_grad_enabled():
            executable = program.recorded(tuple(key), args)
            if executable is None:
                return _dispatched(program, args, recorded=True)
            recorder = executable.recorder(args, len(program.signature.results))
            made, way = executable.call(tuple(key), args).known(args, recorder)
        else:
            if program.signature.written:
                key += repeated(program.signature, args)
            made, way = program.call(tuple(key), args).known(args)
        self._remember(way)
        return made

    def _remember(self, way: Callable[..., Any]) -> None:
        with self._lock:
            self._ways.add(way)
            self.quick = self._ways.quick

    def _forget(self) -> None:
        with self._lock:
            self.quick, self._ways = never, Ways()

    def _special(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], program: Program | None) -> Any:
        """A call that PyTorch must see, or of a variant of the program. program: None where there are `*args`."""
        if program is not None and not program.has_variant(args):
            return _dispatched(program, args)
        made = self._variant(args, kwargs, program)
        if made is None:
            return _dispatched(program or self.program, args)
        kernel = self._variants.get(made.text)
        if kernel is None:
            kernel = self._made(made)
            _require_writable(kernel.signature, made)
            try:
                result = kernel(*made.leaves)
            except TypeMismatch as error:
                self._tell_of_kinds(args, error)
                raise
            if len(self._variants) >= _MOST_PROGRAMS:
                del self._variants[next(iter(self._variants))]
            self._variants[made.text] = kernel
        else:
            _require_writable(kernel.signature, made)
            result = kernel(*made.leaves)
        if made.complexes:
            return _as_given(result, kernel.signature, made)
        if len(made.leaves) == len(args) and all(a is b for a, b in zip(made.leaves, args, strict=True)):
            self.quick = kernel.quick  # which asks whether its arguments are tensors, and what the variant reads from outside
        return result

    def _variant(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], program: Program | None) -> Variant | None:
        return variant(self.py, self.name, None if program is None else program.signature, args, kwargs)

    def specific(self, args: tuple[Any, ...]) -> tuple[Kernel, tuple[Any, ...]]:
        """The kernel of a call with these arguments (none: the example's), and its own: tensors, specs of some, and numbers.
        It is another one where there are parts of the program among them, or tensors in the place of numbers; a text that
        describes a tensor or a number stands for it.
        """
        from weft.pytorch.inspection import complete

        if not args and not self._variadic and self.example:
            args = complete(self, args)
        if not args or not (self._variadic or self.program.has_variant(args)):
            return self, args
        read = read_structure(args)
        if not self._variadic and not self.program.has_variant(read):
            return self, args
        made = self._variant(read, {}, None if self._variadic else self.program)
        if made is None:
            return self, args
        return self._variants.get(made.text) or self._made(made), made.leaves

    def _made(self, made: Variant) -> Kernel:
        return Kernel(function_of(made, self.py), told=self.told)

    def _tell_of_kinds(self, args: tuple[Any, ...], error: TypeMismatch) -> None:
        """Raise what is wrong with the kinds of the arguments, where the program that they make has an error of types."""
        if self._variadic:
            return
        try:
            real = (0.0 if type(a) is complex else as_pairs(a) if is_complex(a) else a for a in args)
            argument_types(self.signature, tuple(real))
        except TypeMismatch as told:
            evidence = [*told.evidence, error.message]
            raise TypeMismatch(
                told.message, location=told.location, evidence=evidence, remedy=told.remedy
            ) from error

    def __reduce__(self) -> str:
        return self.py.__qualname__  # as functions do: by name, so that a copy is the kernel itself

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments in order, defaults filled in. Raises TypeMismatch."""
        if is_compiling():
            self._defined()  # which torch.compile does not trace
            program: Any = self._program
            return _bound(program.signature, args, kwargs)
        return _bound(self.signature, args, kwargs)

    # ---- looking inside

    def explain(self, *args: Any, format: str = "text", detail: bool = False) -> Explanation:
        """The class of each loop and the plan, for these arguments (tensors or specs): a text; a notebook shows the page.

        detail: also why, the dependences and their cycles, the transforms, the program that runs, remedies. format: "text",
        "mermaid" (the dependence graph) or "html" (a page with everything). Without arguments the kernel's example stands in.
        """
        from weft.pytorch.inspection import explain

        kernel, own = self.specific(args)
        return explain(kernel, own, format, detail)

    def source(self, *args: Any, arch: str | None = None) -> str:
        """The generated code: CUDA C++ for arch "sm_80", "sm_86", "sm_89" or "sm_90a", C++ for "cpu"; by default for
        what this machine has.
        """
        from weft.pytorch.inspection import source

        kernel, own = self.specific(args)
        return source(kernel, own, arch)

    def resources(self, *args: Any, arch: str | None = None) -> Any:
        """Registers, spills and shared memory of each kernel, from the compiler, for a CUDA architecture."""
        from weft.pytorch.inspection import resources

        kernel, own = self.specific(args)
        return resources(kernel, own, arch)

    def check(
        self, *args: Any, seeds: int = 1, arch: str = "sm_90a", tolerance: float | None = None, gradients: bool = False
    ) -> Report:
        """Execute on the CPU the CUDA that a call would launch, every thread and asynchronous copy of it, and hold the
        results against the plain Python; no GPU is needed.

        args: tensors (on any device; they are copied and never changed), specs such as "float32[64,1024]" (random
        tensors), numbers, and lists, None and strings as a call takes them; without any, the
        kernel's example. seeds: how many schedules of the threads to try. arch: one of
        "sm_80", "sm_86", "sm_89", "sm_90a". tolerance: how far an element may be off, of its magnitude; None takes 2e-5
        for float32, 1e-10 for float64, 2e-3 for float16, 1.6e-2 for bfloat16. gradients: check the kernels of the
        gradients too, for the tensors that require one, or for all of a float dtype if none does.

        Returns a report: `.ok`, `.findings` (races, accesses out of bounds, reads of what no one wrote, deadlocks, ...),
        `.comparisons`, and costs by line (sectors, bank conflicts); `print(report)`, `report.save("check.html")`. Raises
        the errors of a call; NotDifferentiable where gradients are asked of a kernel that has none.
        """
        from weft.pytorch.check import check_call

        kernel, own = self.specific(args)
        return check_call(kernel, own, seeds=seeds, arch=arch, tolerance=tolerance, gradients=gradients)

    def tune(self, *args: Any, gradients: bool = False, seconds: float = 0.2, progress: bool = True) -> Tuning:
        """Measure the plans that a call may take, on the GPU that there is, and have later calls take the fastest: of this
        device and of sizes up to the same powers of two, in this process and, from the disk cache, in others.

        args: tensors (they are copied and never changed), specs such as "float32[64,1024]" (random tensors), and numbers;
        without any, the kernel's example. gradients: also of the kernels of the gradients. seconds: how long each plan is
        measured, about. progress: show a progress bar. Sums and scans may round differently in another plan, which their
        order belongs to. `print` shows what is returned as a table: plan, time, GB/s, the part of the time that memory needs
        at the least, registers, spilled bytes; its chosen rows are those that later calls take.

        Raises DeviceMismatch where there is no GPU, and the errors of a call.
        """
        from weft.pytorch.tuning import tune_call

        kernel, own = self.specific(args)
        return tune_call(kernel, own, gradients=gradients, seconds=seconds, progress=progress)


@overload
def kernel(
    function: Callable[..., Any] | str, *, example: Mapping[str, Any] | None = None, tiles: Tiles = ()
) -> Kernel: ...
@overload
def kernel(
    function: None = None, *, example: Mapping[str, Any] | None = None, tiles: Tiles = ()
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(
    function: Callable[..., Any] | str | None = None, *, example: Mapping[str, Any] | None = None, tiles: Tiles = ()
) -> Kernel | Callable[[Callable[..., Any]], Kernel]:
    """Decorate a function whose loops weft compiles. (Or call it with one, or with the source text of one.)

    example: inputs that stand in where none are given, as `{"x": "float32[64,1024]", "eps": 1e-6}`. tiles: into how many parts
    the grid cuts axes of its arrays, or a block's turns do, as `[("w", 1, "grid", 8), ("x", 1, "turns", 4)]`: its nests are
    then one launch, whose blocks have these tiles, where that can be.
    """
    if function is None:
        return lambda f: Kernel(f, example, tiles=tuple(tiles))
    return Kernel(function, example, tiles=tuple(tiles))


def _written(value: Any) -> types.FunctionType:
    """The function that a kernel is made of: itself, a static method's, or what a source text defines."""
    if isinstance(value, str):
        return function_of_text(value)
    function = plain_function(value.__func__ if isinstance(value, staticmethod) else value)
    if function is not None:
        return function
    what = "a class method" if isinstance(value, classmethod) else repr(value)
    remedy = "pass a function written with def, or its source text"
    if isinstance(value, functools.partial):
        what, remedy = f"a partial of {value.func!r}", "write a lambda or a def that calls it"
    raise UnsupportedSyntax(f"{what} is not a Python function", remedy=remedy)


@_disable_dynamo  # as torch.compiler.disable, without loading the compiler now
def _uncompiled(kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A call outside of the graph that torch.compile makes: its program is not known while it traces."""
    return kernel._special(args, kwargs, None if kernel._variadic else kernel.program)


def _require_writable(signature: Signature, made: Variant) -> None:
    """Raise UnsupportedSyntax where a tensor is written that is lazily conjugate: what was passed for it is a copy."""
    for name, tensor in made.complexes:
        if name in signature.written and (tensor.is_conj() or tensor.is_neg()):
            raise UnsupportedSyntax(
                f"{name} is written, and is a lazily conjugate view",
                location=signature.location,
                remedy=f"pass {name}.resolve_conj(), or write into the tensor and conjugate it afterwards",
            )


def _as_given(result: Any, signature: Signature, made: Variant) -> Any:
    """What a kernel returned, with the tensors of complex numbers that it was passed where it returned these."""
    given = dict(made.complexes)
    items = list(result) if isinstance(result, (tuple, list)) else [result]
    found = [given.get(name or "", item) for name, item in zip(signature.results, items, strict=False)]
    found += items[len(found) :]
    return type(result)(found) if isinstance(result, (tuple, list)) else found[0]


def _kind_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, bool):
        return "bool"
    return "int" if isinstance(value, (int, torch.SymInt)) else "float"


def _dispatched(program: Program, args: tuple[Any, ...], recorded: bool = False) -> Any:
    """The call through PyTorch's dispatcher, which autograd, modes and transforms listen to. recorded: autograd alone does, and
    what gradients need of folds may be kept for them.
    """
    args = gathered(program.signature, tuple(map(plain, args)))
    types = argument_types(program.signature, args)
    if program.signature.written and forward_ad._current_level >= 0 and any(map(has_tangent, args)):
        raise NotDifferentiable(
            f"{program.name} writes in place, and a forward-mode derivative is asked for",
            location=program.signature.location,
            evidence=program.signature.evidence_of_writes(),
            remedy=program.signature.without_writes(),
        )
    keeping = program.keeping(types, args) if recorded else None
    made = program.operator(*args) if keeping is None else keeping.operator(*args)
    if keeping is not None:
        made = made[0] if len(program.signature.results) == 1 else made[: len(program.signature.results)]
    finish = finisher(program.specializable.analysis(types, True).function)
    return made if finish is None else finish(made)


def _bound(signature: Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments in order, defaults filled in. Raises TypeMismatch."""
    parameters = signature.parameters
    names = [p.name for p in parameters]
    twice = [n for n in kwargs if n in names[: len(args)]]
    unknown = [n for n in kwargs if n not in names]
    if len(args) > len(names) or twice or unknown:
        fact = f"given {len(args)} arguments by position"
        if twice or unknown:
            fact = f"{(twice or unknown)[0]!r} is {'given twice' if twice else 'no parameter'}"
        raise TypeMismatch(
            f"{signature.name} takes ({', '.join(names)})",
            location=signature.location,
            evidence=[fact],
            remedy="pass each parameter once",
        )
    bound = list(args)
    for p in parameters[len(args) :]:
        if p.name in kwargs:
            bound.append(kwargs[p.name])
        elif p.has_default:
            bound.append(p.default)
        else:
            raise TypeMismatch(
                f"{signature.name} needs its argument {p.name!r}",
                location=signature.location,
                evidence=[f"its parameters are ({', '.join(names)})"],
                remedy=f"pass {p.name}" if names[0] != "self" else
                "make it a static method, and pass what it reads of self as arguments",
            )
    return tuple(bound)


def _warn_of_many(kernel: Kernel, captured: Capture) -> None:
    first = next(iter(kernel._programs.values())).captured
    labels = first.changed() or captured.changed()
    warnings.warn(
        f"{kernel.name} has been compiled for {_MANY_PROGRAMS} values of {', '.join(labels) or 'what it reads'}, which it "
        "reads from outside; pass as an argument what changes from call to call",
        RuntimeWarning,
        stacklevel=4,
    )
