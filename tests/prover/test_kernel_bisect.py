"""A kernel that is wrong is named, with its instruction, and what mends it is tried."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.backends import check_device
from hloopt.backends.device_compile import Prepared
from hloopt.errors import DeviceError, UsageError
from hloopt.prover import kernel_bisect, numpy_check
from hloopt.prover.bisection import Bisection
from hloopt.prover.kernel_bisect import KernelSearch
from hloopt.prover.trials import Trial, TrialInputs, made
from tests.prover.broken_passes import DropsTerm

TEXT = """HloModule m

ENTRY e {
  a = f32[40] parameter(0)
  b = f32[40] parameter(1)
  s = f32[40] add(a, b)
  p = f32[40] multiply(s, b), metadata={op_name="jit(f)/mul" source_file="model.py" source_line=7}
  ROOT n = f32[40] negate(p)
}
"""
FUSED = """HloModule m

body {
  x = f32[40] parameter(0)
  y = f32[40] parameter(1)
  p = f32[40] multiply(x, y)
  ROOT n = f32[40] negate(p)
}

ENTRY e {
  a = f32[40] parameter(0)
  b = f32[40] parameter(1)
  s = f32[40] add(a, b)
  ROOT f = f32[40] fusion(s, b), kind=kLoop, calls=body
}
"""
SUMMED = """HloModule m

sum { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y) }

body {
  x = f32[8,64] parameter(0)
  zero = f32[] constant(0)
  n = f32[8,64] negate(x)
  ROOT r = f32[8] reduce(n, zero), dimensions={1}, to_apply=sum
}

ENTRY e {
  a = f32[8,64] parameter(0)
  ROOT f = f32[8] fusion(a), kind=kInput, calls=body
}
"""


def search(device: str, text: str = TEXT, trial: Trial | None = None) -> Bisection:
    try:
        check_device(device)
    except DeviceError as error:
        pytest.skip(str(error))
    module = hloopt.parse(text, "m.hlo")
    inputs = made(module, trial or Trial())
    return KernelSearch(module, module, device, [inputs], passes="O0").run("m.hlo")


@pytest.mark.parametrize("device", ["cpu", "native", "emulator"])
def test_nothing_is_found_where_kernels_are_right(device: str) -> None:
    found = search(device)
    assert (found.exit_code, found.culprits) == (0, ())
    assert found.summary == f"passes and {device} give the same results as the interpreter"


def test_a_wrong_kernel_of_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those after it are right for what they get; there is no other kernel for it."""
    own = kernel_bisect.prepare

    def broken(*given: Any) -> Prepared:
        prepared = own(*given)
        wrong = re.sub(r"const float p = (\w+) \* ", r"const float p = \1 + ", prepared.source)
        assert wrong != prepared.source
        return replace(prepared, program=wrong)

    monkeypatch.setattr(kernel_bisect, "prepare", broken)
    (culprit,) = search("emulator").culprits
    assert culprit.name == "loop of %p"
    assert culprit.where == "kernel 2 of the run on emulator"
    assert culprit.first == ("%p = f32[40] multiply(%s, %b)", "m.hlo:7, model.py:7")
    assert [name for name, _ in culprit.results] == ["result 0 of it", "result 0"]
    assert "other values than the interpreter's on the same operands: [" in culprit.reason
    assert culprit.remedy == ""


def test_another_kernel_in_its_place_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    own = kernel_bisect.prepare

    def broken(*given: Any) -> Prepared:
        prepared = own(*given)
        return replace(prepared, program=prepared.source.replace(" = -", " = 2.0f * -"))

    monkeypatch.setattr(kernel_bisect, "prepare", broken)
    (culprit,) = search("emulator", SUMMED).culprits
    assert culprit.name == "row-reduction of %f"
    assert culprit.remedy.startswith("--kernel 'f=")
    assert culprit.remedy_note == "tried: the results are right then"


def test_a_fusion_that_is_wrong_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no other kernel mends it."""
    own = kernel_bisect.prepare

    def broken(*given: Any) -> Prepared:
        prepared = own(*given)
        return replace(prepared, program=prepared.source.replace(" = -", " = 2.0f * -"))

    monkeypatch.setattr(kernel_bisect, "prepare", broken)
    monkeypatch.setattr(kernel_bisect, "_MOST_TRIED", 0)
    (culprit,) = search("emulator", FUSED).culprits
    assert culprit.name == "loop of %f"
    assert culprit.remedy == "--passes 'O0,defuse'"


def test_a_kernel_that_reads_outside_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    own = kernel_bisect.prepare

    def broken(*given: Any) -> Prepared:
        prepared = own(*given)
        wrong = re.sub(
            r"(const float p = \w+\s*\*)", r"const float q = b[4000]; \1", prepared.source
        )
        return replace(prepared, program=prepared.source if wrong == prepared.source else wrong)

    monkeypatch.setattr(kernel_bisect, "prepare", broken)
    found = search("emulator", TEXT)
    assert found.culprits
    assert found.culprits[0].name == "loop of %p"


def test_a_wrong_kernel_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from hloopt.backends.native import program

    own = program.render
    monkeypatch.setattr(
        program,
        "render",
        lambda plan, **timed: re.sub(r"= -(\w+);", r"= \1;", own(plan, **timed), count=1),
    )
    (culprit,) = search("native", FUSED).culprits
    assert culprit.name.endswith(" of %f")
    assert culprit.where.endswith(" of the run on native")


def test_a_wrong_instruction_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is negated is wrong, by itself and in the program; what is in a loop is found in there."""
    from hloopt.backends.numpy.program import NumpyProgram

    class Broken(NumpyProgram):
        def run(self, inputs: Any, host: Any = None) -> Any:
            opcodes = {entry.opcode for entry in self.module.instructions()}
            return [
                array + np.ones_like(array) if "negate" in opcodes else array
                for array in super().run(inputs, host)
            ]

    monkeypatch.setattr(numpy_check, "NumpyProgram", Broken)
    monkeypatch.setattr("hloopt.backends.numpy.program.NumpyProgram", Broken)
    (culprit,) = search("cpu").culprits
    assert culprit.name == "NumPy of %n"
    loop = """HloModule m
    again { p = (s32[], f32[4]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      c = s32[] constant(3)
      ROOT l = pred[] compare(i, c), direction=LT }
    body { p = (s32[], f32[4]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      x = f32[4] get-tuple-element(p), index=1
      o = s32[] constant(1)
      j = s32[] add(i, o)
      y = f32[4] negate(x)
      ROOT t = (s32[], f32[4]) tuple(j, y) }
    ENTRY e { z = s32[] constant(0)
      x = f32[4] parameter(0)
      t = (s32[], f32[4]) tuple(z, x)
      w = (s32[], f32[4]) while(t), condition=again, body=body
      ROOT r = f32[4] get-tuple-element(w), index=1 }
    """
    (culprit,) = search("cpu", loop).culprits
    assert culprit.name == "NumPy of %y"


def test_several_participants_are_refused() -> None:
    module = hloopt.parse(TEXT)
    one = made(module, Trial())
    two = TrialInputs(one.arrays * 2, (2, 1))
    with pytest.raises(UsageError, match="kernels are examined with one participant"):
        KernelSearch(module, module, "cpu", [two]).run("m.hlo")


def test_python_does_what_the_command_does() -> None:
    module = hloopt.parse(TEXT, "m.hlo")
    found = hloopt.bisect(module, "cpu", pipeline="O1")
    assert found.to_json()["found"] is False
    assert found.kind == "kernels"
    broken = hloopt.bisect(module, pipeline=[DropsTerm(at=0, opcode="multiply")])
    assert broken.culprits[0].name == "drops-term: A + B => A on %p"
    asked = hloopt.bisect(module, pipeline="O2", check="grep -q multiply {}")
    assert asked.summary == "the module passes the check at the end: nothing was found"
