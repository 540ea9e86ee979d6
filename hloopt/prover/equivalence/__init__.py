"""Whether two modules are equal, by what decides it soonest.

1. Their canonical forms are the same.
2. They become the same by the rewrites that keep every bit (the simplification of ``O2``, fusions expanded).
3. The elements of their results are the same terms over the elements of their inputs.
4. They differ on inputs of a trial: refuted.
5. z3 proves each pair of elements equal, or finds inputs for which they may differ: refuted where the
   interpreter confirms it.

Equal are results of which every element has the same value: zeros of two signs are different, all NaN are one.
A sum of floats that ``reduce``, ``dot`` or ``convolution`` makes is the same where the same numbers are added,
since HLO leaves their order open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from time import monotonic
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.errors import DeviceError, EvaluationError, HlooptError, UnsupportedError
from hloopt.extras import install_command
from hloopt.interpret import participant_counts
from hloopt.ir import Instruction, Module
from hloopt.ir.build import clone_module
from hloopt.ir.canonical import fingerprint
from hloopt.pipelines import SIMPLIFICATION, parse_pipeline
from hloopt.prover.comparing import check_alike, compare_runs
from hloopt.prover.equivalence.combining import COMBINING
from hloopt.prover.equivalence.control import CONTROL
from hloopt.prover.equivalence.indexing import AT_INDICES
from hloopt.prover.equivalence.symbolic import DRAWN, Symbolic
from hloopt.prover.equivalence.terms import ElementTerms, TooManyTermsError
from hloopt.prover.executor import Executor
from hloopt.prover.trials import TrialInputs, TrialOptions, made
from hloopt.runtime.inputs import positions
from hloopt.types import Array, of_numpy

__all__ = [
    "HANDLERS",
    "STEPS",
    "Counterexample",
    "Equivalence",
    "by_elements",
    "decide",
    "differing",
]

STEPS: Final = 20_000_000
"""z3's own count of steps; some seconds."""

Verdict: TypeAlias = Literal["proved", "refuted", "not known"]

HANDLERS: Final = {**COMBINING, **AT_INDICES, **CONTROL}
_TRIALS: Final = 12
_SECONDS: Final = 10.0
_PATIENCE: Final = 30.0


@dataclass(frozen=True)
class Counterexample:
    """An element that two modules give different values for the same inputs.

    output    the number of the result
    index     of the element: the one that is furthest off, where rounding does not explain them all
    values    that of the first module and of the second
    rounding  the judge allows all differences on these inputs: they may come from rounding
    inputs    what both were given
    """

    output: int
    index: tuple[int, ...]
    values: tuple[Any, Any]
    rounding: bool
    inputs: TrialInputs

    def arrays(self) -> dict[str, Array]:
        """The inputs by the names that files of inputs have for them."""
        several = len(self.inputs.arrays) > 1
        return {
            f"in_{number}.{participant}" if several else f"in_{number}": array
            for participant, arrays in enumerate(self.inputs.arrays)
            for number, array in enumerate(arrays)
        }


@dataclass(frozen=True)
class Equivalence(Displayed):
    """What is known of two modules.

    verdict         proved, refuted, or not known
    how             what decided it
    reason          why it is not known
    counterexample  of modules that are refuted
    """

    verdict: Verdict
    how: str = ""
    reason: str = ""
    counterexample: Counterexample | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON of ``hloopt check --equivalent``."""
        row: dict[str, Any] = {"verdict": self.verdict}
        if self.how:
            row["how"] = self.how
        if self.reason:
            row["reason"] = self.reason
        found = self.counterexample
        if found is not None:
            row["counterexample"] = {
                "output": found.output,
                "index": list(found.index),
                "values": [_plain(value) for value in found.values],
                "within_rounding": found.rounding,
                "inputs_from": found.inputs.origin,
            }
        return row


def _plain(value: Any) -> object:
    """A value as JSON has it: numbers that JSON lacks are text."""
    kind = of_numpy(value.dtype)
    if kind.is_pred:
        return bool(value)
    if kind.is_integer:
        return int(value)
    wide = complex(value) if kind.is_complex else float(value)
    return wide if isinstance(wide, float) and np.isfinite(wide) else str(wide)


def decide(
    before: Module,
    after: Module,
    names: tuple[str, str] = ("the first module", "the second module"),
    *,
    steps: int = STEPS,
) -> Equivalence:
    """Whether two modules give the same results for all inputs; ``names`` are what messages call them.

    ``steps`` is how much z3 may do.  Raises ``UsageError`` where parameters or results are not alike,
    ``DeviceError`` where z3 is needed and is not installed.
    """
    check_alike(before, after, names)
    counts = [participant_counts(module, None, None) for module in (before, after)]
    if counts[0] != counts[1]:
        return Equivalence("not known", reason="they are for different numbers of participants")
    left_out = _left_out(before) or _left_out(after)
    if left_out is not None:
        return Equivalence("not known", reason=left_out)
    bare = [_without_header(module) for module in (before, after)]
    if fingerprint(bare[0]) == fingerprint(bare[1]):
        return Equivalence("proved", "they are the same but for names and order")
    for module in bare:
        parse_pipeline(f"defuse,{SIMPLIFICATION}").run(module)
    if fingerprint(bare[0]) == fingerprint(bare[1]):
        return Equivalence("proved", "exact rewrites make them the same")
    return _of_elements(before, after, bare, steps)


def by_elements(before: Module, after: Module, steps: int = STEPS) -> Equivalence:
    """What terms and z3 alone say of two modules that take and give arrays of the same shapes.

    No rewrite of hloopt's takes part, so that it may judge them.
    """
    side = _Sides.of(before, after)
    if isinstance(side, str):
        return Equivalence("not known", reason=side)
    return _same_elements(side) or side.solved(before, after, steps)


def differing(before: Module, after: Module, trials: int) -> Counterexample | None:
    """The first counterexample on inputs of so many trials, the special classes among them, in half a minute.

    Raises ``UnsupportedError`` and ``EvaluationError`` where the interpreter cannot run the modules.
    """
    end = monotonic() + _PATIENCE
    for trial in TrialOptions(trials=trials).plan(before):
        found = _differs(before, after, made(before, trial))
        if found is not None:
            return found
        if monotonic() > end:
            break
    return None


def _of_elements(
    before: Module, after: Module, simpler: Sequence[Module], steps: int
) -> Equivalence:
    """By terms, trials and z3."""
    sides, reasons = [], []
    for left, right in ((before, after), (simpler[0], simpler[1])):
        side = _Sides.of(left, right)
        if isinstance(side, str):
            reasons.append(side)
        elif (same := _same_elements(side)) is not None:
            return same
        else:
            sides.append(side)
    try:
        found = None if _draws(before) or _draws(after) else differing(before, after, _TRIALS)
    except (EvaluationError, UnsupportedError) as error:
        reasons.append(_first_line(error))
    else:
        if found is not None:
            how = f"on inputs of {found.inputs.origin}"
            return Equivalence("refuted", how, counterexample=found)
    for side in sides:
        answer = side.solved(before, after, steps)
        if answer.verdict != "not known":
            return answer
        reasons.append(answer.reason)
    return Equivalence("not known", reason="; ".join(dict.fromkeys(reasons)))


def _draws(module: Module) -> bool:
    """Whether results depend on chance, so that two runs show nothing."""
    return any(instruction.opcode in DRAWN for instruction in module.instructions())


def _same_elements(side: _Sides) -> Equivalence | None:
    if side.pairs:
        return None
    return Equivalence("proved", "each element is the same expression of the inputs")


def _answer(terms: ElementTerms, pairs: Sequence[tuple[int, int]], steps: int) -> Any:
    """What z3 says of pairs of terms.  Raises ``DeviceError`` where it is not installed."""
    try:
        from hloopt.prover.equivalence.solving import Solver
    except ImportError as error:
        if error.name != "z3":
            raise
        raise DeviceError(
            f"to decide this takes z3, which is not installed: {install_command('prove')}"
        ) from error
    return Solver(terms, steps).decide(pairs)


@dataclass(frozen=True)
class _Sides:
    """Two modules in terms, and the pairs of terms that elements of their results are."""

    terms: ElementTerms
    pairs: list[tuple[int, int]]
    modules: tuple[Module, Module]
    unknown: Mapping[int, tuple[Module, Instruction]]

    @staticmethod
    def of(before: Module, after: Module) -> _Sides | str:
        """Why not, where one cannot be written in terms."""
        terms = ElementTerms()
        found = []
        unknown: dict[int, tuple[Module, Instruction]] = {}
        try:
            for module in (before, after):
                symbolic = Symbolic(module, terms, HANDLERS)
                found.append(symbolic.result())
                for number, instruction in symbolic.unknown.items():
                    unknown.setdefault(number, (module, instruction))
        except TooManyTermsError:
            return "the modules have more distinct terms than the limit"
        except HlooptError as error:
            return _first_line(error)
        pairs: dict[tuple[int, int], None] = {}
        for (_, left), (_, right) in zip(*found, strict=True):
            differs = left != right
            for pair in zip(left[differs].tolist(), right[differs].tolist(), strict=True):
                parts = [terms[number] for number in pair]
                if all(part.op == "complex" for part in parts):
                    args = [part.args for part in parts]
                    pairs.update(dict.fromkeys(zip(*args, strict=True)))
                else:
                    pairs[pair] = None
        return _Sides(terms, list(pairs), (before, after), unknown)

    def solved(self, before: Module, after: Module, steps: int) -> Equivalence:
        """What z3 says; inputs that it finds are tried on the modules themselves."""
        answer = _answer(self.terms, self.pairs, steps)
        if answer.equal:
            return Equivalence("proved", "z3 finds no inputs for which an element differs")
        if answer.values is not None:
            try:
                found = _differs(before, after, _inputs(before, answer.values))
            except (EvaluationError, UnsupportedError) as error:
                return Equivalence("not known", reason=_first_line(error))
            if found is not None:
                return Equivalence("refuted", "on inputs that z3 found", counterexample=found)
        return Equivalence("not known", reason=self.reason(answer))

    def reason(self, answer: Any) -> str:
        """Why a pair is not decided: the ops of which too little is known, or z3's steps."""
        if answer.pair is None:
            return "the results are too large for z3"
        met = [self.unknown[at] for at in self.terms.below(answer.pair) if at in self.unknown]
        if met:
            module, instruction = met[0]
            more = f" and of {len(met) - 1} more" if len(met) > 1 else ""
            return (
                f"of {instruction.name} ({instruction.opcode}, {module.place(instruction)}){more} "
                "nothing is known but that equal operands give equal results"
            )
        if answer.values is not None:
            return (
                "a proof would need rules about functions or sums of floats that are not known here"
            )
        return "z3 needs more steps than it is given"


def _differs(before: Module, after: Module, inputs: TrialInputs) -> Counterexample | None:
    """The element that is furthest off, or the first of those that rounding may explain; None of equal ones."""
    executor = Executor(seconds=_SECONDS)
    runs = [executor.run(module, inputs) for module in (before, after)]
    pairs = [
        (output, left, right)
        for own, other in zip(runs[0].results, runs[1].results, strict=True)
        for output, (left, right) in enumerate(zip(own, other, strict=True))
    ]
    wrong = [~_same(left, right) for _, left, right in pairs]
    if not any(one.any() for one in wrong):
        return None
    judged = compare_runs(runs[0], runs[1], inputs)
    rounding = all(found.passed for found in judged.results)
    if rounding:
        number = next(number for number, one in enumerate(wrong) if one.any())
        first = int(np.argmax(wrong[number]))
        where = tuple(int(at) for at in np.unravel_index(first, wrong[number].shape))
    else:
        number = max(range(len(pairs)), key=lambda number: judged.results[number].share)
        where = judged.results[number].where
    output, left, right = pairs[number]
    return Counterexample(output, where, (left[where], right[where]), rounding, inputs)


def _same(left: Array, right: Array) -> Array:
    """Where elements have the same value: zeros by their sign, all NaN alike."""
    kind = of_numpy(left.dtype)
    if kind.is_complex:
        return np.asarray(_same(left.real, right.real) & _same(left.imag, right.imag))
    if not kind.is_float:
        return np.asarray(left == right)
    with np.errstate(invalid="ignore"):
        a, b = left.astype(np.float64), right.astype(np.float64)
    equal = (a == b) & (np.signbit(a) == np.signbit(b))
    return np.asarray(equal | (np.isnan(a) & np.isnan(b)))


def _inputs(module: Module, values: Mapping[Any, Any]) -> TrialInputs:
    """Inputs with some elements as given, by number of input, element and part; the others are 0."""
    shapes = [
        shape for parameter in module.entry.parameters for _, shape in positions(parameter.shape)
    ]
    arrays = [np.zeros(shape.dims, shape.dtype.numpy) for shape in shapes]
    for (number, at, part), value in values.items():
        flat = arrays[number].reshape(-1)
        if part:
            flat = getattr(flat, part)
        flat[at] = value
    counts = participant_counts(module, None, None)
    return TrialInputs([arrays] * prod(counts), counts, origin="z3")


def _left_out(module: Module) -> str | None:
    for instruction in module.instructions():
        literal = instruction.literal
        if literal is not None and any(part.elided for part in _parts(literal)):
            return (
                f"{module.place(instruction)}: the text leaves out the value of {instruction.name}"
            )
    return None


def _parts(literal: Any) -> Iterator[Any]:
    yield literal
    for element in literal.elements:
        yield from _parts(element)


def _without_header(module: Module) -> Module:
    """A copy without what says nothing of results: layouts, aliases, a schedule."""
    copy = clone_module(module)
    kept = ("replica_count", "num_partitions")
    copy.attributes = {name: copy.attributes[name] for name in kept if name in copy.attributes}
    return copy


def _first_line(error: HlooptError) -> str:
    return str(error).partition("\n")[0].replace(": error: ", ": ")
