"""What products take where more is known of a factor: it selects, has zeros, or is the other one transposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from hloopt.analysis.matrix_properties import NOTHING, Matrices, MatrixProperties
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.linear_algebra.blocks import BlockSide, block_plan, parts_of
from hloopt.linear_algebra.nodes import PlanNode, Use
from hloopt.linear_algebra.prices import AlgebraPrices
from hloopt.linear_algebra.selections import selecting_rules, selection

__all__ = ["KnownProducts"]


@dataclass(frozen=True)
class _Sides:
    """The indices of a product of two: of both and kept, of one each, and the one that is summed."""

    batch: tuple[int, ...]
    free: tuple[tuple[int, ...], tuple[int, ...]]
    depth: int


class KnownProducts:
    """Seconds and flops of products as they will be written, where less than what any matrices take."""

    def __init__(self, matrices: Matrices, prices: AlgebraPrices) -> None:
        self._matrices = matrices
        self._prices = prices
        self._dots: dict[Instruction, tuple[float, int] | None] = {}

    def of_dot(self, dot: Instruction) -> tuple[float, int] | None:
        """Of an instruction."""
        if dot not in self._dots:
            self._dots[dot] = self._of_dot(dot)
        return self._dots[dot]

    def _of_dot(self, dot: Instruction) -> tuple[float, int] | None:
        chosen = selection(dot, self._matrices, self._prices)
        if chosen is not None:
            return chosen.seconds[1], chosen.way.flops
        plan = block_plan(dot, self._matrices, self._prices)
        return None if plan is None else (plan.whole.seconds, plan.whole.flops)

    def of_parts(
        self, parts: Sequence[Use], kept: Sequence[int], sizes: Mapping[int, int]
    ) -> tuple[float, int] | None:
        """Of two parts of a plan, of whose indices some are kept; ``sizes`` are those of all."""
        known = [self._of_leaf(part.node) for part in parts]
        is_square = parts[0].node is parts[1].node
        if known == [NOTHING, NOTHING] and not is_square:
            return None
        sides = _sides(parts, kept)
        if sides is None:
            return None
        ways = (self._selected(parts, at, known[at], sides, sizes) for at in (0, 1))
        selected = [way for way in ways if way is not None]
        if selected:
            return min(selected)
        if any(len(free) != 1 for free in sides.free):
            return None
        one, other = (
            BlockSide(part.names.index(free[0]), part.names.index(sides.depth), side)
            for part, free, side in zip(parts, sides.free, known, strict=True)
        )
        rows, columns = (sizes[free[0]] for free in sides.free)
        # Their own indices are the same, in the same places.
        is_symmetric = is_square and (one.free, one.depth) == (other.free, other.depth)
        batch = prod(sizes[name] for name in sides.batch)
        whole = parts_of(
            (batch, rows, columns, sizes[sides.depth]),
            (one, other),
            self._prices,
            is_symmetric=is_symmetric,
        )
        return None if whole is None else (whole.seconds, whole.flops)

    def _of_leaf(self, node: PlanNode) -> MatrixProperties:
        """Of a whole instruction, each of whose dimensions is one index."""
        if node.value is None or any(node.cuts) or node.value.array.dims != node.sizes:
            return NOTHING
        return self._matrices.of(node.value)

    def _selected(
        self,
        parts: Sequence[Use],
        at: int,
        known: MatrixProperties,
        sides: _Sides,
        sizes: Mapping[int, int],
    ) -> tuple[float, int] | None:
        if known is NOTHING or sides.batch or len(parts[at].names) != 2:
            return None
        (free,) = sides.free[at]
        columns = prod(sizes[name] for name in sides.free[1 - at])
        rows, size = sizes[free], sizes[sides.depth]
        place = parts[at].names.index(free)
        given = (1, rows, size, columns)
        ways = selecting_rules(known, ((), (place,), (1 - place,)), given, self._prices)
        least = min(((way.seconds, way.flops) for way in ways), default=None)
        if least is None or least[0] >= self._prices.matrix_product(1, rows, columns, size):
            return None
        return least


def _sides(parts: Sequence[Use], kept: Sequence[int]) -> _Sides | None:
    """None where more than one index is summed, or one of a single part."""
    one, other = (dict.fromkeys(part.names) for part in parts)
    if any(len(names) != len(part.names) for names, part in zip((one, other), parts, strict=True)):
        return None
    shared = [name for name in one if name in other]
    summed = [name for name in shared if name not in kept]
    free = (
        tuple(name for name in one if name not in other),
        tuple(name for name in other if name not in one),
    )
    if len(summed) != 1 or not all(name in kept for names in free for name in names):
        return None
    return _Sides(tuple(name for name in shared if name in kept), free, summed[0])
