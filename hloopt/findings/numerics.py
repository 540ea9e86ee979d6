"""Numbers that come out otherwise than the ops say, or overflow where they need not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Final

import ml_dtypes
import numpy as np

from hloopt.analysis.cost import module_cost
from hloopt.errors import HlooptError
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.stable import is_shifted, less_most, made_of, on
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ir.build import clone_module
from hloopt.pipelines import parse_pipeline
from hloopt.prover.compare import compare_modules
from hloopt.prover.executor import Executor
from hloopt.prover.trials import Trial, TrialInputs, TrialOptions, made
from hloopt.rewrite import Controls
from hloopt.rewrite.regions import named_combiner
from hloopt.rewrite.site import Site, row_major
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.types.dtype import of_numpy

__all__ = ["inexact_rewrites", "log_sums"]

_FAST: Final = "simplify{fast_math=true}"
_PAIR: Final = "convert(convert(A)) => A"
_FLOPS: Final = 2e7
"""The most that a module may compute for its results to be counted on every class of inputs."""
_LARGE: Final = 100.0
_ANY: Final = Tolerance(rtol=1e-6)
"""Of conversions that are dropped every move counts: that of a whole rounding is what it is about."""


def inexact_rewrites(subject: Subject) -> Iterator[FindingCandidate]:
    """Rewrites of XLA that hold for real numbers, not for floats: elements that come out otherwise."""
    if not subject.is_small or module_cost(subject.module).flops > _FLOPS:
        return
    rewritten = _rewritten(subject.module)
    moved = _moved_by_pairs(
        subject.module, [one for one, rule in rewritten.items() if rule == _PAIR]
    )
    counted = _MovedElements(subject)
    for site, rule in rewritten.items():
        if rule == _PAIR:
            narrow = site.operands[0].array.dtype
            part = float(ml_dtypes.finfo(narrow.numpy).eps) / 2  # type: ignore[no-untyped-call]
            why = (
                f"XLA drops the rounding of %{site.name} to {narrow.name} ({_PAIR}), which moves an element by "
                f"up to {part:.1%}, as it may keep more precision than the program asks for{moved}"
            )
            ways = (
                FindingRemedy("flag", "--xla_allow_excess_precision=false"),
                FindingRemedy("model", "jax.lax.reduce_precision where the rounding is meant"),
            )
        else:
            why = (
                f"XLA's algebraic simplifier rewrites %{site.name}: {rule}, which holds for real numbers "
                "and not for floats that overflow or are rounded in between"
            )
            ways = (
                FindingRemedy("model", "jax.lax.optimization_barrier between the two ops"),
                FindingRemedy("flag", "--xla_disable_hlo_passes=algsimp"),
            )
        yield FindingCandidate(
            (site,),
            f"{why}; counted are elements that differ from those of the ops as written, by more than "
            "rounding, on random inputs and special values.",
            ways,
            _Held(rule),
            (site.operands[0],),
            counted=partial(counted, tolerance=_ANY if rule == _PAIR else FREE),
        )


@cache
def _fast_rules() -> frozenset[str]:
    (instance,) = parse_pipeline(_FAST).passes()
    return frozenset(rule for rule, needs in instance.rules.items() if needs)


def _rewritten(module: Module) -> dict[Instruction, str]:
    """What XLA rewrites beyond rounding, by its own default, with the rule."""
    found = {one: _PAIR for one in module.instructions() if _is_pair(one)}
    report = parse_pipeline(_FAST).run(clone_module(module), controls=Controls(remarks=True))
    for logged in report.remarks():
        remark = logged.remark
        home = module.computations.get(remark.computation)
        site = None if home is None else home.by_name.get(remark.instruction)
        if remark.kind == "passed" and remark.rule in _fast_rules() and site is not None:
            found.setdefault(site, remark.rule)
    return {one: rule for one, rule in found.items() if one.operands}


def _is_pair(instruction: Instruction) -> bool:
    """A conversion to a narrower float and back."""
    if instruction.opcode != "convert" or instruction.operands[0].opcode != "convert":
        return False
    inner = instruction.operands[0]
    wide, narrow, source = (one.array.dtype for one in (instruction, inner, inner.operands[0]))
    return wide is source and wide.is_float and narrow.is_float and narrow.bits < wide.bits


def _moved_by_pairs(module: Module, pairs: Sequence[Instruction]) -> str:
    """How far results move without the roundings of such pairs, in words; empty where that is not seen."""
    if not pairs:
        return ""
    kept = clone_module(module)
    for pair in pairs:
        one = kept.computations[pair.home.name].by_name[pair.name]
        edit.replace_instruction(one, one.operands[0].operands[0])
    options = TrialOptions(trials=1)
    try:
        found = compare_modules(
            module, kept, trials=options, executor=Executor("cpu"), tolerance=_ANY
        )
    except HlooptError:  # something in the module that nothing here runs
        return ""
    most = max((one.relative for one in found.trials[-1].results), default=0.0)
    several = f"all {len(pairs)} such roundings together move" if len(pairs) > 1 else "it moves"
    return (
        f"; on random inputs {several} results by up to {most:.2%} of their value" if most else ""
    )


class _MovedElements:
    """The figure: elements of the results that such rewrites move by more than rounding.

    The subject's own is the same for all of its rewrites, and is counted once.  Where some are held back by
    barriers, all ops as written are still those of the subject, which is evaluated once.
    """

    def __init__(self, subject: Subject) -> None:
        self._module = subject.module
        self._runs = subject.first_runs
        self._known: dict[Tolerance, float] = {}

    def __call__(self, module: Module, tolerance: Tolerance) -> float:
        """Of one module, on the inputs that show most."""
        if module is not self._module:
            return self._counted(module, tolerance)
        if tolerance not in self._known:
            self._known[tolerance] = self._counted(module, tolerance)
        return self._known[tolerance]

    def _counted(self, module: Module, tolerance: Tolerance) -> float:
        fast = clone_module(module)
        pairs = [one for one in fast.instructions() if _is_pair(one)]
        for pair in pairs:
            edit.replace_instruction(pair, pair.operands[0].operands[0])
        if not parse_pipeline(_FAST).run(fast).changed and not pairs:
            return 0.0
        most = 0
        for special in ((), ("largest",), ("cancelling",)):
            try:
                found = compare_modules(
                    self._module,
                    fast,
                    trials=TrialOptions(trials=1, special=special),
                    executor=Executor("cpu"),
                    tolerance=tolerance,
                    kept=self._runs,
                )
            except HlooptError:  # a class that no input can be of
                continue
            most = max(most, sum(one.mismatches for one in found.trials[-1].results))
        return float(most)


class _Held:
    """The change: a barrier that the rewrite of a rule does not see through."""

    def __init__(self, rule: str) -> None:
        self.rule = rule

    def __call__(self, module: Module, places: Sequence[Instruction]) -> bool:
        """Whether there is something to hold back."""
        for site in places:
            operand = site.operands[0]
            held = build.make(site, "opt-barrier", (operand,), {}, shape=operand.shape)
            edit.replace_operand(site, operand, held)
        return True


def log_sums(subject: Subject) -> Iterator[FindingCandidate]:
    """log(sum(exp(x))) without the maximum taken off before: it overflows from 89 on in f32."""
    if not subject.is_small or module_cost(subject.module).flops > _FLOPS:
        return
    for log in subject.module.instructions():
        found = _log_sum(log)
        if found is None:
            continue
        total, power = found
        yield FindingCandidate(
            (log, total, power),
            f"%{power.name} is infinite where an element of %{power.operands[0].name} is above 88 (f32), and "
            f"so is %{log.name}, though log(sum(exp(x))) itself is near the largest x; counted are results "
            f"that are not finite on inputs {_LARGE:g} times as large as usual.",
            (
                FindingRemedy(
                    "model", "jax.nn.logsumexp, or log_softmax: they take the maximum off first"
                ),
            ),
            _shifted,
            (power,),
            counted=_not_finite,
        )


def _log_sum(log: Instruction) -> tuple[Instruction, Instruction] | None:
    if log.opcode != "log":
        return None
    total = made_of(log.operands[0], {"convert"})
    if total.opcode != "reduce" or len(total.operands) != 2:
        return None
    if named_combiner(total.to_apply) != "add":
        return None
    power = made_of(total.operands[0], {"convert"})
    if power.opcode != "exponential" or is_shifted(power.operands[0]):
        return None
    return total, power


def _shifted(module: Module, places: Sequence[Instruction]) -> bool:
    """Take the maximum off before, and add it behind."""
    for log in [one for one in places if one.opcode == "log"]:
        found = _log_sum(log)
        if found is None:
            return False
        site = Site(log)
        again, largest = less_most(*found, site)
        if largest.array.dtype != log.array.dtype:
            largest = site.make("convert", largest, shape=row_major(log.array, log.array.dims))
        logged = site.make("log", on(site, log.operands[0], found[1], again))
        site.replace(site.make("add", logged, largest))
    return True


def _not_finite(module: Module) -> float:
    """Results that are not finite on random inputs made large."""
    plain = made(module, Trial(), 1, 1)
    large = [
        array * array.dtype.type(_LARGE) if of_numpy(array.dtype).is_float else array
        for array in plain.arrays[0]
    ]
    with np.errstate(all="ignore"):
        run = Executor("cpu").run(module, TrialInputs([large]))
    return float(
        sum(
            int((~np.isfinite(one)).sum()) for one in run.results[0] if of_numpy(one.dtype).is_float
        )
    )
