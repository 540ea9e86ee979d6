"""Parameters that are missing, and parameters and results in another order."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.prover.compare import ModulesCompared

TEXT = """HloModule m, input_output_alias={ {0}: (2, {}, may-alias) }
ENTRY e {
  a = f32[8] parameter(0)
  n = s32[3] parameter(1)
  b = f32[8] parameter(2)
  c = f32[8] subtract(a, b)
  d = f32[8] add(a, b)
  ROOT t = (f32[8], f32[8]) tuple(c, d)
}
"""
PRUNED = (
    TEXT.replace("  n = s32[3] parameter(1)\n", "")
    .replace("parameter(2)", "parameter(1)")
    .replace("(2, {}", "(1, {}")
)
SWAPPED = PRUNED.replace("a = f32[8] parameter(0)", "a = f32[8] parameter(1)").replace(
    "b = f32[8] parameter(1)", "b = f32[8] parameter(0)"
)


def compared(before: str, after: str, **options: object) -> ModulesCompared:
    return hloopt.compare(hloopt.parse(before), hloopt.parse(after), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("before", "after"), [(TEXT, PRUNED), (PRUNED, TEXT)])
def test_a_parameter_that_nothing_uses_may_be_missing(before: str, after: str) -> None:
    found = compared(before, after)
    assert found.equal
    assert found.notes == ("m lacks parameter 1 (%n), which m does not use",)
    assert not found.reordered


def test_a_difference_beside_a_missing_parameter_is_found() -> None:
    found = compared(TEXT, PRUNED.replace("add(a, b)", "maximum(a, b)"))
    assert found.verdict == "differ"
    assert found.first is not None
    assert (found.first.after.name, found.first.after.place) == ("d", "<text>:6:3")
    assert len(found.given.arrays[0]) == 3


def test_a_parameter_that_is_used_may_not_be_missing() -> None:
    used = TEXT.replace("add(a, b)", "add(a, a)").replace("s32[3]", "f32[8]")
    used = used.replace("subtract(a, b)", "subtract(n, b)")
    with pytest.raises(UsageError, match="are not the same: 3 arrays and 2"):
        compared(used, PRUNED)


def test_either_module_may_lack_a_parameter_that_the_other_does_not_use() -> None:
    """The inputs are those of the first; one that both have, and neither uses, is not mentioned."""
    other = TEXT.replace("n = s32[3]", "m = u32[2]").replace(
        "ENTRY e {", "ENTRY e {\n  k = s8[] parameter(3)"
    )
    found = compared(TEXT.replace("ENTRY e {", "ENTRY e {\n  k = s8[] parameter(3)"), other)
    assert found.equal
    assert [array.dtype.name for array in found.given.arrays[0]] == [
        "float32",
        "int32",
        "float32",
        "int8",
    ]
    assert found.notes == (
        "m lacks parameter 1 (%m), which m does not use",
        "m lacks parameter 1 (%n), which m does not use",
    )
    wrong = compared(TEXT, other.replace("add(a, b)", "add(a, a)"))
    assert wrong.first is not None
    assert (wrong.first.after.name, wrong.first.after.place) == ("d", "<text>:8:3")


def test_parameters_of_other_types_are_matched_by_name() -> None:
    before = TEXT.replace("add(a, b)", "maximum(a, b)")
    after = before.replace("parameter(0)", "parameter(9)").replace("parameter(1)", "parameter(0)")
    after = after.replace("parameter(9)", "parameter(1)")
    found = compared(before, after)
    assert found.equal
    assert found.notes == ("the parameters of m are matched by name: they are in another order",)


def test_swapped_results_are_all_that_differs() -> None:
    found = compared(PRUNED, PRUNED.replace("tuple(c, d)", "tuple(d, c)"))
    assert found.verdict == "differ"
    assert [str(one) for one in found.reordered] == ["results 0 and 1 are swapped"]
    assert found.notes == ("results 0 and 1 are swapped: that is all that differs",)
    assert found.first is None
    assert found.to_json()["reordered"] == [{"what": "results", "order": [1, 0], "guessed": False}]


def test_results_that_go_round_are_named_by_their_places() -> None:
    text = PRUNED.replace("(f32[8], f32[8]) tuple(c, d)", "(f32[8], f32[8], f32[8]) tuple(c, d, a)")
    found = compared(text, text.replace("tuple(c, d, a)", "tuple(d, a, c)"))
    assert [str(one) for one in found.reordered] == ["results 0, 1, 2 after are 1, 2, 0 before"]


def test_swapped_parameters_are_known_by_their_names() -> None:
    found = compared(PRUNED, SWAPPED)
    assert found.notes == ("parameters 0 and 1 are swapped: that is all that differs",)
    assert found.first is None
    both = compared(PRUNED, SWAPPED.replace("tuple(c, d)", "tuple(d, c)"))
    assert [one.what for one in both.reordered] == ["parameters", "results"]


def test_swapped_parameters_without_names_are_guessed_and_the_difference_is_shown() -> None:
    """Swapped operands look the same."""
    found = compared(PRUNED, PRUNED.replace("subtract(a, b)", "subtract(b, a)"))
    assert found.notes == ("the modules agree where parameters 0 and 1 are swapped",)
    assert found.first is not None
    assert found.first.after.name == "c"


def test_another_error_is_not_an_order() -> None:
    found = compared(PRUNED, PRUNED.replace("tuple(c, d)", "tuple(d, d)"))
    assert not found.reordered
    assert found.first is not None


def test_the_module_that_was_given_is_not_changed() -> None:
    before, after = hloopt.parse(TEXT), hloopt.parse(PRUNED)
    texts = before.to_text(), after.to_text()
    hloopt.compare(before, after)
    assert (before.to_text(), after.to_text()) == texts
