"""Cached facts that the rules need about an instruction or a growing fusion."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from hloopt.analysis.hero import find_hero, is_real_reduction_hero, roots
from hloopt.analysis.reduction import is_unnested
from hloopt.analysis.transpose import tiled_transpose
from hloopt.fusion.duplication import Duplication, RealUsers
from hloopt.fusion.fusible import is_reduction_epilogue, reused_operands
from hloopt.fusion.limits import Footprint, FusionLimits, footprint_of, fused_ops
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import HEROES

__all__ = ["ConsumerState"]

_MAY_BE_HERO: Final = HEROES - {"dynamic-update-slice", "sort"}


class ConsumerState:
    """Facts about one consumer: an op, or a fusion to which producers are added one by one."""

    def __init__(
        self, instruction: Instruction, limits: FusionLimits, real_users: RealUsers
    ) -> None:
        self.instruction = instruction
        self.limits = limits
        self.real_users = real_users
        self.body: Computation | None = (
            instruction.calls if instruction.opcode == "fusion" else None
        )
        self.reused = reused_operands(instruction)
        self.footprint = footprint_of(instruction, limits)
        self.is_epilogue = all(map(is_reduction_epilogue, fused_ops(instruction)))

    @cached_property
    def duplication(self) -> Duplication:
        """Emission counts of the body; raises ``ValueError`` for an op that is not a fusion."""
        return Duplication(self._the_body())

    def _the_body(self) -> Computation:
        if self.body is None:
            raise ValueError(f"{self.instruction.name} is not a fusion")
        return self.body

    @cached_property
    def heroes(self) -> tuple[Instruction, ...]:
        """The instructions that would decide the kernel's form, one a root."""
        if self.body is None:
            return (self.instruction,)
        return tuple(find_hero(root) for root in roots(self.body))

    @cached_property
    def is_input_reduction(self) -> bool:
        """Whether a reduction kernel would be built around this."""
        if self.body is None:
            return self.instruction.opcode == "reduce" and is_unnested(self.instruction)
        pairs = zip(roots(self.body), self.heroes, strict=True)
        return any(is_real_reduction_hero(root, hero) for root, hero in pairs)

    @cached_property
    def is_input_fusible(self) -> bool:
        """Whether a reduction, transpose or scatter kernel would be built around this."""
        if self.is_input_reduction:
            return True
        if any(tiled_transpose(hero) is not None for hero in self.heroes):
            return True
        root = self.instruction if self.body is None else self.body.root
        return root.opcode == "scatter"

    def became(self, fusion: Instruction) -> None:
        """The op has been wrapped into a fusion of itself."""
        self.instruction = fusion
        self.body = fusion.calls
        self._forget_heroes()

    def joined(self, producer: Instruction, parameter: Instruction, fused: Instruction) -> None:
        """``fused``, the copy of ``producer``, has taken the place of ``parameter`` in the body.

        Called after the body has changed.
        """
        self.duplication.join(parameter, fused)
        self.footprint += Footprint.of(fused, self.limits)
        self.is_epilogue = self.is_epilogue and is_reduction_epilogue(fused)
        if producer in self.reused:
            self.reused.discard(producer)
            self.reused.update(producer.operands)
        else:
            self.reused |= reused_operands(producer)
        if fused.opcode in _MAY_BE_HERO:
            self._forget_heroes()

    def _forget_heroes(self) -> None:
        for name in ("heroes", "is_input_reduction", "is_input_fusible"):
            self.__dict__.pop(name, None)
