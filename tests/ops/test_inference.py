"""Shape inference against the table of cases: results, pinned messages, layouts, completeness."""

from __future__ import annotations

import pytest

from hloopt.errors import ShapeError
from hloopt.ops import OPS
from hloopt.types import ArrayShape, TupleShape, compatible, without_layout
from tests.ops.cases import BAD, GOOD, Case, shape
from tests.ops.one import shape_messages

# Whatever the operands are, these ops have a result.
CANNOT_FAIL = {
    *(
        "after-all",
        "all-reduce-done",
        "copy",
        "copy-start",
        "domain",
        "opt-barrier",
        "partition-id",
    ),
    *("replica-id", "tuple"),
}


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.label)
def test_inference_gives_the_stated_shape_and_layout(case: Case) -> None:
    assert str(case.infer()) == str(shape(case.result))


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.label)
def test_a_broken_constraint_is_named_with_the_values(case: Case) -> None:
    with pytest.raises(ShapeError) as raised:
        case.infer()
    assert raised.value.message == case.message


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.label)
def test_a_compatible_declared_shape_is_taken_as_it_is(case: Case) -> None:
    """So that layouts, memory spaces and dynamic marks of the text survive."""
    declared = shape(case.result)
    assert case.infer(declared) is declared


@pytest.mark.parametrize(
    "case", [case for case in GOOD if not case.declared], ids=lambda case: case.label
)
def test_a_declared_shape_that_does_not_fit_is_not_taken(case: Case) -> None:
    """Ops that have a shape of their own do not give in; the dots take the element type only."""
    if case.opcode in ("send", "async-done", "custom-call", "constant"):
        pytest.skip("has its own negative case")
    wrong = shape("(f32[77],s2[3],pred[])")
    assert not compatible(case.infer(wrong), wrong)


def test_every_opcode_has_a_case_and_a_negative_case() -> None:
    assert set(OPS) == {case.opcode for case in GOOD}
    assert set(OPS) - CANNOT_FAIL == {case.opcode for case in BAD} - CANNOT_FAIL
    assert not CANNOT_FAIL & {case.opcode for case in BAD}


def test_opcodes_whose_shape_may_be_left_out_are_inferred_without_one() -> None:
    """``inferable`` is a promise to the parser."""
    for case in GOOD:
        if OPS[case.opcode].inferable:
            bare = Case(case.opcode, case.operands, case.result, case.attributes, case.calls)
            if case.opcode == "dot" and case.declared:
                continue  # a preferred element type has to be written
            if case.opcode == "add" and case.declared:
                continue  # a memory space has to be written
            assert compatible(bare.infer(), shape(case.result)), case.label


@pytest.mark.parametrize("opcode", ["add", "transpose", "reduce", "concatenate", "dot", "pad"])
def test_bounded_and_unbounded_dimensions_do_not_break_inference(opcode: str) -> None:
    for case in GOOD:
        if case.opcode != opcode or case.declared:
            continue
        for mark in ("<=", "?"):
            changed = Case(
                opcode,
                " ".join(_marked(part, mark) for part in case.operands.split()),
                "",
                case.attributes,
                case.calls,
            )
            found = changed.infer()
            assert isinstance(found, ArrayShape | TupleShape)
            if mark == "<=":
                assert compatible(without_layout(found), shape(case.result))


def _marked(text: str, mark: str) -> str:
    """The shape with all of its dimensions bounded by their sizes, or unbounded."""
    element, rest = text.split("[")
    dims = rest.split("]")[0]
    sizes = [size.removeprefix("<=") for size in dims.split(",")] if dims else []
    marked = ",".join(mark + (size if mark == "<=" else "") for size in sizes)
    return f"{element}[{marked}]"


def test_sizes_have_64_bits() -> None:
    """Padding that makes a dimension larger than any can be written is told, not inferred."""
    window = "window={size=2 pad=9223372036854775807_100}"
    line = f"f32[5] reduce-window(f32[5], f32[]), {window}, to_apply=<f32[] f32[] -> f32[]>"
    assert shape_messages(line) == [
        "%r: reduce-window: the result has a dimension of 9223372036854775911, more than 9223372036854775807"
    ]
