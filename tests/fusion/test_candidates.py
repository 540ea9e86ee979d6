"""Asking again only whose answer may have changed fuses what asking everybody again would, in the same order."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings

import hloopt
from hloopt.fusion import instruction_fusion
from hloopt.fusion.candidates import Candidates
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.instruction_fusion import InstructionFusion
from hloopt.ir import Instruction
from tests.helpers.growing import SHAPES
from tests.helpers.programs import programs
from tests.helpers.rarely import examples

_TIGHT = (
    InstructionFusion(),
    InstructionFusion(max_operands=4),
    InstructionFusion(max_operands=7, may_duplicate=False),
    InstructionFusion(max_operands=9, max_duplication=2, max_barrier_users=2),
    InstructionFusion(max_reductions=1, shared_memory=9000, max_operands=6),
)


class _EverybodyAgain(Candidates):
    def joined(self, producer: Instruction, reads: tuple[Instruction, ...], operands: int) -> None:
        super().joined(producer, reads, operands)
        self.ask_all()


def _fused(options: InstructionFusion, text: str, kind: type[Candidates]) -> tuple[FusionPlan, str]:
    module = hloopt.parse(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(instruction_fusion, "Candidates", kind)
        plan = options.fuse(module)
    return plan, module.to_text()


def _check(options: InstructionFusion, text: str) -> None:
    plan, after = _fused(options, text, Candidates)
    wanted, reference = _fused(options, text, _EverybodyAgain)
    assert after == reference
    assert plan.steps == wanted.steps
    assert plan.refusals == wanted.refusals


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_that_grow(shape: str) -> None:
    """With room for everything, and with little."""
    for options in _TIGHT:
        _check(options, SHAPES[shape](9))


@pytest.mark.parametrize("options", _TIGHT, ids=str)
@settings(max_examples=examples(60), deadline=None)
@given(text=programs())
def test_random_programs(options: InstructionFusion, text: str) -> None:
    """Every step and every word of refusal is the same."""
    _check(options, text)


def _tangle(seed: int) -> str:
    """A program whose instructions read whatever stands before them."""
    draw = Random(seed)
    rows = ["x0 = f32[8] parameter(0)", "x1 = f32[8] parameter(1)", "zero = s32[] constant(0)"]
    count = 30
    for number in range(2, count):
        a, b, c = (f"x{draw.randrange(max(0, number - 9), number)}" for _ in range(3))
        rows += [
            f"low{number} = f32[4] slice({a}), slice={{[0:4]}}",
            f"high{number} = f32[4] slice({b}), slice={{[4:8]}}",
            f"x{number} = f32[8] {draw.choice(_FORMS).format(a=a, b=b, c=c, n=number)}",
        ]
    parts = [f"x{count - 1 - entry}" for entry in range(draw.choice((1, 4)))]
    rows.append(f"ROOT all = ({', '.join(['f32[8]'] * len(parts))}) tuple({', '.join(parts)})")
    return "HloModule tangle\nENTRY main {\n  " + "\n  ".join(rows) + "\n}\n"


_FORMS = (
    "add({a}, {b})", "atan2({a}, {b})", "tanh({a})", "clamp({a}, {b}, {c})", "bitcast({a})", "negate({a})",
    "clamp({c}, {a}, {b})", "concatenate(low{n}, high{n}), dimensions={{0}}",
    "dynamic-update-slice({b}, low{n}, zero)", "dynamic-update-slice({a}, high{n}, zero)",
)  # fmt: skip


@pytest.mark.parametrize("options", _TIGHT, ids=str)
def test_tangles(options: InstructionFusion) -> None:
    """Operands become fewer and more, values lose users, updates get other targets."""
    for seed in range(5):
        _check(options, _tangle(seed))


_UPDATE = """HloModule updated
ENTRY main {
  x = f32[8] parameter(0)
  y = f32[2] parameter(1)
  s = f32[2] slice(x), slice={[0:2]}
  t = f32[2] add(s, y)
  b = f32[8] negate(x)
  zero = s32[] constant(0)
  u = f32[8] dynamic-update-slice(b, t, zero)
  ROOT r = f32[8] bitcast(u)
}
"""


def test_what_a_join_opens() -> None:
    """Another operand is updated in place when the one before has joined."""
    for options in _TIGHT:
        _check(options, _UPDATE)
