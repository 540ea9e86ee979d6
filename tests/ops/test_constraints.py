"""What XLA's shape inference and shape verifier ask of each op, one broken constraint a row.

The tables are in ``constraints/``.  What the verifier asks beside that is tested in ``tests/verifier``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hloopt.ops import OPS
from tests.ops.one import Row, opcode_of, rows, shape_messages

TABLES = sorted((Path(__file__).parent / "constraints").glob("*.txt"))
ROWS = [row for table in TABLES for row in rows(table)]

# Their result is whatever the text says, or follows from what it cannot get wrong: the verifier asks
# other things of them than shapes.
WITHOUT_A_ROW = {"custom-call", "parameter", "constant", "async-done", "async-update"}
# XLA's reader gives them the shape that their operands make, whatever is written.
GIVEN_A_SHAPE = {"recv", "send", "send-done"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bad)
def test_a_broken_constraint_is_refused_with_the_values_that_break_it(row: Row) -> None:
    assert shape_messages(row.bad) == [f"%r: {row.error}"]


@pytest.mark.parametrize("good", dict.fromkeys(row.good for row in ROWS))
def test_its_neighbour_is_accepted(good: str) -> None:
    assert shape_messages(good) == []


def test_bad_and_good_are_instructions_of_one_op_and_differ() -> None:
    for row in ROWS:
        assert row.bad != row.good
        assert opcode_of(row.bad) == opcode_of(row.good)
        assert row.error.startswith(f"{opcode_of(row.bad)}: ")
    assert len({row.bad for row in ROWS}) == len(ROWS)


def test_every_op_that_is_not_elementwise_has_a_row() -> None:
    structural = {opcode for opcode, row in OPS.items() if not row.is_elementwise}
    assert structural - {opcode_of(row.bad) for row in ROWS} == WITHOUT_A_ROW | GIVEN_A_SHAPE
