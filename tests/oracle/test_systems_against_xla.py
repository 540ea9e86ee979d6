"""XLA computes the same from modules in which systems are solved by LAPACK, before and after ``linear-systems``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.linear_algebra.systems import LinearSystems
from hloopt.rewrite import PassLog
from tests.oracle.oracle import ask, available

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not available(), reason="no jaxlib: install the extra xla"),
    pytest.mark.timeout(600),
]

N = 48
MATRIX, COLUMNS = f"f32[{N},{N}]{{1,0}}", f"f32[{N},{N}]{{0,1}}"
VECTOR = f"f32[{N}]{{0}}"


def _call(name: str, right: str, diagonal: str, triangle: str) -> str:
    """A system as JAX has LAPACK solve it, which writes matrices column by column."""
    codes = f"diag = {ord(diagonal)} : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = {ord(triangle)} : ui8"
    return (
        f'{name} = {COLUMNS} custom-call(a, {right}), custom_call_target="lapack_strsm_ffi", '
        f"operand_layout_constraints={{{COLUMNS}, {COLUMNS}}}, api_version=API_VERSION_TYPED_FFI, "
        f"output_to_operand_aliasing={{{{}}: (1, {{}})}}, backend_config={{{codes}}}\n"
    )


INVERSE = f"""rows = s32[{N},{N}]{{1,0}} iota(), iota_dimension=0
columns = s32[{N},{N}]{{1,0}} iota(), iota_dimension=1
mask = pred[{N},{N}]{{1,0}} compare(rows, columns), direction=EQ
eye = {MATRIX} convert(mask)
places = s32[{N},1]{{1,0}} reshape(order)
moved = {MATRIX} gather(eye, places), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
  index_vector_dim=1, slice_sizes={{1,{N}}}
{_call("l", "moved", "U", "L")}{_call("inverse", "l", "N", "U")}"""

PROGRAMS = {
    "vector": f"ROOT r = {VECTOR} dot(inverse, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
    "row": f"ROOT r = {VECTOR} dot(b, inverse), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}",
    "matrix": f"ROOT r = {MATRIX} dot(inverse, c), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
    "columns": f"ROOT r = {COLUMNS} dot(inverse, c), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}",
    "from the left": f"ROOT r = {MATRIX} dot(c, inverse), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
    "outer": f"""left = {MATRIX} broadcast(b), dimensions={{0}}
      right = {MATRIX} broadcast(b), dimensions={{1}}
      both = {MATRIX} multiply(left, right)
      {_call("x", "both", "N", "U")}ROOT r = {MATRIX} negate(x)""",
}


def _computed(
    module: Module, folder: Path, name: str, arrays: list[np.ndarray[Any, Any]]
) -> np.ndarray[Any, Any]:
    path, given, made = (folder / f"{name}.{end}" for end in ("hlo", "in.npz", "out.npz"))
    path.write_text(module.to_text())
    np.savez(given, **{f"in_{at}": array for at, array in enumerate(arrays)})
    ask("run", str(path), str(given), str(made))
    with np.load(made) as results:
        return np.asarray(results["out_0"])


@pytest.mark.parametrize("name", PROGRAMS)
def test_xla_computes_the_same(name: str, tmp_path: Path) -> None:
    text = f"""HloModule m
    ENTRY e {{
      a = {MATRIX} parameter(0)
      b = {VECTOR} parameter(1)
      c = {MATRIX} parameter(2)
      order = s32[{N}]{{0}} parameter(3)
      {INVERSE}{PROGRAMS[name]}
    }}"""
    module = hloopt.parse(text, name)
    hloopt.verify(module)
    better = clone_module(module)
    assert LinearSystems(reassociate=True, target="host").run(better, PassLog())
    hloopt.verify(better)
    numbers = np.random.default_rng(0)
    arrays = [
        (numbers.uniform(-1, 1, (N, N)) / N + 2 * np.eye(N)).astype(np.float32),
        numbers.uniform(-1, 1, N).astype(np.float32),
        numbers.uniform(-1, 1, (N, N)).astype(np.float32),
        numbers.permutation(N).astype(np.int32),
    ]
    want, got = (
        _computed(one, tmp_path, str(at), arrays) for at, one in enumerate((module, better))
    )
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * float(np.abs(want).max()))
