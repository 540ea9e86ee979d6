"""Run times of Triton kernels, and the tiling XLA gives them."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf, prod
from typing import TypeAlias

import numpy as np

from hloopt.analysis.backend_config import BlockParameters, block_parameters, is_triton
from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.structures import keep
from hloopt.cost_models.block_level.kernel import TiledKernel
from hloopt.cost_models.block_level.prices import price, register_limit
from hloopt.cost_models.block_level.results import real_root, tiled_roots
from hloopt.cost_models.block_level.tiling import BlockTiles, Untiled, candidates, tile
from hloopt.cost_models.model import RunTime
from hloopt.cost_models.usage import UsageAnalysis
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import INDEXING, MOVING, SOURCES
from hloopt.targets import Target

__all__ = ["BlockLevelModel", "PricedTiling", "Untiled"]

# What only decides where something is read computes nothing.
_INDEXING = (
    MOVING - {"concatenate", "copy", "reshape"} - {"reverse"} | INDEXING | SOURCES | {"tuple"}
)


_NEVER = RunTime(0, 0, 0, inf, 0.0, 0.0, inf)


@dataclass(frozen=True)
class PricedTiling:
    """The tiling of a kernel and what it costs."""

    run_time: RunTime
    parameters: BlockParameters


_Found: TypeAlias = PricedTiling | Untiled


class BlockLevelModel:
    """Tilings by kernel, cached until one of its instructions is invalidated.

    A caller with a table of what is ``known`` by structures on this device passes its own.
    """

    def __init__(
        self,
        target: Target,
        usage: UsageAnalysis,
        known: dict[Hashable, PricedTiling] | None = None,
    ) -> None:
        self._target = target
        self._usage = usage
        self._tilings = {} if known is None else known
        self._best: dict[Instruction, dict[Instruction | None, _Found]] = {}
        self._given: dict[Instruction, RunTime | Untiled] = {}
        self._consumers: dict[Instruction, set[Instruction]] = {}

    def run_time(self, instruction: Instruction) -> RunTime | None:
        """Of a Triton fusion as its backend_config tiles it; without tiles there, of its best tiling.

        Infinite where registers would spill; None for all other instructions, and where there are no tiles.
        """
        if not is_triton(instruction):
            return None
        known = self._given.get(instruction)
        if known is None:
            known = self._given[instruction] = self._of_given(instruction)
        return None if isinstance(known, Untiled) else known

    def fused_run_time(
        self, producer: Instruction, consumer: Instruction, *, multi_output: bool = False
    ) -> RunTime | None:
        """Of both as one kernel, in its best tiling; infinite where it has none.

        None unless one of them is a Triton fusion, or where the producer's results are kept: no Triton kernel
        is made so.
        """
        if multi_output or not (is_triton(producer) or is_triton(consumer)):
            return None
        found = self.best(consumer, producer)
        return _NEVER if isinstance(found, Untiled) else found.run_time

    def best(
        self, consumer: Instruction, producer: Instruction | None = None
    ) -> PricedTiling | Untiled:
        """The cheapest tiling of a kernel: an op or fusion, or a producer fused into a consumer.

        XLA takes the first of equally cheap ones, in the order of ``tiling.candidates``.
        """
        by_producer = self._best.setdefault(consumer, {})
        known = by_producer.get(producer)
        if known is None:
            known = by_producer[producer] = self._found(consumer, producer)
            if producer is not None:
                self._consumers.setdefault(producer, set()).add(consumer)
        return known

    def parameters(self, fusion: Instruction) -> BlockParameters | None:
        """How a Triton fusion is tiled: as written, else at best; None where there are no tiles."""
        given = block_parameters(fusion)
        if given is not None:
            return given
        found = self.best(fusion)
        return None if isinstance(found, Untiled) else found.parameters

    def forget(self, instruction: Instruction) -> None:
        """An instruction has changed, or is gone."""
        self._given.pop(instruction, None)
        self._best.pop(instruction, None)
        for consumer in self._consumers.pop(instruction, ()):
            self._best.get(consumer, {}).pop(instruction, None)

    def _of_given(self, fusion: Instruction) -> RunTime | Untiled:
        parameters = block_parameters(fusion)
        if parameters is None:
            found = self.best(fusion)
            return found if isinstance(found, Untiled) else found.run_time
        kernel = TiledKernel(fusion)
        root = real_root(kernel)
        if isinstance(root, Untiled):
            return root
        sizes = parameters.output_tiles[kernel.roots.index(root)]
        if len(sizes) != root.array.rank:
            return Untiled(f"{fusion.name} has tiles of {len(sizes)} dimensions for {root.shape}")
        tiles = tile(kernel, root, np.array([sizes], np.int64).reshape(1, len(sizes)))
        if isinstance(tiles, Untiled):
            return tiles
        if not tiles.fits[0]:
            return Untiled(f"the tiles of {fusion.name} do not cut its operands into tiles")
        roots = tiled_roots(kernel, tiles)
        if isinstance(roots, Untiled):
            return roots
        prices = price(kernel, tiles, roots, self._target, self._flops, parameters)
        return prices.run_time(0)

    def _found(self, consumer: Instruction, producer: Instruction | None) -> _Found:
        """As ``_search``; of equal kernels once, but for those without tiles, of which the words have names."""
        structures = self._usage.structures
        key: Hashable = (
            structures.of(consumer) if producer is None else structures.pair(producer, consumer)
        )
        known = None if key is None else self._tilings.get(key)
        if known is not None:
            return known
        found = self._search(consumer, producer)
        if key is not None and isinstance(found, PricedTiling):
            keep(self._tilings, key, found)
        return found

    def _search(self, consumer: Instruction, producer: Instruction | None) -> _Found:
        kernel = TiledKernel(consumer, producer)
        root = real_root(kernel)
        if isinstance(root, Untiled):
            return root
        rows = candidates(root.array.dims, register_limit(self._target))
        tiles = tile(kernel, root, rows)
        if isinstance(tiles, Untiled):
            return tiles
        roots = tiled_roots(kernel, tiles)
        if isinstance(roots, Untiled):
            return roots
        prices = price(kernel, tiles, roots, self._target, self._flops)
        allowed = tiles.fits & tiles.fine & self._fits_grid(tiles)
        times = np.where(allowed, prices.exec, np.inf)
        best = int(np.argmin(times)) if len(times) else 0
        if not len(times) or not np.isfinite(times[best]):
            return Untiled("no tiling is left")
        output_tiles = tuple(
            tuple(int(size[best]) for size in output.view.sizes) for output in roots
        )
        return PricedTiling(
            prices.run_time(best), BlockParameters(output_tiles, int(prices.warps[best]))
        )

    def _fits_grid(self, tiles: BlockTiles) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        most = self._target.grid_limit[0]
        return tiles.blocks < most if most else np.ones(tiles.count, np.bool_)

    def _flops(self, node: Instruction) -> int:
        """Of one element."""
        if node.opcode in _INDEXING:
            return 0
        counting = self._usage.counting
        if is_elementwise(node):
            known = counting.cycles.get((node.opcode, node.array.dtype.name))
            return counting.default_cycles if known is None else known
        if node.opcode == "reduce":
            each = sum(map(self._flops, node.to_apply))
            dims = node.operands[0].array.dims
            reduced: int = prod(dims[axis] for axis in node.dimensions)
            return (reduced - 1) * each
        elements = node.array.elements
        return self._usage.op(node).flops // elements if elements else 0
