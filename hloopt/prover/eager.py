"""What a program gives when it is compiled as a whole, beside what its instructions give one by one (eagerly).

Compiled as a whole, instructions that compute the same are merged, and what reads two of them reads one value
twice: a quotient is then 1, or NaN where the value is 0; a difference is 0.  One by one each instruction is a
kernel of its own, which rounds on its own: two that compute the same may give values that are a rounding apart,
whose quotient and difference are other numbers.  Where a result is NaN one way and a number the other, on some
input, that is found here.  The interpreter stands for both: with instructions merged, and with each rounded in
another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError, HlooptError, UnsupportedError, UsageError
from hloopt.ir import Instruction, Module, build, edit
from hloopt.pipelines import parse_pipeline
from hloopt.prover.bisection import Bisection, ChangedInstruction, Culprit, Examined
from hloopt.prover.observing import Leaf, Place, Trace, observe
from hloopt.prover.trials import TrialInputs, TrialOptions, special_classes
from hloopt.prover.xla_oracle import XlaOracle
from hloopt.types import Array

__all__ = ["EagerSearch", "MergedOperands", "eager_trials", "merged_operands"]

_WAYS: Final = (1, 2, 3)
"""Ways to round in which instructions are run one by one."""
_OTHER: Final = 100
"""Added to the number of a way, it is that of the instruction which is merged into its like."""
_LEFT_OUT: Final = frozenset({"infinite", "nan", "largest", "extreme", "stray"})


@dataclass(frozen=True)
class MergedOperands:
    """An instruction that reads one value where it read two that compute the same.

    kept, gone  the operands before: the first of them, and those that are merged into it
    """

    reader: Instruction
    kept: Instruction
    gone: tuple[Instruction, ...]


def merged_operands(apart: Module, merged: Module) -> list[MergedOperands]:
    """Where operands of an instruction of the entry have become one in ``merged``, a copy of ``apart``."""
    by_name = {entry.name: entry for entry in merged.entry}
    found = []
    for reader in apart.entry:
        now = by_name.get(reader.name)
        if now is None or len(now.operands) != len(reader.operands):
            continue
        groups: dict[Instruction, list[Instruction]] = {}
        for operand, own in zip(reader.operands, now.operands, strict=True):
            groups.setdefault(own, []).append(operand)
        for group in groups.values():
            kept, *gone = dict.fromkeys(group)
            if gone and kept.is_array:
                found.append(MergedOperands(reader, kept, tuple(gone)))
    return found


@dataclass(frozen=True)
class _Sides:
    """Traces of a run as a whole and of one in which instructions are rounded apart."""

    whole: Trace
    apart: Trace

    def odd(self) -> tuple[int, int] | None:
        """A result, and an element of it, that is NaN or infinite on one side only."""
        for number, pair in enumerate(zip(self.whole.results(), self.apart.results(), strict=True)):
            one, other = (trace.seen.get(leaf) for trace, leaf in zip(self.both, pair, strict=True))
            if one is None or other is None or not (one.is_whole and other.is_whole):
                continue
            places = np.flatnonzero(_is_finite(one.flat) != _is_finite(other.flat))
            if places.size:
                return number, int(places[0])
        return None

    @property
    def both(self) -> tuple[Trace, Trace]:
        return self.whole, self.apart

    def source(self) -> tuple[Instruction, Instruction, int] | None:
        """The first instruction that is finite on one side only and reads what is finite on both.

        As it is on either side, with the element.
        """
        names = {entry.name: entry for entry in self.apart.module.entry}
        for entry in self.whole.module.entry:
            other = names.get(entry.name)
            if other is None:
                continue
            pair = [
                _value_of(trace, one) for trace, one in zip(self.both, (entry, other), strict=True)
            ]
            if pair[0] is None or pair[1] is None:
                continue
            places = np.flatnonzero(_is_finite(pair[0]) != _is_finite(pair[1]))
            if places.size:
                return entry, other, int(places[0])
        return None


def eager_trials(module: Module, asked: TrialOptions) -> list[TrialInputs]:
    """The inputs that are asked for; else one of each class of finite numbers that changes an input."""
    if not asked.is_plain:
        return list(asked.all(module))
    classes = tuple(one for one in special_classes(module) if one not in _LEFT_OUT)
    return [*asked.all(module), *(replace(asked, special=classes).all(module) if classes else ())]


@dataclass
class EagerSearch:
    """A search for inputs on which a module gives NaN as a whole and numbers one by one, or the reverse.

    trials  the inputs, each of which is tried
    stage   what the search is at; another thread may read it
    """

    module: Module
    trials: Sequence[TrialInputs]
    stage: str = ""

    def run(self, name: str) -> Bisection:
        """Try all inputs, up to the first on which results differ so; ``name`` is the file's.

        Raises ``UsageError`` for a program of several participants, and what running the module raises.
        """
        if any(prod(inputs.counts) != 1 for inputs in self.trials):
            raise UsageError(f"{name}: it has several participants; eager execution has one")
        self._plain, self._merged = build.clone_module(self.module), build.clone_module(self.module)
        parse_pipeline("call-inliner,dce").run(self._plain)
        parse_pipeline("call-inliner,dce,fix(cse,dce)").run(self._merged)
        self._meetings = merged_operands(self._plain, self._merged)
        self._twins = list(dict.fromkeys(one for found in self._meetings for one in found.gone))
        self._apart = _with_parameters(self._plain, self._twins)
        count = len(list(self._plain.entry)) - len(list(self._merged.entry))
        meetings = len(self._meetings)
        note = (
            f"merging takes {count} of the entry's instructions away; {meetings} of the rest "
            f"{'reads' if meetings == 1 else 'read'} one value in the place of several"
        )
        examined, culprits = [], list[Culprit]()
        for inputs in self.trials:
            self.stage = f"inputs {inputs.origin}"
            try:
                culprit = self._tried(inputs)
            except EvaluationError as error:
                examined.append(Examined(inputs.origin, "not run", error.message))
                continue
            examined.append(Examined(inputs.origin, "differs" if culprit else "equal"))
            if culprit is not None:
                culprits.append(culprit)
                break
        summary = "results are numbers in the same places, as a whole (jit) and one by one (eager)"
        if culprits:
            summary = f"{culprits[0].name} decides whether results are numbers: {culprits[0].where}"
        return Bisection(
            "eager",
            self.module.name,
            name,
            tuple(one.origin for one in self.trials[: len(examined)]),
            tuple(examined),
            tuple(culprits),
            summary,
            (note,),
        )

    def _tried(self, inputs: TrialInputs) -> Culprit | None:
        """What one input shows."""
        whole = observe(self._merged, inputs)[0]
        for way in _WAYS:
            moved = observe(self._plain, inputs, rounding=way + _OTHER)[0]
            values = [_whole_value(moved, twin) for twin in self._twins]
            own = [[*arrays, *values] for arrays in inputs.arrays]
            sides = _Sides(
                whole, observe(self._apart, replace(inputs, arrays=own), rounding=way)[0]
            )
            odd, source = sides.odd(), sides.source()
            if odd is not None and source is not None:
                return self._culprit(sides, odd, source, inputs)
        return None

    def _culprit(
        self,
        sides: _Sides,
        odd: tuple[int, int],
        source: tuple[Instruction, Instruction, int],
        inputs: TrialInputs,
    ) -> Culprit:
        entry, other, at = source
        number, place = odd
        plain = {one.name: one for one in self._plain.entry}
        above = {one.name for one in _above(plain[entry.name])}
        meetings = [found for found in self._meetings if found.reader.name in above]
        results = [_number(trace.seen[trace.results()[number]].flat, place) for trace in sides.both]
        lines = [
            f"result {number}: {results[0]} as a whole (jit), {results[1]} one by one (eager)",
            f"%{entry.name} is where that begins:",
            f"  as a whole: {_computed(sides.whole, entry, at)}",
            f"  one by one: {_computed(sides.apart, other, at)}",
        ]
        rewritten = [ChangedInstruction.of(plain[entry.name], "before", is_first=True)]
        for found in meetings:
            gone = ", ".join(f"%{one.name}" for one in found.gone)
            verb = "is" if len(found.gone) == 1 else "are"
            reader = found.reader
            lines.append(
                f"{gone} {verb} merged into %{found.kept.name}, and %{reader.name} reads one value twice"
                + _MEANING.get(reader.opcode, "")
            )
            twins = (found.kept, *found.gone)
            rewritten += [ChangedInstruction.of(one, "before", is_first=True) for one in twins]
        if meetings:
            name = "cse"
            reason = "it merges instructions that compute the same; run one by one, each is rounded on its own"
        else:
            name = "rounding"
            reason = (
                "nothing that is merged leads there: how the values before it are rounded decides"
            )
        return Culprit(
            name,
            f"%{entry.name}, inputs {inputs.origin}",
            reason,
            first=tuple(lines),
            rewritten=tuple(dict.fromkeys(rewritten)),
            notes=(*self._by_xla(inputs, number, place), _STANDS_FOR),
        )

    def _by_xla(self, inputs: TrialInputs, number: int, place: int) -> list[str]:
        """What XLA gives for an element of a result, where it can be asked."""
        oracle = XlaOracle(inputs)
        if oracle.obstacle():
            return []
        self.stage = "compiled by XLA"
        try:
            flat = oracle.run(self.module).results[0][number].reshape(-1)
        except HlooptError as error:
            return [f"XLA does not run it: {error.message.partition(chr(10))[0]}"]
        return [f"XLA here, which compiles it as a whole, gives {_number(flat, place)}"]


_STANDS_FOR: Final = (
    "one by one stands for kernels that round as they may: those of a device may give the same numbers on "
    "these inputs, and others on the next"
)
_MEANING: Final = {
    "divide": ": x / x is 1, and NaN where x is 0 or not finite",
    "subtract": ": x - x is 0, and NaN where x is not finite",
    "remainder": ": it is 0, and NaN where x is 0 or not finite",
}


def _with_parameters(module: Module, values: Sequence[Instruction]) -> Module:
    """A copy in which further parameters take the places of values of the entry."""
    copy = build.clone_module(module)
    by_name = {entry.name: entry for entry in copy.entry}
    count = len(copy.entry.parameters)
    first = next(iter(copy.entry))
    for number, value in enumerate(values, count):
        place = {"parameter_number": number}
        made = build.make(first, "parameter", (), place, shape=value.shape)
        edit.replace_uses(by_name[value.name], made)
        edit.rename(by_name[value.name], f"{value.name}.unread")
        edit.rename(made, value.name)
    for name in ("entry_computation_layout", "input_output_alias", "buffer_donor"):
        copy.attributes.pop(name, None)
    return copy


def _value_of(trace: Trace, entry: Instruction) -> Array | None:
    """What an instruction of the entry gave, flat; None where it was not kept whole."""
    seen = trace.seen.get(trace.origin(Leaf(Place((), entry)))) if entry.is_array else None
    return seen.flat if seen is not None and seen.is_whole else None


def _whole_value(trace: Trace, entry: Instruction) -> Array:
    flat = _value_of(trace, entry)
    if flat is None:
        raise UnsupportedError(
            f"{entry.name}: its values were too many to be kept", name=trace.module.name
        )
    return flat.reshape(entry.array.dims)


def _is_finite(flat: Array) -> Array:
    if flat.dtype.kind in "biu":
        return np.ones(flat.shape, np.bool_)
    with np.errstate(all="ignore"):
        return np.asarray(np.isfinite(flat))


def _above(entry: Instruction) -> Iterator[Instruction]:
    """An instruction and all that it is made of."""
    pending, known = [entry], {entry}
    while pending:
        one = pending.pop()
        yield one
        new = [operand for operand in one.operands if operand not in known]
        known.update(new)
        pending += new


def _computed(trace: Trace, entry: Instruction, at: int) -> str:
    """An element with the elements of its operands, where these have its dimensions."""
    own = _value_of(trace, entry)
    assert own is not None, entry.name
    parts = []
    for operand in entry.operands:
        flat = _value_of(trace, operand)
        same = flat is not None and flat.size == own.size
        parts.append(
            f"%{operand.name}" + (f" = {_number(flat, at)}" if same and flat is not None else "")
        )
    index = "" if own.size == 1 else f", element {at} of {own.size}"
    return f"{entry.opcode}({', '.join(parts)}) = {_number(own, at)}{index}"


def _number(flat: Array, at: int) -> str:
    return f"{flat[at]:.9g}" if flat.dtype.kind == "f" else str(flat[at])
