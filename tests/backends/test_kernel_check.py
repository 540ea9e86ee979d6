"""Each kernel of a run beside the interpreter."""

from __future__ import annotations

import re
from contextlib import closing

import pytest

import hloopt
from hloopt.backends.device_compile import Prepared, prepare
from hloopt.backends.emulator import EmulatorDevice, check_emulator
from hloopt.backends.kernel_check import CheckedProgram
from hloopt.codegen.program import KernelProgram
from hloopt.errors import DeviceError
from hloopt.runtime.inputs import generate

TEXT = """HloModule m

ENTRY e {
  a = f32[40] parameter(0)
  b = f32[40] parameter(1)
  s = f32[40] add(a, b)
  p = f32[40] multiply(s, b)
  ROOT n = f32[40] negate(p)
}
"""


def _program(prepared: Prepared, kernels: KernelProgram | str) -> CheckedProgram:
    try:
        check_emulator()
    except DeviceError as error:
        pytest.skip(str(error))
    return CheckedProgram(prepared.module, prepared.plan, EmulatorDevice("check"), kernels)


def test_the_kernel_that_is_wrong_is_named_and_no_other() -> None:
    """Those after it get its results as their operands, and are right for these."""
    module = hloopt.parse(TEXT)
    prepared = prepare(module)
    inputs = generate(module)
    with closing(_program(prepared, prepared.program)) as program:
        program.run(inputs)
        assert program.findings == []
        assert program.compared == 3
    wrong = re.sub(r"const float p = (\w+) \* ", r"const float p = \1 + ", prepared.source)
    assert wrong != prepared.source
    with closing(_program(prepared, wrong)) as program:
        program.run(inputs)
        (finding,) = program.findings
        assert finding.step.instruction.name == "p"
        assert str(finding).startswith("kernel 1, %p (loop), result 0: ")
        assert len(finding.operands) == 2
        program.most = 1
        program.run(inputs)
        assert program.findings == []
        assert program.compared == 1


def test_a_workspace_nobody_reads_is_not_compared() -> None:
    """A library's second result is memory of its own, which a generated kernel leaves alone."""
    module = hloopt.parse(
        """HloModule m

ENTRY e {
  a = f32[16,32] parameter(0)
  b = f32[32,8] parameter(1)
  c = (f32[16,8], s8[4096]) custom-call(a, b), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"alpha_real":1,"alpha_imag":0,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]},"epilogue":"DEFAULT"}}
  ROOT r = f32[16,8] get-tuple-element(c), index=0
}
"""
    )
    prepared = prepare(module)
    with closing(_program(prepared, prepared.program)) as program:
        program.run(generate(module))
        assert program.compared == 1
        assert program.findings == []
