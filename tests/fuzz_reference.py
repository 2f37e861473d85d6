"""The plain Python of programs of many dtypes, run by weft's rules of meaning: arithmetic in op-math types, rounding at stores.

float16 and bfloat16 tensors are held as float32 ones whose stores round: types promote to the same op-math types then. They
and their elements know their own type, to which PyTorch rounds the integers and the compared numbers that they meet. Where
weft gives something else, the program is run again with all floats in double precision and rounding stores, and with noise:
elements that differ between these hang on rounding, and nothing is asked of them.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch

from tests.fuzz_mixed import Input, MixedProgram, category
from tests.fuzz_programs import compiled
from weft.errors import WeftError

# What a result may differ by, of the largest number among the results: sums are added up in other orders.
_TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 2e-5, torch.bfloat16: 2e-5}
_ULPS = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}  # of its own size, where what is stored was rounded before
_OPMATH = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
_DOUBLE = {dtype: torch.float64 for dtype in (torch.float16, torch.bfloat16, torch.float32)}


# ---------------------------------------------------------------- arguments


def arguments(program: MixedProgram, sizes: dict[str, int], seed: int) -> list[Any]:
    """Arguments for the sizes n and m, in the order of the parameters; the same seed gives the same values."""
    generator = torch.Generator().manual_seed(7919 * program.seed + seed)
    choose = random.Random(7919 * program.seed + seed)
    special = program.seed % 10 == 3
    given: dict[str, Any] = {}
    for made in program.inputs:
        shape = [sizes[a] for a in made.axes]
        if not made.storage:
            given[made.name] = _values(made, shape, sizes, generator, special)
    for made in program.inputs:
        if not made.storage:
            continue
        first, how = made.storage.split()
        count = sizes[made.axes[0]]
        if how == "same":
            given[made.name] = given[first]
            continue
        base = _values(made, [2 * count + 1], sizes, generator, special)
        if how == "odd":
            given[first], given[made.name] = base[: 2 * count : 2], base[1 : 2 * count + 1 : 2]
        else:
            given[first], given[made.name] = base[:count], base[1 : count + 1]
    given |= {"alpha": 0.75, "q": choose.randrange(5), "flag": choose.random() < 0.5}
    return [given[name] for name in program.parameters]


def _values(
    made: Input, shape: list[int], sizes: dict[str, int], generator: torch.Generator, special: bool
) -> torch.Tensor:
    dtype = getattr(torch, made.dtype)
    if made.values.startswith(("index", "signed")):
        size = sizes[made.values.split()[1]]
        low = -size if made.values.startswith("signed") else 0
        return torch.randint(low, size, shape, generator=generator).to(dtype) if size else torch.zeros(shape, dtype=dtype)
    kind = category(made.dtype)
    if kind == "bool":
        return torch.rand(shape, generator=generator) < 0.5
    if kind == "int":
        bounds = torch.iinfo(dtype)
        low, high = (0, 9) if made.dtype == "uint8" else (-6, 7)
        if made.values == "wide":
            low, high = max(bounds.min, -(1 << 40)), min(bounds.max, 1 << 40) + 1
        return torch.randint(low, high, shape, generator=generator).to(dtype)
    step = {"bfloat16": 64, "float16": 256}.get(made.dtype, 64)
    out = (torch.randint(-2 * step, 2 * step + 1, shape, generator=generator) / step).to(dtype)
    few = torch.rand(shape, generator=generator)
    out[few < 0.1] = 0.0
    if special:
        for k, value in enumerate((math.nan, math.inf, -math.inf, -0.0)):
            out[(0.1 + 0.04 * k <= few) & (few < 0.14 + 0.04 * k)] = value
    return out


def duplicate(args: Sequence[Any], device: str = "cpu") -> list[Any]:
    """The arguments with storage of their own, shared as it was."""
    copies: dict[int, torch.Tensor] = {}

    def copied(a: torch.Tensor) -> torch.Tensor:
        storage = a.untyped_storage()
        if storage.data_ptr() not in copies:
            flat = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
            copies[storage.data_ptr()] = flat.to(device, copy=True)
        own = copies[storage.data_ptr()].untyped_storage()
        return torch.empty(0, dtype=a.dtype, device=device).set_(own, a.storage_offset(), a.shape, a.stride())

    def own(a: Any) -> Any:
        if not isinstance(a, torch.Tensor):
            return a
        return copied(a) if a.numel() else a.to(device, copy=True)

    return [own(a) for a in args]


# ---------------------------------------------------------------- tensors whose stores round


class _Wider(torch.Tensor):
    """A tensor held in a wider type than its own, `dtype`."""

    nominal: torch.dtype

    @classmethod
    def holding(cls, held: torch.Tensor, nominal: torch.dtype) -> Self:
        made: Self = torch.Tensor._make_subclass(cls, held)  # type: ignore[assignment]
        made.nominal = nominal
        return made

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        return self.nominal


class Rounded(_Wider):
    """One to whose own type what is stored is rounded. Operators alone know that type: what else is computed with it is a plain
    tensor.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl

    @property
    def held(self) -> torch.dtype:
        return torch.Tensor.dtype.__get__(self)  # type: ignore[attr-defined,no-any-return]

    def __getitem__(self, key: Any) -> torch.Tensor:
        part = torch.Tensor.__getitem__(self, key)
        return Rounded.holding(part, self.nominal) if part.dim() else Element.of(part, self.nominal)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            value = torch.Tensor.to(plain(value), self.nominal)
        else:
            value = torch.full((), value, dtype=self.nominal)
        torch.Tensor.__setitem__(self, key, torch.Tensor.to(value, self.held))

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (self[i] for i in range(self.shape[0]))

    def clone(self) -> Rounded:  # type: ignore[override]
        return Rounded.holding(torch.Tensor.clone(self), self.nominal)


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_BY_ELEMENTS = ("mul", "div", "truediv", "floordiv", "floor_divide", "true_divide")  # what is at their right stays as it is
_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_IN_PLACE = {f"i{name}": name for name in (*_OPERATORS, "div")}


class Element(_Wider):
    """An element of float16 or bfloat16. What is computed with such elements and tensors, integers and numbers is one too,
    though not rounded: arithmetic runs in op-math types.
    """

    @staticmethod
    def of(held: torch.Tensor, nominal: torch.dtype) -> torch.Tensor:
        """Itself where the type is no half."""
        return Element.holding(held, nominal) if nominal in _OPMATH else held

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Sequence[Any] = (), options: dict[str, Any] | None = None
    ) -> Any:
        return _computed(function, args, options or {})


def _computed(function: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """What a function gives for what is held, with integers rounded to the half type that is computed in."""
    name = getattr(function, "__name__", "").strip("_")
    in_place, name = name in _IN_PLACE, _IN_PLACE.get(name, name)
    floats = [(a.dtype, plain(a)) for a in args if isinstance(a, torch.Tensor) and plain(a).is_floating_point()]
    most = max((a.dim() > 0 for _, a in floats), default=False)  # tensors with dimensions outweigh those without
    types = {dtype for dtype, a in floats if (a.dim() > 0) == most}
    common = types.pop() if len(types) == 1 else torch.float32  # as of float16 and bfloat16
    half = common if common in _OPMATH else None

    def operand(k: int, value: Any) -> Any:
        if isinstance(value, _Wider):
            return plain(value)
        kept = half is None or name in ("getitem", "setitem") or (in_place and k == 0) or isinstance(value, bool)
        if kept or not isinstance(value, int | float | torch.Tensor):
            return value
        if not isinstance(value, torch.Tensor):
            return float(torch.tensor(float(value)).to(half)) if name in _COMPARISONS else value
        kept = value.is_floating_point() or value.dtype == torch.bool or (name in _BY_ELEMENTS and k == 1 and not value.dim())
        return value if kept else value.to(half).to(held)

    held = next(plain(a).dtype for a in args if isinstance(a, _Wider))
    with torch._C.DisableTorchFunctionSubclass():
        result = function(*(operand(k, a) for k, a in enumerate(args)), **options)
    if half is None or not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return result
    return Element.of(result, half)


def _operator(name: str) -> Callable[[torch.Tensor, Any], Any]:
    function = getattr(operator, name.removeprefix("r") if name in _REFLECTED else name)
    return lambda own, other: _computed(function, (other, own) if name in _REFLECTED else (own, other), {})


_REFLECTED = tuple(f"r{name}" for name in _OPERATORS)
for _name in (*_OPERATORS, *_REFLECTED, *(f"i{name}" for name in _OPERATORS), *_COMPARISONS):
    setattr(Rounded, f"__{_name}__", _operator(_name))


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """What holds an element, or a tensor."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor) if isinstance(tensor, _Wider) else tensor


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    """What PyTorch makes of an integer's element beside a float."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _Torch:
    """torch, whose new tensors of these dtypes are held in wider ones."""

    def __init__(self, wider: dict[torch.dtype, torch.dtype]) -> None:
        self._wider = wider

    def __getattr__(self, name: str) -> Any:
        own = getattr(torch, name)

        def make(*args: Any, **options: Any) -> torch.Tensor:
            with _default(torch.float32):
                tensor: torch.Tensor = own(*args, **options)
            return tensor

        if name in ("zeros_like", "ones_like", "empty_like"):
            return lambda x: self._held(make(torch.empty(x.shape, dtype=x.dtype)))
        if name in ("zeros", "ones", "full", "empty"):
            return lambda *args, **options: self._held(make(*args, **options))
        return own

    def _held(self, tensor: torch.Tensor) -> torch.Tensor:
        wide = self._wider.get(tensor.dtype)
        return tensor if wide is None else Rounded.holding(tensor.to(wide), tensor.dtype)


def _widened(args: Sequence[Any], wider: dict[torch.dtype, torch.dtype], noise: float) -> list[Any]:
    """The arguments, held as the reference holds them."""
    storages: dict[int, torch.Tensor] = {}
    generator = torch.Generator().manual_seed(1)

    def held(a: torch.Tensor) -> torch.Tensor:
        wide = wider.get(a.dtype, a.dtype)
        if not a.numel():
            return Rounded.holding(a.to(wide), a.dtype) if wide != a.dtype else a.clone()
        storage = a.untyped_storage()
        if storage.data_ptr() not in storages:
            flat = torch.empty(0, dtype=a.dtype).set_(storage, 0, (storage.nbytes() // a.element_size(),), (1,))
            flat = flat.to(wide, copy=True)
            if noise and flat.is_floating_point():
                size = noise if a.dtype != torch.float64 else 1e-7 * noise
                flat *= 1 + size * torch.randn(flat.shape, dtype=torch.float64, generator=generator).to(wide)
            storages[storage.data_ptr()] = flat
        own = storages[storage.data_ptr()].as_strided(a.shape, a.stride(), a.storage_offset())
        return own if wide == a.dtype else Rounded.holding(own, a.dtype)

    return [held(a) if isinstance(a, torch.Tensor) else a for a in args]


# ---------------------------------------------------------------- what is expected


def run(
    program: MixedProgram, args: Sequence[Any], wider: dict[torch.dtype, torch.dtype] = _OPMATH, noise: float = 0.0
) -> tuple[torch.Tensor, ...]:
    """The results, and the tensors among the arguments afterwards, of the dtypes that they are of. Raises what Python does."""
    function = compiled(program.source, f"<program {program.seed}>", {"torch": _Torch(wider)})
    own = _widened(args, wider, noise)
    with _default(wider.get(torch.float32, torch.float32)):
        made = function(*own)
    results = made if isinstance(made, tuple) else (made,)
    everything = (*results, *(a for a in own if isinstance(a, torch.Tensor)))
    return tuple(torch.Tensor.to(plain(t), t.dtype) if isinstance(t, torch.Tensor) else number(t) for t in everything)


def number(value: bool | int | float) -> torch.Tensor:
    """A number of Python's as a tensor."""
    return torch.tensor(value, dtype={bool: torch.bool, int: torch.int64, float: torch.float64}[type(value)])


def failure(error: Exception) -> type[Exception] | None:
    """The class of what weft must raise as well where Python raised this; None where nothing is asked of weft."""
    if isinstance(error, (IndexError, ZeroDivisionError, OverflowError)) or type(error) is ValueError:
        return type(error)
    if isinstance(error, RuntimeError) and "ZeroDivisionError" in str(error):
        return ZeroDivisionError
    if isinstance(error, RuntimeError) and "without overflow" in str(error):
        return Exception
    return None


def difference(
    program: MixedProgram, args: Sequence[Any], want: tuple[torch.Tensor, ...], found: Sequence[torch.Tensor]
) -> str | None:
    """Where results differ by more than rounding, in words."""
    if len(found) != len(want):
        return f"{len(found)} outputs, not {len(want)}"
    for k, (value, got) in enumerate(zip(want, found, strict=True)):
        if value.shape != got.shape or value.dtype != got.dtype:
            return f"output {k} is {got.dtype} {list(got.shape)}, not {value.dtype} {list(value.shape)}"
    exact = not any(sign in program.source for sign in (" / (", "math.", "/ 3", "// 0.75", "% 1.5"))
    wrong = _wrong(want, found, exact)
    if not any(bool(w.any()) for w in wrong):
        return None
    try:
        double, single = run(program, args, _DOUBLE), run(program, args)  # one of them is what was wanted
        others = [double, single]
        rounded = [not bool(_same(a, b).all()) for a, b in zip(single, double, strict=True)]
        if any(a.dtype == torch.float32 for a in args if isinstance(a, torch.Tensor)) or "float32" in program.source:
            rounded = [r or (v.dtype == torch.float64 and _meets_elements(program)) for r, v in zip(rounded, want, strict=True)]
        if any(rounded):  # to float32 on the way, whatever they are stored as
            wrong = [w & u for w, u in zip(wrong, _wrong(want, found, exact, rounded), strict=True)]
        if not exact or any(rounded):
            others += [run(program, args, _DOUBLE, noise) for noise in (1e-6, -3e-6)]
    except (ArithmeticError, ValueError, RuntimeError, IndexError):
        return None  # rounding decides whether it fails
    for other in others:
        wrong = [w & ~u for w, u in zip(wrong, _wrong(want, other, True), strict=True)]
    for k, (value, got, w) in enumerate(zip(want, found, wrong, strict=True)):
        places = w.nonzero()
        if len(places):
            at = tuple(places[0].tolist())
            place = f"output {k} ({str(value.dtype).removeprefix('torch.')}) at {list(at)}"
            return f"{place}: {got[at].item()}, the Python gives {value[at].item()} ({len(places)} differ)"
    return None


def _meets_elements(program: MixedProgram) -> bool:
    """Whether a name is a Python number on one path and made of an element on another, which it is then taken for."""
    kinds: dict[str, set[bool]] = {}
    for node in ast.walk(ast.parse(program.source)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            of_elements = any(isinstance(n, ast.Subscript) for n in ast.walk(node.value))
            kinds.setdefault(node.targets[0].id, set()).add(of_elements)
    return any(len(own) > 1 for own in kinds.values())


def _wrong(
    want: Sequence[torch.Tensor], found: Sequence[torch.Tensor], exact: bool, rounded: Sequence[bool] = ()
) -> list[torch.Tensor]:
    """The elements that differ by more than rounding. What overflows may be an infinity or a NaN. rounded: the results that
    float32 numbers go into.
    """
    finite = [float(v[v.isfinite()].abs().max()) for v in want if v.is_floating_point() and v.isfinite().any()]
    scale = max([1.0, *finite])
    out = []
    for value, got, single in itertools.zip_longest(want, found, rounded, fillvalue=False):
        good = _same(value, got)
        if value.is_floating_point():
            a, b = value.double(), got.double()
            relative = _TOLERANCES[torch.float32 if single else value.dtype]
            tolerance = relative * scale + (0.0 if exact else _ULPS.get(value.dtype, 0.0)) * a.abs()
            good = good | ((a - b).abs() <= tolerance) | ~(a.isfinite() | b.isfinite())
        out.append(~good)
    return out


def _same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a == b) | ((a != a) & (b != b))


def check(
    program: MixedProgram,
    sizes: Sequence[dict[str, int]],
    runner: Callable[[list[Any]], tuple[torch.Tensor, ...]],
    device: str = "cpu",
    double: bool = False,
) -> tuple[str, WeftError | None]:
    """What became of the runs of a program: "" where weft is right, what is wrong in words, or its refusal; "skipped" where
    the Python has no meaning at any of the sizes.

    runner: takes arguments of its own, gives the results and the tensors among the arguments. double: it computes all floats
    in double precision, and what Python raises is not asked of it.
    """
    asked = False
    for k, size in enumerate(sizes):
        args = arguments(program, size, k)
        error: Exception | None = None
        want: tuple[torch.Tensor, ...] = ()
        try:
            want = run(program, args, _DOUBLE if double else _OPMATH)
        except Exception as raised:  # whatever the Python raises
            error = raised
        must = None if error is None else failure(error)
        if error is not None and (must is None or double or device != "cpu"):
            continue  # on a device the trap that there might be ends all that the process does with it
        try:
            found = runner(duplicate(args, device))
        except WeftError as refusal:
            if must is not None and isinstance(refusal, must):
                asked = True
                continue
            if refusal.location is None or not refusal.remedy:
                return f"an error without location or remedy: {type(refusal).__name__}: {refusal}", None
            return "", refusal
        except Exception as raised:
            if must is not None and isinstance(raised, must):
                asked = True
                continue
            return f"{type(raised).__name__}: {raised}, at {size}", None
        if error is not None:
            if isinstance(error, IndexError) and 0 in size.values():
                continue  # torch looks at the subscripts of slices without elements
            return f"the Python raises {type(error).__name__} ({error}) at {size}, weft nothing", None
        asked = True
        wrong = difference(program, args, want, found)
        if wrong is not None:
            return f"{wrong}, at {size}", None
    return ("" if asked else "skipped"), None
