"""Gathers and scatters with more batches of indices than the operand has: nothing beyond it is read or written."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.runtime.inputs import generate

TEXT = """HloModule m
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = f32[] add(x, y) }
ENTRY e {
  x = f32[2,3,4] parameter(0)
  i = s64[3,4,1] parameter(1)
  u = f32[3,4] parameter(2)
  s = f32[2,3,4] scatter(x, i, u), update_window_dims={}, inserted_window_dims={1},
      scatter_dims_to_operand_dims={1}, input_batching_dims={0,2}, scatter_indices_batching_dims={0,1},
      index_vector_dim=2, to_apply=add
  g = f32[3,4] gather(x, i), offset_dims={}, collapsed_slice_dims={1}, start_index_map={1},
      operand_batching_dims={0,2}, start_indices_batching_dims={0,1}, index_vector_dim=2, slice_sizes={1,1,1}
  ROOT t = (f32[2,3,4], f32[3,4]) tuple(s, g)
}
"""


@pytest.mark.parametrize("device", ["cpu", "native", "emulator"])
@pytest.mark.parametrize("level", ["O0", "O2"])
def test_more_batches(device: str, level: str) -> None:
    """Gathers read the last batch again, scatters drop what is outside: as the interpreter has it."""
    module = hloopt.parse(TEXT)
    hloopt.verify(module)
    inputs = generate(module)
    if level != "O0":
        module = hloopt.optimize(module, level)
    wanted = hloopt.evaluate(module, inputs)
    got = hloopt.compile(module, device=device).run(inputs)
    for one, other in zip(got, wanted, strict=True):
        assert one.tobytes() == other.tobytes()
