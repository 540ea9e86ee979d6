"""A module in which arrays have dynamic dimensions, and what it gives and stops at."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.errors import EvaluationError, UnsupportedError

__all__ = ["HEAD", "LINE", "REGIONS", "X", "Y", "both", "fails", "refused", "run"]

X = np.array([1, 2, 3, 4, 5, 0], np.int32)
Y = np.array([10, 20, 30, 40, 50, 60], np.int32)

REGIONS = """
plus { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] add(a, b) }
least { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE }
"""
HEAD = """ENTRY e {
  x = s32[6] parameter(0)
  y = s32[6] parameter(1)
  n = s32[] parameter(2)
  m = s32[] parameter(3)
  zero = s32[] constant(0)
  dx = s32[<=6] set-dimension-size(x, n), dimensions={0}
  dy = s32[<=6] set-dimension-size(y, m), dimensions={0}
"""


def both(text, *inputs):
    """The results of the interpreter, which the executor has to give as well, as it is and optimised."""
    module = hloopt.parse(f"HloModule m\n{text}", "m.hlo")
    hloopt.verify(module)
    want = hloopt.evaluate(module, list(inputs))
    optimized = hloopt.optimize(module)
    hloopt.verify(optimized)
    for other in (module, optimized):
        for got, wanted in zip(hloopt.compile(other).run(list(inputs)), want, strict=True):
            np.testing.assert_array_equal(got, wanted, strict=True)
    return [array.tolist() for array in want]


def run(body, n, m=0):
    """The results of a body in which ``dx`` has n and ``dy`` m of six elements."""
    return both(f"{REGIONS}{HEAD}{body}\n}}", X, Y, np.int32(n), np.int32(m))


def fails(body, n, m=0):
    """The message of the error; interpreter and executor stop with the same."""
    module = hloopt.parse(f"HloModule m\n{REGIONS}{HEAD}{body}\n}}", "m.hlo")
    hloopt.verify(module)
    inputs = [X, Y, np.int32(n), np.int32(m)]
    program = hloopt.compile(module)
    with pytest.raises(EvaluationError) as first:
        hloopt.evaluate(module, inputs)
    with pytest.raises(EvaluationError) as second:
        program.run(inputs)
    assert first.value.message == second.value.message
    return first.value.message


def refused(body):
    """The message and place of what is refused before anything runs."""
    module = hloopt.parse(f"HloModule m\n{REGIONS}{HEAD}{body}\n}}", "m.hlo")
    with pytest.raises(UnsupportedError) as caught:
        hloopt.compile(module)
    return caught.value.line, caught.value.column, caught.value.message


LINE = 1 + len(REGIONS.splitlines()) + len(HEAD.splitlines()) + 1  # of the first line of a body
