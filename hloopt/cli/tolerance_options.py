"""Options that say how far results may differ: for every command that compares results."""

from __future__ import annotations

from math import isnan
from typing import Any

import click

from hloopt.cli.options import OptionGroup, option
from hloopt.runtime.tolerance import Tolerance

__all__ = ["TOLERANCE", "given_tolerance"]


class _Number(click.FloatRange):
    """A number from 0 to infinity, not NaN."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        return self.fail("nan is not a tolerance", param, ctx) if isnan(number) else number


_NUMBER = _Number(0)
TOLERANCE = OptionGroup(
    "tolerance",
    option(
        "--rtol",
        type=_NUMBER,
        help="Relative tolerance, in place of what rounding allows each element.",
    ),
    option(
        "--atol",
        type=_NUMBER,
        help="Absolute tolerance; of --rtol and --atol, the one that is not given is 0.",
    ),
    option(
        "--ulp",
        type=click.IntRange(0),
        metavar="N",
        help="Allow N units in the last place instead; --ulp 0 wants equal numbers.",
    ),
    option(
        "--bitwise",
        is_flag=True,
        help="Allow no difference, not even in the sign of a zero or the bits of a NaN.",
    ),
)


def given_tolerance() -> Tolerance:
    """What the running command was given for ``TOLERANCE``.  Raises ``UsageError`` where it is two things."""
    tolerance = Tolerance(**TOLERANCE.given())
    tolerance.check()
    return tolerance
