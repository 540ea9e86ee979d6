"""The one price of a kernel, where it is not what strategies decide by."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import model_for
from hloopt.ir import Instruction
from hloopt.targets import find_target


def _added_rows(array: str, rows: int) -> Instruction:
    """A fusion that adds ``rows`` rows to an array of 50,000, an argument or zeros."""
    module = hloopt.parse(f"""HloModule m
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
body {{
  x = f32[50000,64] parameter(0)
  at = s32[{rows},1] parameter(1)
  up = f32[{rows},64] parameter(2)
  zero = f32[] constant(0)
  zeros = f32[50000,64] broadcast(zero), dimensions={{}}
  by = f32[{rows},64] negate(up)
  ROOT s = f32[50000,64] scatter({array}, at, by), update_window_dims={{1}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=sum
}}
ENTRY e {{
  x = f32[50000,64] parameter(0)
  at = s32[{rows},1] parameter(1)
  up = f32[{rows},64] parameter(2)
  ROOT f = f32[50000,64] fusion(x, at, up), kind=kInput, calls=body
}}
""")
    return module.entry.root


@pytest.mark.parametrize(
    ("array", "rows", "written"),
    [("x", 8, 8 * 64 * 4), ("x", 400_000, 50_000 * 64 * 4), ("zeros", 8, 50_000 * 64 * 4)],
    ids=["in place", "more than the array", "of an array made there"],
)
def test_a_fused_scatter_writes_what_its_updates_reach(array: str, rows: int, written: int) -> None:
    """XLA's model has the whole array written, and decides by that: what it runs does not take so long."""
    model = model_for("xla-2026", find_target("h200"))
    kernel = _added_rows(array, rows)
    decided, (priced, _) = model.run_time(kernel), Predictor(model).run_time(kernel)
    assert decided.bytes_written == 50_000 * 64 * 4
    assert priced.bytes_written == written
    assert (priced.exec_ns < decided.exec_ns) == (written < decided.bytes_written)
