"""What the running command was given for groups of options, as the records of those who do the work."""

from __future__ import annotations

from typing import Any

import click

from hloopt.cli.kernel_options import KERNELS
from hloopt.cli.pipeline_options import PASSES
from hloopt.cli.tolerance_options import TOLERANCE
from hloopt.cli.trial_options import EXECUTOR, TRIALS
from hloopt.driver.options import KernelOptions, PassOptions
from hloopt.driver.passes import Chosen, choose_passes
from hloopt.prover.executor import Executor
from hloopt.prover.trials import TrialOptions
from hloopt.runtime.tolerance import Tolerance

__all__ = [
    "chosen_passes",
    "executor",
    "executor_fields",
    "given_tolerance",
    "kernel_options",
    "pass_options",
    "trial_options",
]


def pass_options() -> PassOptions:
    """What the running command was given for ``PASSES``."""
    return PassOptions(**PASSES.given())


def chosen_passes(kernels: KernelOptions) -> Chosen:
    """The pipeline and controls that the running command's options select; notes go to stderr.

    Raises ``UsageError`` for several pipelines at once, and for unknown names.
    """
    choice = choose_passes(pass_options(), kernels)
    for note in choice.notes:
        click.echo(f"note: {note}", err=True)
    return choice


def kernel_options() -> KernelOptions:
    """What the running command was given for ``KERNELS``."""
    given = KERNELS.given()
    wishes, files, rule = given.pop("kernel")
    return KernelOptions(kernel=wishes, kernel_file=files, kernel_rule=rule, **given)


def given_tolerance() -> Tolerance:
    """What the running command was given for ``TOLERANCE``."""
    tolerance = Tolerance(**TOLERANCE.given()["tolerance"])
    tolerance.check()
    return tolerance


def trial_options() -> TrialOptions:
    """What the running command was given for ``TRIALS``, checked."""
    given = TRIALS.given()
    options = TrialOptions(**given.pop("participants"), **given)
    options.check()
    return options


def executor_fields() -> dict[str, Any]:
    """What the running command was given for ``EXECUTOR``, as the fields of an ``Executor``."""
    given = EXECUTOR.given()
    fields = given.pop("rounding")
    if "timeout" in given:
        fields["seconds"] = given.pop("timeout")
    return {**given, **fields}


def executor() -> Executor:
    """What the running command was given for ``EXECUTOR``.

    Raises ``UsageError`` for an unknown one, ``DeviceError`` for one that this machine lacks.
    """
    made = Executor(**executor_fields())
    made.check()
    return made
