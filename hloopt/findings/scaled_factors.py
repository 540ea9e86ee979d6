"""Products of a large factor that is scaled first, where the result or the other factor has fewer elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module, build
from hloopt.passes.expand.writer import Writer
from hloopt.rewrite.site import sites
from hloopt.types import Dims, DotDims

__all__ = ["before_products"]

_FEWER: Final = 2
"""How many times fewer elements are scaled at least."""
_LEAST: Final = 1 << 16
"""Elements of a factor from which on scaling it is worth a word."""


@dataclass(frozen=True)
class _Scaled:
    """A factor of a product that is another array times, or divided by, a smaller one.

    side    which factor it is; ``moved`` whether the other is to be scaled, else the result
    opcode  ``multiply`` or ``divide``
    plain   what is scaled
    scale   by what; ``dims`` are the dimensions of what is to be scaled that its own are
    """

    dot: Instruction
    side: int
    opcode: str
    plain: Instruction
    scale: Instruction
    moved: bool
    dims: Dims

    @property
    def factor(self) -> Instruction:
        """The factor as the product reads it."""
        return self.dot.operands[self.side]

    @property
    def instead(self) -> Instruction:
        """What is to be scaled."""
        return self.dot.operands[1 - self.side] if self.moved else self.dot


def before_products(subject: Subject) -> Iterator[FindingCandidate]:
    """Factors scaled along dimensions that the result, or the other factor, has as well."""
    if is_planned(subject.module):
        return
    for dot in sites(subject.module, "dot"):
        for side in (0, 1):
            found = _scaled(dot, side)
            if found is not None:
                yield _candidate(found)


def _scaled(dot: Instruction, side: int) -> _Scaled | None:
    factor = dot.operands[side]
    product = factor.operands[0] if factor.opcode == "convert" else factor
    if product.opcode not in ("multiply", "divide") or factor.array.elements < _LEAST:
        return None
    if not all(one.array.dtype.is_float for one in (product, factor, dot, *dot.operands)):
        return None
    pairs = [product.operands, product.operands[::-1]][: 2 if product.opcode == "multiply" else 1]
    for plain, spread in pairs:
        if spread.opcode != "broadcast" or plain.opcode == "broadcast":
            continue
        place = _place(dot, side, spread.dimensions)
        if place is not None:
            moved, dims = place
            return _Scaled(dot, side, product.opcode, plain, spread.operands[0], moved, dims)
    return None


def _place(dot: Instruction, side: int, along: Dims) -> tuple[bool, Dims] | None:
    """Whether to scale the other factor, and where; None where neither has these dimensions or is smaller."""
    dims = DotDims.of(dot.attributes)
    factor, other = dot.operands[side], dot.operands[1 - side]
    places = dims.places(*(operand.array.rank for operand in dot.operands))[side]
    if all(dim in places for dim in along):
        moved, found = False, tuple(places[dim] for dim in along)
    else:
        sides = (dims.lhs_batch + dims.lhs_contracting, dims.rhs_batch + dims.rhs_contracting)
        both = dict(zip(sides[side], sides[1 - side], strict=True))
        if not all(dim in both for dim in along):
            return None
        moved, found = True, tuple(both[dim] for dim in along)
    scaled = other if moved else dot
    # Dimensions in another order would have to be transposed.
    if _FEWER * prod(scaled.array.dims) > prod(factor.array.dims) or list(found) != sorted(found):
        return None
    return moved, found


def _candidate(found: _Scaled) -> FindingCandidate:
    dot, factor = found.dot, found.factor
    sign = "*" if found.opcode == "multiply" else "/"
    what = f"its other factor %{found.instead.name}" if found.moved else "its result"
    text = f"scale the result: (x @ w) {sign} s for x @ (w {sign} s)"
    if found.moved:
        text = f"scale the other factor: (x {sign} s) @ w for x @ (w {sign} s[:, None])"
    return FindingCandidate(
        (dot,),
        f"%{dot.name} reads %{factor.name}, which is %{found.plain.name} scaled by %{found.scale.name}: "
        f"{factor.array.elements:,} elements are scaled before the product, where {what} has "
        f"{found.instead.array.elements:,}.",
        (
            FindingRemedy(
                "model",
                f"{text}, which rounds in another order; weights stay as narrow as they are stored until "
                "the product reads them",
            ),
        ),
        partial(_behind, side=found.side),
        (factor,),
    )


def _behind(module: Module, places: Sequence[Instruction], side: int) -> bool:
    found = _scaled(places[0], side)
    if found is None:
        return False
    dot = found.dot
    write = Writer.before(dot)
    plain = write.term(found.plain).convert(found.factor.array.dtype)
    instead = found.instead.array
    scale = write.term(found.scale).convert(instead.dtype).broadcast(instead, *found.dims)
    operands = [write.term(operand) for operand in dot.operands]
    operands[found.side] = plain
    if found.moved:
        other = operands[1 - found.side]
        operands[1 - found.side] = other.binary(found.opcode, scale)
    made = write.term(build.clone(dot, dot, tuple(one.instruction for one in operands)))
    write.replace(dot, made if found.moved else made.binary(found.opcode, scale))
    return True
