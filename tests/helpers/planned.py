"""Runs one module by the interpreter and by the executor, and says which ops went through an evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.backends.numpy.compiler import LineCompiler

Array = np.ndarray[Any, Any]

__all__ = ["assert_planned", "same_bits"]


def same_bits(left: Array, right: Array) -> bool:
    """Equal bytes, but for what a NaN carries."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype.kind == "c":
        parts = [(left.real, right.real), (left.imag, right.imag)]
        return all(same_bits(np.ascontiguousarray(x), np.ascontiguousarray(y)) for x, y in parts)
    if left.dtype.kind in "fV":
        with np.errstate(all="ignore"):
            wide = [array.astype(np.float64) for array in (left, right)]
        nan = np.isnan(wide[0])
        if (nan != np.isnan(wide[1])).any():
            return False
        return bool(
            ((wide[0] == wide[1]) & (np.signbit(wide[0]) == np.signbit(wide[1])) | nan).all()
        )
    return left.tobytes() == right.tobytes()


def assert_planned(
    text: str,
    inputs: Sequence[Array],
    *,
    evaluated: Sequence[str] = (),
    excess_precision: bool = False,
) -> list[Array]:
    """The results, which have the interpreter's bits at every run and leave the inputs as they were.

    ``evaluated`` are the opcodes, in order, that the executor leaves to the interpreter's evaluators.
    """
    module = hloopt.parse(text)
    hloopt.verify(module)
    asked: list[str] = []
    original = LineCompiler._evaluated

    def seen(self: Any, builder: Any, instruction: Any, *rest: Any) -> Any:
        asked.append(instruction.opcode)
        return original(self, builder, instruction, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LineCompiler, "_evaluated", seen)
        compiled = hloopt.compile(module, excess_precision=excess_precision, exact=True)
    assert asked == list(evaluated)
    before = [array.tobytes() for array in inputs]
    wanted = hloopt.evaluate(module, list(inputs), excess_precision=excess_precision)
    for _ in range(2):
        got = compiled.run(list(inputs))
        assert len(got) == len(wanted)
        for number, pair in enumerate(zip(got, wanted, strict=True)):
            assert same_bits(*pair), f"result {number}: {pair[0]}, not {pair[1]}"
        assert [array.tobytes() for array in inputs] == before
    return wanted
