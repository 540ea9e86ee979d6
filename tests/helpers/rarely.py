"""Cases that each run has, and cases that only a run of the slow tests has."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def one_in(step: int, cases: Iterable[object], named: bool = False) -> list[object]:
    """Cases for ``parametrize``: the first of each ``step`` as it is, the others marked as slow.

    A case of several values is a tuple.  ``named``: the cases are pairs of a name and a case.
    """
    found: list[object] = []
    for number, case in enumerate(cases):
        name, value = case if named else (None, case)  # type: ignore[misc]
        values = value if isinstance(value, tuple) else (value,)
        marks = [pytest.mark.slow] * bool(number % step)
        found.append(pytest.param(*values, id=name, marks=marks))
    return found
