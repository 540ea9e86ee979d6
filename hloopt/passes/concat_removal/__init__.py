"""Concatenates whose users read their pieces: the pieces are used as they are."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.passes.concat_removal.apply import apply_region
from hloopt.passes.concat_removal.region import CutRegion, find_regions
from hloopt.rewrite import Pass, PassLog

__all__ = ["ConcatRemoval"]

_STEP = "take the pieces of a concatenate"


@dataclass(frozen=True)
class ConcatRemoval(Pass):
    """Use the pieces of concatenates and stacks where nothing needs the whole, through loops as well.

    1. An array that is put together by a concatenate, a pad, or updates in place at known places is
       followed forward: through elementwise ops, broadcasts, reshapes, transposes, reduces of other
       dimensions and the states of loops, each of which can be done piece by piece.
    2. Where that ends in slices, dynamic-slices at known places, or reduces whose partial results may be
       combined, the whole region is done in pieces, and a loop carries them as separate arrays.
    3. A region is rewritten when that moves fewer bytes: those of concatenates, pads and slices that go,
       against those of slices and concatenates that it needs at its edges, where something else is
       combined with a piece or something needs the whole.  An instruction in a loop counts as often as the
       loop runs (16 times where that is unknown).

    Results stay the same to the last bit.  Left alone: dynamic sizes, shardings, control edges, and dots,
    convolutions, sorts and gathers of a concatenate, which need the whole.

    pieces      the most pieces of one array
    growth      the most instructions that a region may add.  A stencil in a loop turns its grid by one
                element an iteration, which cuts it into rows, and those into elements, until none is left whole
    fast_math   whether partial results of a reduce of floating-point numbers may be combined
    """

    example: ClassVar[str] = """HloModule concat_removal
ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  a = f32[1,8] reshape(x)
  b = f32[1,8] reshape(y)
  stack = f32[2,8] concatenate(a, b), dimensions={0}
  twice = f32[2,8] add(stack, stack)
  first = f32[1,8] slice(twice), slice={[0:1], [0:8]}
  second = f32[1,8] slice(twice), slice={[1:2], [0:8]}
  ROOT sum = f32[1,8] add(first, second)
}
"""

    pieces: int = 32
    growth: int = 256
    fast_math: bool = False

    def __post_init__(self) -> None:
        if self.pieces < 2:
            raise UsageError(f"{self.name}: pieces must be at least 2, got {self.pieces}")
        if self.growth < 1:
            raise UsageError(f"{self.name}: growth must be at least 1, got {self.growth}")

    def run(self, module: Module, log: PassLog) -> bool:
        """Rewrite regions until none saves anything; each round lowers the bytes that are moved."""
        changed = False
        while log.allows():
            good, together = 0, CutRegion()
            regions = find_regions(module, self.pieces, fast_math=self.fast_math)
            for region in regions:
                is_worth_it = region.cost < region.saved and region.growth <= self.growth
                if is_worth_it and log.allows():
                    log.hit(_STEP, region.seed, _balance(region))
                    together.add(region)
                    good += 1
            if not good:
                self.report(regions, log)
                break
            apply_region(together, fast_math=self.fast_math)
            changed = True
        return changed

    def report(self, regions: list[CutRegion], log: PassLog) -> None:
        """Why the remaining regions stay as they are."""
        for region in regions:
            if region.growth > self.growth:
                why = f"it adds {region.growth} instructions: growth allows {self.growth}"
            else:
                why = f"{_balance(region)}: it must save more than it costs"
            log.miss(_STEP, region.seed, why)


def _balance(region: CutRegion) -> str:
    return f"saves {region.saved} bytes and costs {region.cost}"
