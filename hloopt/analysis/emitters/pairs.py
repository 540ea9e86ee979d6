"""Kinds and launches of kernels, and of the kernel a producer would make with one of its users."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import field
from functools import cached_property
from itertools import chain
from typing import Final

from hloopt.analysis.emitters.describe import ThreadLayout, lay_out
from hloopt.analysis.emitters.kind import (
    CONCATENATE_OPERANDS,
    Emission,
    EmitterKind,
    emission,
    has_kernel,
)
from hloopt.analysis.emitters.scratch import fused_apart
from hloopt.analysis.emitters.unroll import drops_when_unrolled
from hloopt.analysis.hero import is_intermediate, only_intermediates_below
from hloopt.analysis.region import Region, Result, region_of
from hloopt.analysis.structures import Structures, keep
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ir.walk import slots_of
from hloopt.ops.traits import HEROES
from hloopt.targets import Target
from hloopt.types import ArrayShape, Shape, parts_of

__all__ = ["KernelShape", "Kernels"]

_DECIDE: Final = frozenset({"concatenate", "transpose"})
"""Ops that can change a kernel's kind where nothing between them and its roots moves elements."""
_DECIDE_ALONE: Final = frozenset({"dynamic-update-slice", "reduce"})
"""The same, but with ops of one operand only in between."""

_FORMS: Final = HEROES - {"concatenate"}
"""Ops that can make a kernel other than a loop, besides concatenates and copies."""

_ANY_FORM: Final = HEROES | {"copy", "dot", "reduce-window"}
"""Ops without which a kernel of several results is a loop, and nothing keeps it from being unrolled."""

_WIDE: Final = (10, 0)
_FALLBACK_THREADS: Final = 128
_HERO_OPERANDS: Final = 3
_WARP: Final = 32


@dataclass(frozen=True, slots=True)
class KernelShape:
    """A kernel's kind, its blocks in the whole grid and the threads of a block."""

    kind: EmitterKind
    blocks: int
    threads: int


@dataclass(slots=True)
class _Facts:
    """What pairs query repeatedly about one instruction.

    emission, layout  of its kernel; None where it has none by itself
    decides, decides_alone  whether an op behind its roots can change the kind of a kernel it joins
    drops             whether an op in it keeps threads from computing several elements; None until computed
    reached, chained  numbers of the operands such ops may be found behind; None until computed
    concatenates      behind its roots; None until computed
    moves             whether anything computed of one of its values moves elements, where that was computed
    """

    region: Region
    emission: Emission | None
    layout: ThreadLayout | None
    kernel: KernelShape
    decides: bool
    decides_alone: bool
    drops: bool | None = None
    reached: frozenset[int] | None = None
    chained: frozenset[int] | None = None
    concatenates: tuple[Instruction, ...] | None = None
    moves: dict[Instruction, bool] = field(default_factory=dict)


class Kernels:
    """What would run on a device, remembered until it is forgotten.

    Of devices without blocks and threads only kinds are known: they follow from the ops.  ``opcodes``
    gives those in an op or fusion; a caller that maintains the set as a fusion grows passes its own.  So does
    one that maintains ``structures``, with a table of what is ``known`` of them on this device.
    """

    def __init__(
        self,
        target: Target,
        opcodes: Callable[[Instruction], AbstractSet[str]] | None = None,
        structures: Structures | None = None,
        known: dict[Hashable, KernelShape] | None = None,
    ) -> None:
        self.target = target
        self._opcodes = opcodes
        self._structures = structures
        self._shapes = {} if known is None else known
        self._is_wide = target.kind == "cuda" and target.capability >= _WIDE
        self._known: dict[Instruction, _Facts] = {}

    def of(self, instruction: Instruction) -> KernelShape:
        """The kernel of an op or fusion by itself.

        Kinds without a launch of their own, and what no kernel runs, count a thread for each element of the
        first result, as XLA's cost model does.
        """
        facts = self._known.get(instruction)
        if facts is not None:
            return facts.kernel
        number = None if self._structures is None else self._structures.of(instruction)
        known = None if number is None else self._shapes.get(number)
        if known is None:
            known = self._wide_loop(instruction) or self._facts(instruction).kernel
            if number is not None:
                keep(self._shapes, number, known)
        return known

    def reductions(self, instruction: Instruction) -> list[Instruction]:
        """The reduces that decide the form of an instruction's kernel."""
        if self.of(instruction).kind != "reduction":
            return []
        found = self._facts(instruction).emission
        heroes = found.heroes if found is not None else ()
        return [hero for hero in dict.fromkeys(heroes) if hero.opcode == "reduce"]

    def pair(
        self, producer: Instruction, consumer: Instruction, *, multi_output: bool = False
    ) -> KernelShape:
        """The kernel of both, where the producer is computed in its user's.

        Cheap where nothing in the producer can change the kernel's form; otherwise both are copied.
        """
        pair = None if self._structures is None else self._structures.pair(producer, consumer)
        if pair is None:
            return self._pair(producer, consumer, multi_output=multi_output)
        key = pair, multi_output
        known = self._shapes.get(key)
        if known is None:
            known = self._pair(producer, consumer, multi_output=multi_output)
            keep(self._shapes, key, known)
        return known

    def _pair(
        self, producer: Instruction, consumer: Instruction, *, multi_output: bool
    ) -> KernelShape:
        if multi_output:
            loop = self._wide_loop(consumer, producer)
            if loop is not None:
                return loop
        mine = self._facts(consumer)
        other = self._facts(producer)
        if multi_output or self._may_change(producer, other, consumer, mine):
            decided = None if multi_output else self._decided(producer, other, consumer, mine)
            if decided is not None:
                both = _joined(producer, other, consumer, mine)
                return _kernel(both, decided, self._layout(both, decided))
            with fused_apart(producer, consumer, multi_output=multi_output) as fusion:
                region = region_of(fusion)
                return _kernel(region, *self._form(fusion, region))
        found, layout = mine.emission, mine.layout
        assert found is not None
        assert layout is not None
        if layout.launch is None or found.kind == "transpose":
            return mine.kernel
        unrolls_less = layout.unroll.factor > 1 and self._drops(other)
        if not (unrolls_less or self._is_wide or found.kind == "reduction"):
            return mine.kernel
        both = _joined(producer, other, consumer, mine)
        return _kernel(both, found, self._layout(both, found))

    def _wide_loop(self, *parts: Instruction) -> KernelShape | None:
        """The kernel of all results of some ops and fusions, where opcodes say that it is a loop; else None.

        Results are those of a multi-output fusion by itself, or of several together.
        """
        if self._opcodes is None or not self.target.has_threads:
            return None
        shapes: list[Shape] = []
        for part in parts:
            shape = part.shape
            if part.opcode == "fusion" and (
                part.attributes["kind"] == "kCustom" or "backend_config" in part.attributes
            ):
                return None
            shapes += parts_of(shape)
        if len(shapes) < 2 or (len(parts) == 1 and parts[0].opcode != "fusion"):
            return None
        if not all(_ANY_FORM.isdisjoint(self._opcodes(part)) for part in parts):
            return None
        results = tuple(
            [Result(parts[0], 0, shape) for shape in shapes if isinstance(shape, ArrayShape)]
        )
        if len(results) != len(shapes):
            return None
        region = _Joined(parts[0], results, {}, ())
        found = Emission("loop", (), (), "")
        return _kernel(region, found, self._layout(region, found))

    def forget(self, instruction: Instruction) -> None:
        """An instruction has changed, or is gone."""
        self._known.pop(instruction, None)

    def _facts(self, instruction: Instruction) -> _Facts:
        known = self._known.get(instruction)
        if known is None:
            known = self._known[instruction] = self._look(instruction)
        return known

    def _look(self, instruction: Instruction) -> _Facts:
        known = self._opcodes(instruction) if self._opcodes is not None else None
        region = region_of(instruction, known)
        found, layout = self._form(instruction, region)
        opcodes = region.opcodes
        return _Facts(
            region,
            found,
            layout,
            _kernel(region, found, layout),
            not opcodes.isdisjoint(_DECIDE) and _has_behind_roots(region, _DECIDE, _HERO_OPERANDS),
            not opcodes.isdisjoint(_DECIDE_ALONE) and _has_behind_roots(region, _DECIDE_ALONE, 1),
        )

    def _form(
        self, instruction: Instruction, region: Region
    ) -> tuple[Emission | None, ThreadLayout | None]:
        if not has_kernel(instruction):
            # Bitcasts, constants, tuples: no kernel of their own, but they may join one.
            return None, None
        found = emission(region)
        return found, self._layout(region, found)

    def _layout(self, region: Region, found: Emission) -> ThreadLayout:
        if not self.target.has_threads:
            return ThreadLayout()
        return lay_out(region, found, self.target)

    def _drops(self, facts: _Facts) -> bool:
        if facts.drops is None:
            facts.drops = bool(drops_when_unrolled(facts.region))
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
        return any(slot in numbers for slot in slots_of(producer, consumer))

    def _decided(
        self, producer: Instruction, other: _Facts, consumer: Instruction, mine: _Facts
    ) -> Emission | None:
        """The form of both, where concatenates are all that can change it; None where one must look.

        One decides in a kernel of one result, where it is the only one behind that, has few operands, and
        nothing that is computed of it moves elements.
        """
        found = mine.emission
        if found is None or found.kind not in ("concatenate", "loop"):
            return None
        ends = (*other.region.results, *mine.region.results)
        if (
            len(other.region.results) != 1
            or not isinstance(consumer.shape, ArrayShape)
            or not other.region.opcodes.isdisjoint(_FORMS)
            or not mine.region.opcodes.isdisjoint(_FORMS)
            or any(result.instruction.opcode == "parameter" for result in ends)
        ):
            return None
        seen = (*_concatenates(other), *_concatenates(mine))
        if len(seen) > 1:
            return Emission("loop", found.roots, found.roots, "several concatenates are behind it")
        (hero,) = seen
        if len(hero.operands) > CONCATENATE_OPERANDS or _moves_below(other, hero):
            return found
        if mine.region.is_fusion:
            body = consumer.calls
            for parameter, operand in zip(body.parameters, consumer.operands, strict=True):
                if operand is producer and _moves_below(mine, parameter):
                    return found
        return Emission("concatenate", found.roots, seen, f"{hero.name} decides")


def _concatenates(facts: _Facts) -> tuple[Instruction, ...]:
    """Those behind the roots, where they can be heroes."""
    if facts.concatenates is None:
        found: Iterable[Instruction] = ()
        if "concatenate" in facts.region.opcodes:
            found = _behind_roots(facts.region, _HERO_OPERANDS)
        facts.concatenates = tuple(entry for entry in found if entry.opcode == "concatenate")
    return facts.concatenates


def _moves_below(facts: _Facts, instruction: Instruction) -> bool:
    """Whether anything in a fusion that is computed of a value moves elements."""
    if not facts.region.is_fusion:
        return False
    known = facts.moves.get(instruction)
    if known is None:
        known = facts.moves[instruction] = not only_intermediates_below(instruction)
    return known


def _kernel(region: Region, found: Emission | None, layout: ThreadLayout | None) -> KernelShape:
    kind = found.kind if found is not None else "custom"
    if layout is not None and layout.launch is not None and kind != "sort":
        threads = layout.launch.threads_per_block
        if kind == "scatter":
            # XLA counts whole warps; threads without an update do nothing.
            threads = -(-threads // _WARP) * _WARP
        return KernelShape(kind, layout.launch.blocks, threads)
    elements = region.results[0].shape.elements if region.results else 0
    return KernelShape(kind, -(-elements // _FALLBACK_THREADS), _FALLBACK_THREADS)


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
    return any(entry.opcode in opcodes for entry in _behind_roots(region, most))


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

    sides: tuple[Region, ...] = ()

    @cached_property
    def body(self) -> tuple[Instruction, ...]:
        return tuple(chain.from_iterable([side.body for side in self.sides]))

    @cached_property
    def opcodes(self) -> AbstractSet[str]:
        return frozenset().union(*[side.opcodes for side in self.sides])


def _joined(producer: Instruction, other: _Facts, consumer: Instruction, mine: _Facts) -> Region:
    shapes = [
        shape
        for operand in dict.fromkeys((*producer.operands, *consumer.operands))
        if operand is not producer
        for shape in Region.arrays_of(operand)
    ]
    sides = other.region, mine.region
    return _Joined(consumer, mine.region.results, {}, tuple(shapes), sides=sides)
