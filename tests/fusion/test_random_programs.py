"""Fusing a random program, and taking it apart again, leaves a valid module with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.fusion.instruction_fusion import InstructionFusion
from hloopt.passes.defuse import Defuse
from hloopt.rewrite.pass_ import PassLog

Array = np.ndarray[Any, Any]

HEAD = """HloModule random
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
"""
UNARY = ("negate", "abs", "floor", "tanh", "exponential", "sign", "copy")
BINARY = ("add", "subtract", "multiply", "maximum", "divide", "atan2")
WIDTH = 5


class _Program:
    """Text of an entry over vectors ``f32[5]``, matrices ``f32[5,5]`` and scalars."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.lines = [
            "v0 = f32[5]{0} parameter(0)",
            "v1 = f32[5]{0} parameter(1)",
            "m0 = f32[5,5]{1,0} parameter(2)",
            "s0 = f32[] constant(1.5)",
            "i0 = s32[] constant(1)",
            "i1 = s32[] parameter(3)",
        ]
        self.values = {"f32[5]{0}": ["v0", "v1"], "f32[5,5]{1,0}": ["m0"], "f32[]": ["s0"]}

    def pick(self, shape: str) -> str:
        names = self.values[shape]
        recent = names[-4:]
        return self.draw(st.sampled_from([*recent, *names]))

    def add(self, shape: str, text: str) -> None:
        name = f"x{len(self.lines)}"
        self.lines.append(f"{name} = {shape} {text}")
        self.values[shape].append(name)

    def step(self) -> None:
        vector, matrix = "f32[5]{0}", "f32[5,5]{1,0}"
        shape = self.draw(st.sampled_from([vector, matrix, "f32[]"]))
        kind = self.draw(st.integers(0, 11))
        if kind < 4:
            opcode = self.draw(st.sampled_from(BINARY))
            self.add(shape, f"{opcode}({self.pick(shape)}, {self.pick(shape)})")
        elif kind < 6:
            self.add(shape, f"{self.draw(st.sampled_from(UNARY))}({self.pick(shape)})")
        elif kind == 6:
            side = self.draw(st.integers(0, 1))
            self.add(matrix, f"broadcast({self.pick(vector)}), dimensions={{{side}}}")
        elif kind == 7:
            side = self.draw(st.integers(0, 1))
            self.add(
                vector,
                f"reduce({self.pick(matrix)}, {self.pick('f32[]')}), dimensions={{{side}}}, "
                "to_apply=sum",
            )
        elif kind == 8:
            self.add(matrix, f"transpose({self.pick(matrix)}), dimensions={{1,0}}")
        elif kind == 9:
            index = self.draw(st.sampled_from(["i0", "i1"]))
            update = f"x{len(self.lines)}"
            self.lines.append(f"{update} = f32[2]{{0}} slice({self.pick(vector)}), slice={{[1:3]}}")
            self.add(vector, f"dynamic-update-slice({self.pick(vector)}, {update}, {index})")
        elif kind == 10:
            self.add(vector, f"broadcast({self.pick('f32[]')}), dimensions={{}}")
        else:
            self.add(vector, f"reverse({self.pick(vector)}), dimensions={{0}}")

    def text(self) -> str:
        shapes = [self.draw(st.sampled_from(sorted(self.values))) for _ in range(3)]
        names = [self.pick(shape) for shape in shapes]
        root = f"ROOT r = ({', '.join(shapes)}) tuple({', '.join(names)})"
        return HEAD + "ENTRY e {\n" + "\n".join([*self.lines, root]) + "\n}\n"


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A random module text."""
    program = _Program(draw)
    for _ in range(draw(st.integers(3, 30))):
        program.step()
    return program.text()


def _inputs() -> list[Array]:
    chooser = np.random.default_rng(7)
    return [
        chooser.standard_normal(5).astype(np.float32),
        chooser.standard_normal(5).astype(np.float32),
        chooser.standard_normal((5, 5)).astype(np.float32),
        np.int32(2).reshape(()),
    ]


def _bytes(outputs: list[Array]) -> list[bytes]:
    return [output.tobytes() for output in outputs]


@pytest.mark.parametrize("may_duplicate", [False, True])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=programs())
def test_fusion_and_defusion_keep_every_bit(may_duplicate: bool, text: str) -> None:
    """Twice, as pipelines run it; then apart again."""
    module = hloopt.parse(text)
    with np.errstate(all="ignore"):
        before = _bytes(hloopt.evaluate(module, _inputs()))
        for _ in range(2):
            InstructionFusion(may_duplicate=may_duplicate).fuse(module)
            hloopt.verify(module)
        assert _bytes(hloopt.evaluate(module, _inputs())) == before
        Defuse().run(module, PassLog())
        hloopt.verify(module)
        assert _bytes(hloopt.evaluate(module, _inputs())) == before
    assert all(entry.opcode != "fusion" for entry in module.instructions())


@settings(max_examples=30, deadline=None)
@given(text=programs())
def test_a_fused_module_is_read_back(text: str) -> None:
    """The text of a fused module parses to the same module."""
    module = hloopt.parse(text)
    InstructionFusion().fuse(module)
    again = hloopt.parse(module.to_text())
    assert again.to_text() == module.to_text()


@settings(max_examples=30, deadline=None)
@given(text=programs())
def test_fusion_comes_to_rest(text: str) -> None:
    """A second run finds nothing that the first left for lack of looking, without duplication."""
    module = hloopt.parse(text)
    InstructionFusion(may_duplicate=False).fuse(module)
    assert InstructionFusion(may_duplicate=False).fuse(module).steps == []
