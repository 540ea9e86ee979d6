"""What each run of the suite has of tests with many cases: every value of every parameter."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest

from tests.helpers.rarely import covering, examples, groups_of_cases, one_in


def test_each_row_is_in_one_case_and_the_columns_take_turns() -> None:
    cases = list(product("abcdefg", range(3)))
    found = [cases[at] for at in covering(cases)]
    assert found == [("a", 0), ("b", 1), ("c", 2), ("d", 0), ("e", 1), ("f", 2), ("g", 0)]


def test_a_column_that_takes_no_turn_is_in_a_case_nevertheless() -> None:
    cases = [("a", 0), ("b", 0), ("c", 0), ("c", 1), ("c", 2), ("d", 0)]
    found = [cases[at] for at in covering(cases)]
    assert {row for row, _ in found} == set("abcd")
    assert {column for _, column in found} == {0, 1, 2}
    assert len(found) == 5


def test_three_parameters_take_turns() -> None:
    cases = list(product(range(5), range(3), range(2)))
    found = [cases[at] for at in covering(cases)]
    assert len(found) == 5
    assert [len(set(values)) for values in zip(*found, strict=True)] == [5, 3, 2]


def test_one_parameter_has_all_its_cases() -> None:
    assert covering([("a",), ("b",), ("c",)]) == [0, 1, 2]
    assert covering([]) == []


def _item(
    test: str,
    slow: bool = False,
    names: tuple[str, ...] = (),
    rows: tuple[str, ...] = ("a", "b"),
    **values: object,
) -> pytest.Item:
    marks = {"every_value": pytest.mark.every_value(*names).mark} if test != "other" else {}
    if slow:
        marks["slow"] = pytest.mark.slow.mark
    return SimpleNamespace(  # type: ignore[return-value]
        nodeid=f"{test}[{values}]",
        get_closest_marker=marks.get,
        iter_markers=lambda _: [pytest.mark.parametrize(row, []).mark for row in rows],
        callspec=SimpleNamespace(params=values),
    )


def _pairs(*counts: int) -> list[tuple[int, ...]]:
    return list(product(*map(range, counts)))


def test_the_cases_of_each_test_are_counted_by_themselves() -> None:
    items = [_item(name, a=a, b=b) for name in ("one", "other", "third") for a, b in _pairs(2, 2)]
    found = list(groups_of_cases(items))
    assert [cases for cases, _ in found] == [items[:4], items[8:]]
    assert [quick for _, quick in found] == [[0, 3], [0, 3]]


def test_the_mark_may_name_parameters() -> None:
    items = [_item("one", names=("a",), a=a, b=b) for a, b in _pairs(3, 4)]
    ((_, quick),) = groups_of_cases(items)
    assert quick == [0, 5, 10]


def test_parameters_of_one_list_are_rows() -> None:
    """Two rows may have the same name, and values without a hash are told apart."""
    lists = [[1], [1], [2]]
    items = [
        _item("one", rows=("name,list", "b"), name="x", list=lists[a], b=b) for a, b in _pairs(3, 2)
    ]
    ((_, quick),) = groups_of_cases(items)
    assert quick == [0, 3, 4]


def test_values_of_several_types_are_told_apart() -> None:
    items = [_item("one", rows=("a",), a=a) for a in (0, False, 0.0, None)]
    ((_, quick),) = groups_of_cases(items)
    assert quick == [0, 1, 2, 3]


def test_what_is_slow_by_itself_covers_nothing() -> None:
    items = [_item("one", slow=a == 0, a=a, b=b) for a, b in _pairs(2, 2)]
    ((cases, quick),) = groups_of_cases(items)
    assert cases == items[2:]
    assert quick == [0, 1]


def test_one_in_marks_the_others_as_slow() -> None:
    found = one_in(2, ["a", "b", "c"])
    assert [[mark.name for mark in case.marks] for case in found] == [[], ["slow"], []]  # type: ignore[attr-defined]


def test_a_quarter_of_the_examples_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLOOPT_SLOW", raising=False)
    assert [examples(count) for count in (4, 12, 60)] == [4, 5, 15]
    monkeypatch.setenv("HLOOPT_SLOW", "1")
    assert examples(60) == 60


@pytest.mark.every_value
@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("column", range(2))
def test_the_suite_has_these(row: int, column: int, request: pytest.FixtureRequest) -> None:
    """The mark is heeded: half of these cases are slow."""
    is_slow = request.node.get_closest_marker("slow") is not None
    ids = {item.nodeid for item in request.session.items}
    others = [request.node.nodeid.replace(f"[{column}-{row}]", f"[{1 - column}-{row}]")]
    if ids.issuperset(others):
        assert is_slow == bool((row + column) % 2)
