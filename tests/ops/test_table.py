"""The op table as a whole: every row is complete, and what it says about algebra is true."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloopt.ops import COMMON_ATTRIBUTES, MANY, OPS, Kind, OpDef
from hloopt.types import dtype
from tests.ops.scalars import FEW, all_pairs, apply

ELEMENTWISE = [row for row in OPS.values() if row.is_elementwise]
FAMILIES = {
    *("elementwise", "movement", "indexing", "reduction", "window", "linear", "sort", "control"),
    *("tuple", "random", "collective", "async", "host", "custom", "source"),
}


@pytest.mark.parametrize("row", OPS.values(), ids=lambda row: row.opcode)
def test_a_row_is_complete(row: OpDef) -> None:
    least, most = row.arity
    assert row.family in FAMILIES
    assert row.doc
    assert least in range(most + 1)
    assert most <= MANY
    assert callable(row.infer)
    names = [entry.name for entry in (*row.attributes, *COMMON_ATTRIBUTES)]
    assert len(names) == len(set(names))
    assert all(entry.kind is Kind.WORD for entry in row.attributes if entry.words)
    assert row.is_elementwise == (row.family == "elementwise")
    if not row.is_elementwise:
        assert not any((row.flops, row.transcendentals, row.commutative, row.identity))
    if row.commutative or row.associative or row.identity is not None:
        assert row.arity == (2, 2)
    assert row.flops + row.transcendentals <= 1


def test_the_table_holds_all_opcodes_of_hlo() -> None:
    assert len(OPS) == 133
    assert len({row.opcode for row in OPS.values()}) == 133


def test_only_copy_costs_nothing_among_elementwise_rows() -> None:
    assert {row.opcode for row in ELEMENTWISE if not row.flops + row.transcendentals} == {"copy"}


def test_side_effects_are_those_of_the_world_outside() -> None:
    assert {row.family for row in OPS.values() if row.side_effect} == {
        "host",
        "collective",
        "random",
    }


COMMUTATIVE = [row.opcode for row in OPS.values() if row.commutative]
ASSOCIATIVE = [row.opcode for row in OPS.values() if row.associative]
BITWISE = ("and", "or", "xor")


def test_the_algebra_is_stated_where_it_holds() -> None:
    assert set(COMMUTATIVE) == {
        *("add", "and", "maximum", "minimum", "mulhi", "multiply", "or", "xor")
    }
    assert set(ASSOCIATIVE) == set(COMMUTATIVE) - {"mulhi"}


@pytest.mark.parametrize("element", ["s4", "u8", "s8"])
@pytest.mark.parametrize("opcode", COMMUTATIVE)
def test_commutative_rows_commute_on_all_integers(opcode: str, element: str) -> None:
    x, y = all_pairs(element)
    assert (apply(opcode, element, x, y) == apply(opcode, element, y, x)).all()


@pytest.mark.parametrize(
    "opcode", [name for name in COMMUTATIVE if name not in (*BITWISE, "mulhi")]
)
def test_commutative_rows_commute_on_floats_bit_for_bit(opcode: str) -> None:
    @FEW
    @given(st.floats(allow_nan=False, width=32), st.floats(allow_nan=False, width=32))
    def check(a: float, b: float) -> None:
        one, other = apply(opcode, "f32", [a], [b]), apply(opcode, "f32", [b], [a])
        assert one.tobytes() == other.tobytes() or np.isnan(one).all()

    check()


@pytest.mark.parametrize("element", ["pred", "s4", "u4"])
@pytest.mark.parametrize("opcode", ASSOCIATIVE)
def test_associative_rows_associate_on_all_triples(opcode: str, element: str) -> None:
    if element == "pred":
        values = np.array([False, True])
    else:
        values = np.unique(all_pairs(element)[0].astype(np.int8)).astype(dtype(element).numpy)
    x, y, z = (axis.reshape(-1) for axis in np.meshgrid(values, values, values))
    left = apply(opcode, element, apply(opcode, element, x, y), z)
    right = apply(opcode, element, x, apply(opcode, element, y, z))
    assert (left == right).all()


@pytest.mark.parametrize("element", ["pred", "s4", "u8", "s8", "f32"])
@pytest.mark.parametrize("opcode", [row.opcode for row in OPS.values() if row.identity is not None])
def test_the_identity_changes_nothing(opcode: str, element: str) -> None:
    if element == "f32" and opcode in BITWISE:
        pytest.skip("no bitwise op of floats")
    kind = dtype(element)
    if element in ("pred", "f32"):
        x = np.array([0, 1] if element == "pred" else [0.5, -3.0, np.inf, -np.inf]).astype(
            kind.numpy
        )
        bounds = (
            {"lowest": -np.inf, "highest": np.inf}
            if element == "f32"
            else {"lowest": 0, "highest": 1}
        )
    else:
        x = all_pairs(element)[0]
        wide = x.astype(np.int64)
        bounds = {"lowest": int(wide.min()), "highest": int(wide.max())}
    identity = OPS[opcode].identity
    value = bounds.get(identity, identity) if isinstance(identity, str) else identity
    neutral = np.broadcast_to(np.array(value).astype(kind.numpy), x.shape)
    assert (apply(opcode, element, neutral, x) == x).all()
    assert (apply(opcode, element, x, neutral) == x).all()
