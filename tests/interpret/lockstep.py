"""Programs of several participants: run by the interpreter and by the executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import hloopt

Array = np.ndarray[Any, Any]
Results = list[list[Array]]
Runner = Callable[..., Results]

__all__ = ["ADD", "RUNNERS", "Array", "Runner", "column", "module", "scalars"]

ADD = """
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}
"""


def interpreted(
    text: str, inputs: Sequence[Sequence[Array]], replicas: int, partitions: int = 1
) -> Results:
    module = hloopt.parse(text, "m.hlo")
    hloopt.verify(module)
    return hloopt.evaluate_participants(module, inputs, replicas, partitions)


def executed(
    text: str, inputs: Sequence[Sequence[Array]], replicas: int, partitions: int = 1
) -> Results:
    module = hloopt.parse(text, "m.hlo")
    program = hloopt.compile(module, replicas=replicas, partitions=partitions)
    return program.run_participants(inputs)


RUNNERS = pytest.mark.parametrize("run", [interpreted, executed], ids=["interpreter", "executor"])


def column(*values: float) -> list[list[Array]]:
    """A list of inputs for each participant: one scalar."""
    return [[np.array(value, np.float32)] for value in values]


def module(lines: str, regions: str = ADD, header: str = "") -> str:
    """A module whose entry has a scalar ``p`` for each participant."""
    return f"HloModule m{header}\n{regions}\nENTRY e {{\n  p = f32[] parameter(0)\n{lines}\n}}\n"


def scalars(results: Results) -> list[list[float]]:
    """Of results that are all scalars."""
    return [[float(array) for array in arrays] for arrays in results]
