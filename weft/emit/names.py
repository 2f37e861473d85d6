"""Names of generated C++ and CUDA: the user's own wherever they can be, and none that C++ or its headers give a meaning."""

from __future__ import annotations

import re


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Keywords, what generated code spells without `weft::`, and the macros of the headers that do not look like macros.
_RESERVED = words(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
    concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype default delete do
    double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace
    new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return
    short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef
    typeid typename typeof union unsigned using virtual void volatile wchar_t while xor xor_eq
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t std weft weft_slot
    threadIdx blockIdx blockDim gridDim warpSize
    alloca assert errno fpclassify i386 iseqsig isfinite isgreater isgreaterequal isinf isless islessequal islessgreater
    isnan isnormal issignaling issubnormal isunordered iszero linux major makedev math_errhandling minor noreturn offsetof
    signbit stderr stdin stdout strdupa strndupa unix va_arg va_copy va_end va_list va_start
    be16toh be32toh be64toh htobe16 htobe32 htobe64 htole16 htole32 htole64 le16toh le32toh le64toh
    """
)
# Functions that CUDA declares as C's: those of mathematics, which have a twin for floats, and others.
_MATHEMATICS = words(
    """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc erfcinv erfcx
    erfinv exp exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint
    llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter norm norm3d norm4d normcdf normcdfinv pow powi
    rcbrt remainder remquo rhypot rint rnorm rnorm3d rnorm4d round rsqrt scalbln scalbn sin sincos sincospi sinh sinpi sqrt tan
    tanh tanpi tgamma trunc y0 y1 yn
    """
)
_FUNCTIONS = _MATHEMATICS | {f"{name}f" for name in _MATHEMATICS} | words(
    """
    abs labs llabs min max umin umax llmin llmax ullmin ullmax finite isinf isnan signbit printf vprintf malloc free memcpy
    memmove memset main clock clock64 trap brkpt div ldiv lldiv
    """
)
_AS_MACROS = re.compile(r"[A-Z][A-Z0-9_]")  # how names of macros begin
_OF_THE_COMPILER = re.compile(r"_[A-Z_]")  # and those that compilers keep for themselves


def identifier(name: str) -> str:
    """A C++ identifier for a Python or SSA name: itself where it can be."""
    text = "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"_u{ord(c):x}" for c in name.replace(".", "_"))
    if text in _RESERVED or _AS_MACROS.match(text):
        return text + "_"
    return "v" + text if _OF_THE_COMPILER.match(text) or not text[:1].isidentifier() else text


def host_entry(nest: str) -> str:
    """The name of a nest's C++ function: it stands beside all that C's library defines."""
    return f"weft_{identifier(nest)}"


def kernel_entry(nest: str) -> str:
    """The name of a nest's CUDA kernel: C++ has no other function of that name that is C's."""
    name = identifier(nest)
    return f"{name}_kernel" if name in _FUNCTIONS else name


class Names:
    """C++ identifiers, unique in their unit."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._taken = set(taken)

    def fresh(self, wanted: str) -> str:
        name = identifier(wanted)
        number = 2
        while name in self._taken:
            name = f"{identifier(wanted)}_{number}"
            number += 1
        self._taken.add(name)
        return name
