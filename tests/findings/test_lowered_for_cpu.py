"""Modules that JAX lowered for a CPU, looked at for a GPU."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

import hloopt
from hloopt.findings import Findings
from hloopt.report.findings import show_findings

LU = """HloModule lu
ENTRY main {{
  a = f32[64,64]{{1,0}} parameter(0)
  f = (f32[64,64]{{1,0}}, s32[64]{{0}}, s32[]) custom-call(a), custom_call_target="{target}", operand_layout_constraints={{f32[64,64]{{1,0}}}}, api_version=API_VERSION_TYPED_FFI
  ROOT r = f32[64,64] get-tuple-element(f), index=0
}}
"""


def found(text: str, target: str = "h200") -> Findings:
    return hloopt.why(hloopt.parse(text), target, kinds=["one-hot-product"])


def said(row: Findings) -> str:
    """As it is printed, on one line."""
    console = Console(file=StringIO(), width=80)
    show_findings(row, console)
    assert isinstance(console.file, StringIO)
    return " ".join(console.file.getvalue().split())


def test_calls_of_lapack_are_a_cpus() -> None:
    """The prices of a GPU's plan with them say little."""
    answer = found(LU.format(target="lapack_sgetrf_ffi"))
    assert answer.lowering is not None
    assert answer.lowering.calls == ("f",)
    assert answer.to_json()["lowered_for_cpu"] == {"calls": ["f"], "loops": [], "count": 1}
    assert "%f calls LAPACK: JAX lowered the module for a CPU" in said(answer)


@pytest.mark.parametrize(
    ("call", "target"), [("cusolver_getrf_ffi", "h200"), ("lapack_sgetrf_ffi", "host")]
)
def test_what_is_where_it_belongs_has_no_note(call: str, target: str) -> None:
    """cuSOLVER on a GPU, LAPACK on a CPU."""
    answer = found(LU.format(target=call), target)
    assert answer.lowering is None
    assert answer.to_json()["lowered_for_cpu"] is None
    assert "JAX lowered" not in said(answer)
