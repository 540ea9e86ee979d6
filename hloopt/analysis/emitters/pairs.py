"""Kinds and launches of kernels, and of the kernel a producer would make with one of its users."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

from hloopt.analysis.emitters.describe import EmitterOptions, Layout, lay_out
from hloopt.analysis.emitters.kind import Emission, Kind, emission, has_kernel
from hloopt.analysis.emitters.scratch import fused_apart
from hloopt.analysis.emitters.unroll import drops_when_unrolled
from hloopt.analysis.hero import is_intermediate
from hloopt.analysis.region import Region, region_of
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.targets import Target

__all__ = ["Kernel", "Kernels"]

_DECIDE: Final = frozenset({"concatenate", "transpose"})
"""Ops that can change a kernel's kind where nothing between them and its roots moves elements."""
_DECIDE_ALONE: Final = frozenset({"dynamic-update-slice", "reduce"})
"""The same, but with ops of one operand only in between."""

_WIDE: Final = (10, 0)
_FALLBACK_THREADS: Final = 128
_HERO_OPERANDS: Final = 3
_WARP: Final = 32


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's kind, its blocks in the whole grid and the threads of a block."""

    kind: Kind
    blocks: int
    threads: int


@dataclass(slots=True)
class _Facts:
    """What pairs ask again and again about one instruction.

    emission, layout  of its kernel; None where it has none by itself
    decides, decides_alone  whether an op behind its roots can change the kind of a kernel it joins
    drops             whether an op in it keeps threads from computing several elements; None until asked
    reached, chained  numbers of the operands such ops may be found behind; None until asked
    """

    region: Region
    emission: Emission | None
    layout: Layout | None
    kernel: Kernel
    decides: bool
    decides_alone: bool
    drops: bool | None = None
    reached: frozenset[int] | None = None
    chained: frozenset[int] | None = None


class Kernels:
    """What would run on a device, remembered until it is forgotten.

    Of devices without blocks and threads only kinds are known: they follow from the ops.
    """

    def __init__(self, target: Target, options: EmitterOptions | None = None) -> None:
        self.target = target
        self.options = options or EmitterOptions()
        self._is_wide = target.kind == "cuda" and target.capability >= _WIDE
        self._known: dict[Instruction, _Facts] = {}

    def of(self, instruction: Instruction) -> Kernel:
        """The kernel of an op or fusion by itself.

        Kinds without a launch of their own, and what no kernel runs, count a thread for each element of the
        first result, as XLA's cost model does.
        """
        return self._facts(instruction).kernel

    def pair(
        self, producer: Instruction, consumer: Instruction, *, multi_output: bool = False
    ) -> Kernel:
        """The kernel of both, where the producer is computed in its user's.

        Cheap where nothing in the producer can change the kernel's form; otherwise both are copied.
        """
        mine = self._facts(consumer)
        other = self._facts(producer)
        if multi_output or self._may_change(producer, other, consumer, mine):
            with fused_apart(producer, consumer, multi_output=multi_output) as fusion:
                return self._look(fusion).kernel
        found, layout = mine.emission, mine.layout
        assert found is not None
        assert layout is not None
        if layout.launch is None or found.kind == "transpose":
            return mine.kernel
        unrolls_less = layout.unroll.factor > 1 and self._drops(other)
        if not (unrolls_less or self._is_wide or found.kind == "reduction"):
            return mine.kernel
        both = _joined(producer, other, consumer, mine)
        return _kernel(found.kind, lay_out(both, found, self.target, self.options), both)

    def forget(self, instruction: Instruction) -> None:
        """An instruction has changed, or is gone."""
        self._known.pop(instruction, None)

    def _facts(self, instruction: Instruction) -> _Facts:
        known = self._known.get(instruction)
        if known is None:
            known = self._known[instruction] = self._look(instruction)
        return known

    def _look(self, instruction: Instruction) -> _Facts:
        region = region_of(instruction)
        found = layout = None
        # Bitcasts, constants, tuples: no kernel of their own, but they may join one.
        if has_kernel(instruction):
            found = emission(region, self.options.kind)
            has_threads = self.target.has_threads
            layout = lay_out(region, found, self.target, self.options) if has_threads else Layout()
        return _Facts(
            region,
            found,
            layout,
            _kernel(found.kind if found is not None else "custom", layout, region),
            _has_behind_roots(region, _DECIDE, _HERO_OPERANDS),
            _has_behind_roots(region, _DECIDE_ALONE, 1),
        )

    def _drops(self, facts: _Facts) -> bool:
        if facts.drops is None:
            facts.drops = bool(drops_when_unrolled(facts.region, self.options.unroll))
        return facts.drops

    def _may_change(
        self, producer: Instruction, other: _Facts, consumer: Instruction, mine: _Facts
    ) -> bool:
        """Whether the kernel of both may have another kind or other heroes than the consumer's."""
        if mine.emission is None or mine.emission.kind in ("in-place", "memcpy"):
            return True
        if len(mine.emission.roots) > 1 and mine.emission.kind == "reduction":
            return True
        if other.decides:
            if mine.reached is None:
                mine.reached = _reached(mine.region, _HERO_OPERANDS)
            numbers = mine.reached
        elif other.decides_alone:
            if mine.chained is None:
                mine.chained = _reached(mine.region, 1)
            numbers = mine.chained
        else:
            return False
        return any(
            number in numbers
            for number, operand in enumerate(consumer.operands)
            if operand is producer
            or (operand.opcode == "get-tuple-element" and operand.operands[0] is producer)
        )


def _kernel(kind: Kind, layout: Layout | None, region: Region) -> Kernel:
    if layout is not None and layout.launch is not None and kind != "sort":
        threads = layout.launch.threads_per_block
        if kind == "scatter":
            # XLA counts whole warps; threads without an update do nothing.
            threads = -(-threads // _WARP) * _WARP
        return Kernel(kind, layout.launch.blocks, threads)
    elements = region.results[0].shape.elements if region.results else 0
    return Kernel(kind, -(-elements // _FALLBACK_THREADS), _FALLBACK_THREADS)


def _reached(region: Region, most: int) -> frozenset[int]:
    """Operands between which and a root nothing moves elements: the search for heroes goes on behind them.

    What is in between has up to ``most`` operands.
    """
    instruction = region.instruction
    if not region.is_fusion:
        through = is_intermediate(instruction, most)
        return frozenset(range(len(instruction.operands))) if through else frozenset()
    return frozenset(
        found.parameter_number
        for found in _behind_roots(region, most)
        if found.opcode == "parameter"
    )


def _has_behind_roots(region: Region, opcodes: frozenset[str], most: int) -> bool:
    # Most bodies have no such op anywhere, and that is quicker to see.
    return any(entry.opcode in opcodes for entry in region.body) and any(
        entry.opcode in opcodes for entry in _behind_roots(region, most)
    )


def _behind_roots(region: Region, most: int) -> Iterator[Instruction]:
    """A region's roots and what heroes may be found among, through ops of up to ``most`` operands."""
    pending = [result.instruction for result in region.results]
    seen = set(pending)
    while pending:
        found = pending.pop()
        yield found
        if region.is_fusion and is_intermediate(found, most):
            fresh = [operand for operand in found.operands if operand not in seen]
            seen.update(fresh)
            pending.extend(fresh)


@dataclass(frozen=True, eq=False)
class _Joined(Region):
    """Both bodies under the consumer's roots; what is between them is not linked."""

    inside: tuple[Instruction, ...] = ()

    @cached_property
    def body(self) -> tuple[Instruction, ...]:
        return self.inside


def _joined(producer: Instruction, other: _Facts, consumer: Instruction, mine: _Facts) -> Region:
    shapes = [
        shape
        for operand in dict.fromkeys((*producer.operands, *consumer.operands))
        if operand is not producer
        for shape in Region.arrays_of(operand)
    ]
    inside = (*other.region.body, *mine.region.body)
    return _Joined(consumer, mine.region.results, {}, tuple(shapes), inside)
