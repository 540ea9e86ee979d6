"""Arrays without elements natively: nothing is read of them, and what does not need them is there."""

from __future__ import annotations

import hloopt
from hloopt.backends.native.compile import compile_native
from hloopt.runtime.inputs import generate
from tests.helpers.joined_modules import joined

REGIONS = """HloModule m
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = f32[] add(x, y) }
most { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = pred[] compare(x, y), direction=GE }
less {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT z = pred[] compare(x, y), direction=LT
}
"""

GATHER = """x = f32[{rows},2] parameter(0)
  i = s32[3] parameter(1)
  ROOT g = f32[3,2] gather(x, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
      index_vector_dim=1, slice_sizes={{0,2}}"""

CASES = {
    "gather of nothing": GATHER.format(rows=0),
    "gather of slices of none": GATHER.format(rows=5),
    "dot": """x = f32[3,0] parameter(0)
  y = f32[0,4] parameter(1)
  ROOT d = f32[3,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "dot of integers": """x = s8[300,0] parameter(0)
  y = s8[0,400] parameter(1)
  ROOT d = s32[300,400] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "convolution without features": """x = f32[1,3,0] parameter(0)
  k = f32[2,0,4] parameter(1)
  ROOT c = f32[1,2,4] convolution(x, k), window={size=2}, dim_labels=b0f_0io->b0f""",
    "convolution of padding": """x = f32[1,0,2] parameter(0)
  k = f32[2,2,4] parameter(1)
  ROOT c = f32[1,3,4] convolution(x, k), window={size=2 pad=2_2}, dim_labels=b0f_0io->b0f""",
    "columns": """x = f32[0,30] parameter(0)
  z = f32[] constant(3)
  ROOT r = f32[30] reduce(x, z), dimensions={0}, to_apply=add""",
    "rows": """x = f32[30,0] parameter(0)
  z = f32[] constant(3)
  ROOT r = f32[30] reduce(x, z), dimensions={1}, to_apply=add""",
    "window": """x = f32[0] parameter(0)
  z = f32[] constant(3)
  ROOT r = f32[4] reduce-window(x, z), window={size=2 pad=3_2}, to_apply=add""",
    "pad": """x = f32[0,3] parameter(0)
  z = f32[] constant(3)
  ROOT p = f32[2,3] pad(x, z), padding=1_1_3x0_0""",
    "concatenate": """x = f32[0,3] parameter(0)
  y = f32[2,3] parameter(1)
  n = f32[0,3] negate(x)
  m = f32[2,3] negate(y)
  ROOT c = f32[4,3] concatenate(n, m, x, y), dimensions={0}""",
    "scatter of nothing": """x = f32[4,3] parameter(0)
  i = s32[0,1] parameter(1)
  u = f32[0,3] parameter(2)
  ROOT s = f32[4,3] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add""",
    "scatter into nothing": """x = f32[0,3] parameter(0)
  i = s32[2,1] parameter(1)
  u = f32[2,3] parameter(2)
  ROOT s = f32[0,3] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add""",
    "update": """x = f32[4,3] parameter(0)
  u = f32[0,3] parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  ROOT d = f32[4,3] dynamic-update-slice(x, u, i, z)""",
    "sort": """x = f32[0] parameter(0)
  y = s32[0] iota(), iota_dimension=0
  ROOT s = (f32[0], s32[0]) sort(x, y), dimensions={0}, to_apply=less""",
    "fft": """x = c64[0,8] parameter(0)
  ROOT f = c64[0,8] fft(x), fft_type=FFT, fft_length={8}""",
    "cholesky": """x = f32[0,0] parameter(0)
  ROOT c = f32[0,0] cholesky(x)""",
    "triangular-solve": """x = f32[0,0] parameter(0)
  b = f32[0,3] parameter(1)
  ROOT t = f32[0,3] triangular-solve(x, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE""",
    "select-and-scatter": """x = f32[4] parameter(0)
  s = f32[0] parameter(1)
  z = f32[] constant(0)
  ROOT r = f32[4] select-and-scatter(x, s, z), window={size=5}, select=most, scatter=add""",
}


def test_without_elements() -> None:
    """Bit for bit the interpreter's, as they are and after -O2, on the NumPy executor too."""
    given = [hloopt.parse(f"{REGIONS}ENTRY e {{\n  {body}\n}}\n") for body in CASES.values()]
    forms = []
    for module in given:
        hloopt.verify(module)
        forms += [module, hloopt.optimize(module, "O2")]
    names = [name for name in CASES for _ in range(2)]
    inputs = [generate(module) for module in forms]
    got = iter(compile_native(joined(forms)).run([array for arrays in inputs for array in arrays]))
    for name, module, arrays in zip(names, forms, inputs, strict=True):
        wanted = hloopt.evaluate(module, arrays)
        for want, ran in zip(wanted, hloopt.compile(module).run(arrays), strict=True):
            assert want.tobytes() == ran.tobytes() == next(got).tobytes(), name


def test_slices_of_none_are_zeros() -> None:
    """A gather that drops a dimension of slices of size 0 has results, of nothing."""
    module = hloopt.parse(f"{REGIONS}ENTRY e {{\n  {CASES['gather of slices of none']}\n}}\n")
    (found,) = hloopt.evaluate(module, generate(module))
    assert found.tolist() == [[0, 0]] * 3
