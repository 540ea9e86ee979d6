"""When a producer may join a Triton fusion, or a Triton fusion its user: XLA's rules of 2026.

Both together become a Triton fusion, with the tiles that the block-level model finds cheapest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloopt.analysis.backend_config import BlockParameters, is_triton, written_parameters
from hloopt.cost_models.model import CostModel
from hloopt.dataclass import dataclass
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.fusion.limits import KernelLimits, decide_operands
from hloopt.fusion.triton_support import unsupported_by_triton, unsupported_target
from hloopt.ir import Instruction, edit

if TYPE_CHECKING:
    from hloopt.cost_models.block_level import BlockLevelModel

__all__ = ["TritonFusions", "block_level_of"]


def block_level_of(model: CostModel) -> BlockLevelModel:
    """The model of Triton kernels that a cost model uses; a new one for a cost model without."""
    from hloopt.cost_models.block_level import BlockLevelModel

    found = getattr(model, "block_level", None)
    if isinstance(found, BlockLevelModel):
        return found
    return BlockLevelModel(model.target, model.usage)


@dataclass(frozen=True)
class TritonFusions:
    """Verdicts on pairs of which one is a Triton fusion, and what such pairs become.

    model   whose block-level part finds tiles, and caches them until the cache is cleared
    limits  of one kernel; only the number of operands and outputs counts here
    """

    model: CostModel
    limits: KernelLimits

    def decide(self, producer: Instruction, consumer: Instruction) -> Decision:
        """Whether ``producer`` may join ``consumer``: supported ops and types, operands, and a tiling."""
        target = self.model.target
        words = unsupported_target(target)
        for instruction in (producer, consumer):
            if not words and not is_triton(instruction):
                words = unsupported_by_triton(instruction, target)
        if words:
            return forbid("triton-unsupported", words=words)
        operands = decide_operands(producer, consumer, self.limits)
        if not operands:
            return operands
        tiles = self._tiles(producer, consumer)
        return forbid("triton-not-tiled", words=tiles) if isinstance(tiles, str) else ALLOWED

    def parameters(self, producer: Instruction, consumer: Instruction) -> BlockParameters | None:
        """The tiles of the fusion that both become; None unless one is a Triton fusion and they can be tiled.

        Call it before they are fused.
        """
        if not (is_triton(producer) or is_triton(consumer)):
            return None
        tiles = self._tiles(producer, consumer)
        return None if isinstance(tiles, str) else tiles

    def _tiles(self, producer: Instruction, consumer: Instruction) -> BlockParameters | str:
        """The tiles of the kernel of both, or why it has none."""
        from hloopt.cost_models.block_level import Untiled

        found = block_level_of(self.model).best(consumer, producer)
        return found.words if isinstance(found, Untiled) else found.parameters

    @staticmethod
    def write(fusion: Instruction, parameters: BlockParameters) -> None:
        """Make a fusion a Triton fusion with these tiles; other parts of its backend_config stay."""
        edit.set_attribute(fusion, "kind", "kCustom")
        edit.set_attribute(fusion, "backend_config", written_parameters(fusion, parameters))
