"""Products: a layout repeated, the repetitions laid out by another."""

from __future__ import annotations

from typing import Any

from weft.layout.complement import complement
from weft.layout.compose import compose
from weft.layout.errors import LayoutError
from weft.layout.layout import Layout, concatenate
from weft.layout.predicates import collision, is_injective
from weft.layout.swizzle import Kind, behind
from weft.layout.tilers import as_tiler, by_mode, unzip
from weft.layout.tuples import show


def logical_product(block: Kind, tiler: Any) -> Kind:
    """(block, copies): at (i, j) element i of the copy that `tiler` places at j; no two copies overlap.

    tiler: a layout of copies; an int n for n copies side by side; or a tuple of these for the modes of the block, None
    leaving a mode as it is. Injective if block and tiler are. Raises LayoutError where copies of the block cannot fill
    an interval (see complement), where those that the tiler picks are no layout, and where copies would overlap.
    """
    return behind(block, lambda inner: _logical(inner, tiler))


def zipped_product(block: Kind, tiler: Any) -> Kind:
    """((block, ...), (copies, ...)): logical_product with the parts within blocks gathered first."""
    return behind(block, lambda inner: concatenate(*_zipped(inner, tiler)))


def tiled_product(block: Kind, tiler: Any) -> Kind:
    """((block, ...), copies, ...)."""

    def operation(inner: Layout) -> Layout:
        parts, copies = _zipped(inner, tiler)
        return concatenate(parts, *copies)

    return behind(block, operation)


def flat_product(block: Kind, tiler: Any) -> Kind:
    """(block, ..., copies, ...)."""

    def operation(inner: Layout) -> Layout:
        parts, copies = _zipped(inner, tiler)
        return concatenate(*parts, *copies)

    return behind(block, operation)


def blocked_product(block: Kind, tiler: Any) -> Kind:
    """((block_0, copies_0), (block_1, copies_1), ...): a matrix of whole blocks, mode by mode."""
    return behind(block, lambda inner: _interleaved(inner, tiler, raked=False))


def raked_product(block: Kind, tiler: Any) -> Kind:
    """((copies_0, block_0), (copies_1, block_1), ...): neighbours are of different copies, a block is spread out."""
    return behind(block, lambda inner: _interleaved(inner, tiler, raked=True))


def _logical(block: Layout, tiler: Any) -> Layout:
    if isinstance(tiler, (tuple, list)):
        return _by_mode(block, tuple(tiler))
    tiler = as_tiler(tiler, "logical_product")
    if any(d < 0 for d in tiler.flat_stride if d != 0):
        raise LayoutError(f"{tiler} places copies before the block itself", operation="logical_product")
    return concatenate(block, compose(complement(block, block.size() * tiler.cosize()), tiler))


def _by_mode(block: Layout, tilers: tuple[Any, ...]) -> Layout:
    """Each mode repeated by its tiler. Copies of one mode may fall on another mode: that is refused."""
    result = by_mode(block, tilers, _logical, "logical_product")
    if is_injective(block) and all(map(is_injective, result)) and (twice := collision(result)) is not None:
        raise LayoutError(
            f"copies of one mode of {block} fall on another: {show(twice[0])} and {show(twice[1])} have the same value",
            operation="logical_product",
            witness=twice,
            expected=result(twice[0]),
            found=result(twice[1]),
            remedy="repeat the block as a whole, or space its modes out",
        )
    return result


def _zipped(block: Layout, tiler: Any) -> tuple[Layout, Layout]:
    return unzip(_logical(block, tiler), tiler, 0)


def _interleaved(block: Layout, tiler: Any, *, raked: bool) -> Layout:
    tiler = as_tiler(tiler, "raked_product" if raked else "blocked_product")
    rank = max(block.rank(), tiler.rank())
    one = Layout(1, 0)
    padded = [concatenate(*x, *[one] * (rank - x.rank())) for x in (block, tiler)]
    inner, outer = _logical(padded[0], padded[1])
    pairs = zip(outer, inner, strict=True) if raked else zip(inner, outer, strict=True)
    return concatenate(*[concatenate(*pair) for pair in pairs])
