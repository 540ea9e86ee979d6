"""What instructions that are computed from scores lie along: the one reading of groups and of regions."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from hloopt.analysis.attention.axes import Along, AxisNumber, ProductAxes
from hloopt.analysis.contraction import AxisGroup, of_dot
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import ASSOCIATIVE

__all__ = ["ScoreReader"]

_FOLDS: Final = ASSOCIATIVE - {"and", "or", "xor"}


@dataclass
class ScoreReader:
    """Takes instructions in, operands first.

    along    what each value that depends on scores lies along
    scores   the products that give scores, in order
    heroes   reductions, with the axes that they are over; one over dimensions of size 1 is a view
    contexts products of what depends on scores, with the axes that they contract
    """

    axes: ProductAxes = field(default_factory=ProductAxes)
    along: dict[Instruction, Along] = field(default_factory=dict)
    scores: list[Instruction] = field(default_factory=list)
    heroes: dict[Instruction, tuple[AxisNumber, ...]] = field(default_factory=dict)
    contexts: dict[Instruction, tuple[AxisNumber, ...]] = field(default_factory=dict)

    def visit(self, one: Instruction) -> str:
        """Record what an instruction lies along if it depends on scores; why it is of no form, else nothing."""
        above = [part for part in one.operands if part in self.along]
        if one.opcode == "dot" and not above:
            self.scores.append(one)
            self.along[one] = tuple(self.axes.new(size) for size in one.array.dims)
            return ""
        if not above:
            return ""
        if one.opcode == "dot":
            return self._context(one, above)
        if one.opcode == "reduce":
            return self._hero(one, above)
        found: Along | None = None
        if one.op.is_elementwise:
            for part in above:
                own = self.along[part]
                if part.array.rank != one.array.rank:
                    return f"{one.name} takes {part.name} for all of its elements"
                found = own if found is None else self.axes.joined(found, own)
                if found is None:
                    return f"{one.name} takes elements of other places together"
        elif above == list(one.operands):
            found = self.axes.behind(one, self.along[above[0]])
        if found is None:
            return f"{one.opcode} {one.name} moves elements of {above[0].name} elsewhere"
        self.along[one] = found
        return ""

    def _context(self, dot: Instruction, above: list[Instruction]) -> str:
        if len(above) > 1 or dot.operands[0] is dot.operands[1]:
            return f"both operands of {dot.name} depend on scores"
        contraction = of_dot(dot)
        is_left = above[0] is dot.operands[0]
        weights = contraction.lhs if is_left else contraction.rhs
        own = self.along[above[0]]
        if None in own:
            return f"{above[0].name} is the same along a dimension"
        axes = {
            position.terms[0][0]: part or ()
            for position, part in zip(weights.positions, own, strict=True)
        }
        inner: AxisGroup = "n" if is_left else "m"
        for at, size in enumerate(contraction.axes[inner]):
            axes[inner, at] = self.axes.new(size)
        self.contexts[dot] = tuple(
            axis for (group, _), part in axes.items() if group == "k" for axis in part
        )
        self.along[dot] = tuple(axes[position.terms[0][0]] for position in contraction.result)
        return ""

    def _hero(self, reduce: Instruction, above: list[Instruction]) -> str:
        source = reduce.operands[0]
        region = reduce.attributes["to_apply"]
        if above != [source] or len(reduce.operands) != 2 or region.root.opcode not in _FOLDS:
            return f"{reduce.name} is more than a sum, a product or an extremum"
        if set(region.root.operands) != set(region.parameters):
            return f"the reducer of {reduce.name} is more than one op"
        if region.root.array.dtype is not source.array.dtype:
            return f"the reducer of {reduce.name} has another type"
        own, dims = self.along[source], reduce.attributes["dimensions"]
        if None in own:
            return f"{source.name} is the same along a dimension"
        axes = tuple(axis for at in dims for axis in own[at] or ())
        if axes:
            self.heroes[reduce] = axes
        self.along[reduce] = tuple(part for at, part in enumerate(own) if at not in dims)
        return ""
