"""Whether a change gains on this machine: both plans are compiled, and run in turn on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from time import perf_counter
from typing import Any, Final

import numpy as np

from hloopt.analysis.measured import JoinedTimes
from hloopt.backends import compile_module
from hloopt.backends.native.entry import NativeEntry
from hloopt.backends.native.program import NativeProgram
from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError, UnsupportedError
from hloopt.findings.planning import ProgramPlan
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.passes.copy_insertion.tuples import indices
from hloopt.prover.trials import Trial, made
from hloopt.runtime.program import NativeOptions, Options
from hloopt.runtime.timing import Timing, measure_in_turn
from hloopt.types import Array, ArrayShape
from hloopt.types.shape import leaves

__all__ = ["MEASURING", "MeasuredGain", "RealRuns", "called_in_place", "measured_gain"]

MEASURING: Final = ("cpu", "native")
"""Devices whose times are those of the target ``host``."""
_REPEAT: Final = 15
_SECONDS: Final = 2.0
"""How long each side is run at most, once it ran at all."""
_LEAST: Final = 5e-3
"""Seconds of a timed step: shorter runs are repeated within one."""
_LONGEST: Final = 20.0
"""Predicted seconds of a run above which nothing is measured."""


@dataclass(frozen=True)
class RealRuns:
    """What is measured, beside what is predicted.

    joined  gives the times of a run that was traced, by the kernels of the plan: findings are ranked by them
    device  the one on which each change is measured
    """

    joined: Callable[[Module], JoinedTimes] | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class MeasuredGain:
    """A run before and after a change, measured: medians of ``runs`` timed steps, in turn.

    Of a part of a module it is as often as that runs.

    is_sure  whether the two surely differ: their interquartile ranges are disjoint
    reason   why nothing was measured; empty where it was
    """

    device: str
    before: float = 0.0
    after: float = 0.0
    runs: int = 0
    is_sure: bool = False
    reason: str = ""

    @property
    def gains(self) -> bool:
        """Whether the change surely gains."""
        return self.is_sure and self.after < self.before

    def to_json(self) -> dict[str, Any]:
        """As JSON values; seconds of one run."""
        return {
            "device": self.device,
            "seconds_before": None if self.reason else self.before,
            "seconds_after": None if self.reason else self.after,
            "runs": self.runs,
            "gains": None if self.reason else self.gains,
            "sure": self.is_sure,
            "reason": self.reason or None,
        }


def measured_gain(
    plans: tuple[ProgramPlan, ProgramPlan], inputs_of: Module, device: str, times: int = 1
) -> MeasuredGain:
    """What a change gains in time, by runs of both plans; ``inputs_of`` says what their inputs are.

    ``times`` is how often the plans run while the whole program runs once.  What cannot be compiled or run here
    has the reason.  ``native`` runs on one core, as the target has one.
    """
    before, after = plans
    is_donated = _aliases(before.module) != _aliases(after.module)
    if is_donated and device != "native":
        return MeasuredGain(device, reason=f"{device} never writes into the arguments of a run")
    if max(before.seconds, after.seconds) > _LONGEST:
        return MeasuredGain(device, reason="a run takes too long here")
    options: Options | None = NativeOptions(threads=1) if device == "native" else None
    try:
        inputs = made(inputs_of, Trial())
        calls: list[Callable[[], object]]
        if is_donated:
            calls = [called_in_place(plan.module, inputs.arrays[0]) for plan in plans]
        else:
            programs = [
                compile_module(clone_module(plan.module), device, options) for plan in plans
            ]
            calls = [partial(one.run_participants, inputs.arrays) for one in programs]
        steps = [_step(call) for call in calls]
        old, new = measure_in_turn([step for step, _ in steps], _REPEAT, seconds=_SECONDS)
    except HlooptError as error:
        return MeasuredGain(device, reason=error.message)
    one, other = (
        Timing(tuple(spent * times / count for spent in timing.seconds))
        for timing, (_, count) in zip((old, new), steps, strict=True)
    )
    runs = min(len(one.seconds), len(other.seconds))
    return MeasuredGain(device, one.median, other.median, runs, one.is_apart(other))


def _aliases(module: Module) -> object:
    return module.attributes.get("input_output_alias")


def called_in_place(module: Module, given: Sequence[Array]) -> Callable[[], None]:
    """A run of a planned module by ``native`` on one core, with results in the memory of donated arguments.

    All memory is allocated before the run, so that it counts the time of its kernels alone.  A run reads what
    the previous one left in donated arguments.  Raises ``HlooptError`` for what ``native`` does not compile,
    and for inputs and results in another form than row-major arrays.
    """
    program = compile_module(clone_module(module), "native", NativeOptions(threads=1))
    assert isinstance(program, NativeProgram), "the device is native"
    entry = NativeEntry(program)
    inputs = [np.array(array, order="C") for array in given]
    shape = module.entry.root.shape
    places = {index: at for at, index in enumerate(indices(shape))}
    results = [
        np.zeros(part.dims, part.dtype.numpy)
        for part in leaves(shape)
        if isinstance(part, ArrayShape)
    ]
    if len(results) != len(places):
        raise UnsupportedError(f"{shape} is not made of arrays", name=module.name)
    for alias in module.attributes.get("input_output_alias", ()):
        results[places[tuple(alias.output_index)]] = inputs[alias.parameter]
    addresses = [[array.ctypes.data for array in held] for held in (inputs, results)]
    kept = (inputs, results)

    def step() -> None:
        assert kept, "the arrays are alive while they are used"
        entry.call(*addresses)

    return step


def _step(run: Callable[[], object]) -> tuple[Callable[[], object], int]:
    """A step that takes long enough to be timed, and how many runs it has."""
    run()
    start = perf_counter()
    run()
    count = max(1, ceil(_LEAST / max(perf_counter() - start, 1e-7)))

    def step() -> None:
        for _ in range(count):
            run()

    return step, count
