"""Cases that each run has, and cases that only a run of the slow tests has."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence

import pytest

__all__ = ["covering", "examples", "groups_of_cases", "one_in"]


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


def examples(count: int) -> int:
    """How many examples a property test draws: all of them among the slow tests, else a quarter."""
    return count if os.environ.get("HLOOPT_SLOW") else max(count // 4, min(count, 5))


def covering(cases: Sequence[Sequence[Hashable]]) -> list[int]:
    """Few of the cases, in their order, in which each parameter has each of its values.

    Each value of the parameter that has most of them is in one case; the others take turns.
    """
    parameters = range(len(cases[0])) if cases else range(0)
    missing = [set(values) for values in zip(*cases, strict=True)]
    chosen: set[int] = set()
    for parameter in sorted(parameters, key=lambda one: -len(missing[one])):
        having: dict[Hashable, list[int]] = defaultdict(list)
        for number, case in enumerate(cases):
            having[case[parameter]].append(number)
        for turn, (value, numbers) in enumerate(having.items()):
            if value in missing[parameter]:
                start = turn % len(numbers)
                best = max(
                    numbers[start:] + numbers[:start],
                    key=lambda one: sum(cases[one][at] in missing[at] for at in parameters),
                )
                chosen.add(best)
                for at in parameters:
                    missing[at].discard(cases[best][at])
    return sorted(chosen)


def groups_of_cases(items: Iterable[pytest.Item]) -> Iterator[tuple[list[pytest.Item], list[int]]]:
    """The cases of each test with the mark ``every_value``, and those of them that each run has.

    The names in the mark say which parameters it is about.  Without any, each row of each ``parametrize`` is
    in a case.  What is slow by itself is no case.
    """
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("every_value") and not item.get_closest_marker("slow"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for found in tests.values():
        mark = found[0].get_closest_marker("every_value")
        assert mark is not None
        yield found, covering([_values(item, mark.args) for item in found])


def _values(item: pytest.Item, names: Sequence[str]) -> list[Hashable]:
    """What a case has of the parameters named, or of the parameters of each ``parametrize``."""
    params = item.callspec.params  # type: ignore[attr-defined]
    together = [[name] for name in names]
    if not names:
        for mark in item.iter_markers("parametrize"):
            given = mark.args[0]
            listed = given.split(",") if isinstance(given, str) else given
            together.append([name.strip() for name in listed if name.strip()])
    return [tuple(_key(params[name]) for name in row) for row in together]


def _key(value: object) -> Hashable:
    """What equal values have in common; those without a hash are told apart as objects."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value
