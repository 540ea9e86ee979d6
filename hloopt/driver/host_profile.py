"""What ``hloopt run --kernels`` and ``--trace`` measure on cpu and native: how long each kernel takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.driver.writing import write_text
from hloopt.kernels.costs import kernel_costs
from hloopt.report.kernel_times import KernelTimes
from hloopt.runtime.timing import RecordedRun, Timing, measure
from hloopt.targets import find_target

if TYPE_CHECKING:
    from hloopt.driver.options import RunOptions
    from hloopt.driver.reference import Outputs, TimedRun
    from hloopt.runtime.program import Program

__all__ = ["timed_kernels"]

_REPEAT = 5
_SECONDS = 10.0  # unless the options say how many runs there are


def timed_kernels(
    options: RunOptions, program: Program, arrays: Outputs, run: TimedRun, plain: Timing
) -> KernelTimes:
    """Run a program with a clock around its steps; write the trace, if one is wanted.

    ``run`` is the program's own, whose times are ``plain``.
    """
    timed, clock = program.timed()
    runs: list[Sequence[RecordedRun]] = []
    timed_run = replace(run, run=lambda host: timed.run_participants(arrays, host))

    def step() -> None:
        clock.start()
        timed_run()
        runs.append(clock.taken())

    seconds = _SECONDS if options.repeat is None else float("inf")
    timing = measure(step, options.repeat or _REPEAT, seconds=seconds)
    predictor = Predictor(model_for(DEFAULT, find_target("host")))
    found = KernelTimes(
        options.device,
        timed.module,
        clock.steps,
        runs[-len(timing.seconds) :],
        timing,
        plain,
        list(clock.spans()),
        clock.left_out,
        {cost.instruction: cost for cost in kernel_costs(timed.module, predictor)},
        predictor.model.name,
    )
    if options.profiling.trace is not None:
        write_text(options.profiling.trace, json.dumps(found.trace()), timed.module.name)
    return found
