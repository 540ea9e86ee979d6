"""Arrays that a program holds as constants: all of them are one finding, and results are those with arguments."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.findings import Findings

WIDE = 300


def _module(values: np.ndarray, others: str = "") -> hloopt.Module:
    rows = ", ".join("{" + ", ".join(map(str, row)) + "}" for row in values)
    return hloopt.parse(f"""HloModule m, entry_computation_layout={{(f32[4,{WIDE}]{{1,0}})->f32[4,{WIDE}]{{1,0}}}}
ENTRY main {{
  x = f32[4,{WIDE}]{{1,0}} parameter(0)
  w = f32[{WIDE},{WIDE}]{{1,0}} constant({{ {rows} }})
  ROOT y = f32[4,{WIDE}]{{1,0}} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, metadata={{op_name="jit(f)/dot" source_file="model.py" source_line=7}}
}}
""")


def _why(module: hloopt.Module) -> Findings:
    return hloopt.why(module, kinds=["captured-constant"])


def test_the_results_are_compared_with_the_same_array_as_an_argument() -> None:
    """The gain counts its bytes, the line is the reader's, and the verdict is that of two runs."""
    values = np.arange(WIDE * WIDE, dtype=np.float32).reshape(WIDE, WIDE) % 7
    (row,) = _why(_module(values)).rows
    assert row.instruction == "w"
    assert row.lines == ("model.py:7",)
    assert (row.gain.before, row.gain.after) == (WIDE * WIDE * 4, 0)
    assert row.gain.unit == "bytes of constants"
    assert (row.gain.verdict, row.gain.reason) == ("equal", "with the same arrays as arguments")
    assert row.blocking == ("y",)


@pytest.mark.parametrize("size", [1, 2])
def test_one_value_everywhere_is_no_array_of_the_user(size: int) -> None:
    """It is written as a broadcast; two values are an array."""
    values = np.zeros((WIDE, WIDE), np.float32)
    values[-1, -1] = size - 1
    assert len(_why(_module(values)).rows) == size - 1
