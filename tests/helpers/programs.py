"""Random programs over vectors, matrices and scalars, for properties of passes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import hloopt

__all__ = ["inputs", "programs", "results"]

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


def inputs() -> list[Array]:
    """Values for the parameters of every such program."""
    chooser = np.random.default_rng(7)
    return [
        chooser.standard_normal(5).astype(np.float32),
        chooser.standard_normal(5).astype(np.float32),
        chooser.standard_normal((5, 5)).astype(np.float32),
        np.int32(2).reshape(()),
    ]


def results(module: hloopt.Module) -> list[bytes]:
    """The results of such a program, bit by bit."""
    with np.errstate(all="ignore"):
        return [output.tobytes() for output in hloopt.evaluate(module, inputs())]
