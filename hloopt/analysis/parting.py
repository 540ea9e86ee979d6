"""Where two compilations of one program part: the first pass whose result differs.

Each side is a list of stages, the module as it was after each pass that changed it.  Stages are equal where
their modules are, whatever names and metadata say.  Two sides may part and meet again, where one has a pass
that the other has later; so they part behind the last stage that both have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

from hloopt.analysis.differences import Difference, differences
from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.ir.canonical import fingerprint

__all__ = ["CompiledStage", "Parting", "PassResult", "parting"]

_KEPT: Final = frozenset({
    "entry_computation_layout", "input_output_alias", "buffer_donor", "num_partitions", "replica_count",
})  # fmt: skip
"""Attributes of a header that say what the program is; others are the compiler's notes on its work."""
_KERNELS: Final = frozenset({"custom-call", "fusion"})
"""What is configured by its ``backend_config``; of other ops that has hints for a scheduler."""
_MOST_READ: Final = 24_000_000
"""Bytes of stages that are read to find the last that both sides have."""


@dataclass(frozen=True)
class CompiledStage:
    """A module at one moment of a compilation.

    pipeline, pass_name  what made it; empty for the program as it was given
    content              a digest of its text: what is equal there need not be read
    size                 of that text, in bytes
    load                 reads the module
    """

    pipeline: str
    pass_name: str
    content: bytes
    size: int
    load: Callable[[], Module]

    def read(self) -> Module:
        """The module, without the compiler's notes on its own work; it is not kept."""
        module = self.load()
        for name in [name for name in module.attributes if name not in _KEPT]:
            del module.attributes[name]
        for instruction in module.instructions():
            if instruction.opcode not in _KERNELS:
                instruction.attributes.pop("backend_config", None)
        return module

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal modules."""
        return fingerprint(self.read())


@dataclass(frozen=True)
class PassResult:
    """What one side did where both part: its stage there, ``changes`` what that has otherwise.

    ``changes`` are those from the last common stage; from the other side's result where both ran the pass.
    """

    pipeline: str
    pass_name: str
    changes: tuple[Difference, ...]


@dataclass(frozen=True)
class Parting:
    """Where two compilations part.

    common         the numbers of the last stage that both have; None where the programs differ already
    stages         how many different stages either side has
    before, after  what either side did next; None where the other does that, too, at another time
    same_pass      whether both ran the same pass there, with different results
    alone          passes that changed the module from there on, on one side only
    complete       whether all stages behind it were compared
    """

    common: tuple[int, int] | None
    stages: tuple[int, int]
    before: PassResult | None
    after: PassResult | None
    same_pass: bool
    alone: tuple[tuple[str, ...], tuple[str, ...]]
    complete: bool


def parting(before: Sequence[CompiledStage], after: Sequence[CompiledStage]) -> Parting | None:
    """Where two compilations part; None where the last stages are equal.

    Raises what reading a stage does.
    """
    sides = [_changed(side) for side in (before, after)]
    first, second = sides
    begin = 0
    for one, other in zip(first, second, strict=False):
        if one.content != other.content:
            break
        begin += 1
    if begin == len(first) == len(second):
        return None
    common, complete = _last_common(first, second, max(begin - 1, 0))
    counts = len(first), len(second)
    if common is None:
        changes = tuple(differences(first[0].read(), second[0].read()))
        made = PassResult("", "", changes)
        return Parting(None, counts, made, made, True, ((), ()), complete)
    if common == (counts[0] - 1, counts[1] - 1):
        return None
    return _parted(first, second, common, complete=complete)


def _changed(stages: Sequence[CompiledStage]) -> list[CompiledStage]:
    """The stages whose text is another one than that of the stage before."""
    return [
        one
        for number, one in enumerate(stages)
        if number == 0 or one.content != stages[number - 1].content
    ]


def _last_common(
    first: Sequence[CompiledStage], second: Sequence[CompiledStage], begin: int
) -> tuple[tuple[int, int] | None, bool]:
    """The last stage of ``first`` that ``second`` has too, and whether all were compared."""
    read, known = 0, [dict[str, int](), dict[str, int]()]
    complete = True
    for number in range(begin, max(len(first), len(second))):
        stages = [side[number] for side in (first, second) if number < len(side)]
        read += sum(one.size for one in stages)
        if read > _MOST_READ and number > begin + 1:
            complete = False
            break
        for found, side in zip(known, (first, second), strict=True):
            if number < len(side):
                found[side[number].fingerprint] = number
    both = [(number, known[1][key]) for key, number in known[0].items() if key in known[1]]
    return max(both, default=None), complete


def _parted(
    first: Sequence[CompiledStage],
    second: Sequence[CompiledStage],
    common: tuple[int, int],
    *,
    complete: bool,
) -> Parting:
    rest = first[common[0] :], second[common[1] :]
    names = [_passes(side, read=complete) for side in rest]
    alone = (
        tuple(name for name in names[0] if name not in names[1]),
        tuple(name for name in names[1] if name not in names[0]),
    )
    steps = [next(iter(side[1:]), None) for side in rest]
    counts = len(first), len(second)
    one, other = steps
    if one is not None and other is not None and _maker(one) == _maker(other):
        made = PassResult(*_maker(one), tuple(differences(one.read(), other.read())))
        return Parting(common, counts, made, made, True, alone, complete)
    # What the other side does later, too, only comes at another time, unless nothing else differs there.
    told = [
        step is not None and step.pass_name in own for step, own in zip(steps, alone, strict=True)
    ]
    found: list[PassResult | None] = [None, None]
    for side, step in enumerate(steps):
        if step is not None and (told[side] or not any(told)):
            changes = tuple(differences(rest[side][0].read(), step.read()))
            found[side] = PassResult(*_maker(step), changes)
    return Parting(common, counts, found[0], found[1], False, alone, complete)


def _maker(stage: CompiledStage) -> tuple[str, str]:
    return stage.pipeline, stage.pass_name


def _passes(stages: Sequence[CompiledStage], *, read: bool) -> list[str]:
    """The passes that change something behind the first stage: texts alone say so where not all were read."""
    return list(
        dict.fromkeys(
            one.pass_name
            for before, one in pairwise(stages)
            if one.pass_name and not (read and one.fingerprint == before.fingerprint)
        )
    )
