"""Results as terms, with inputs put in for the parameters, are what the interpreter computes.

Each term is evaluated here by itself, by the interpreter's own elementwise functions.
"""

from __future__ import annotations

from functools import reduce
from random import Random
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.errors import HlooptError
from hloopt.interpret.elementwise import evaluate_op
from hloopt.ops import OPS, ScalarArgs
from hloopt.ops.elementwise import keeps_bits
from hloopt.ops.traits import COLLECTIVE
from hloopt.prover.equivalence import HANDLERS
from hloopt.prover.equivalence.symbolic import Symbolic
from hloopt.prover.equivalence.terms import ElementTerms
from hloopt.types import rounded
from tests.campaigns.campaign_modules import OPCODES, campaign_module
from tests.passes.proof import identical, inputs

UNKNOWN = ("array", "element", "exchange", "nothing", "sum", "sum-of-products", "state")
CASES = [(opcode, seed) for seed, opcode in enumerate(OPCODES) if opcode not in COLLECTIVE]


class Values:
    """The values of terms for some inputs; None of what no term says."""

    def __init__(self, terms: ElementTerms, arrays: list[np.ndarray[Any, Any]]) -> None:
        self.terms, self.arrays = terms, arrays
        self.found: dict[int, Any] = {}

    def of(self, root: int) -> Any:
        for number in self.terms.below((root,)):
            if number not in self.found:
                self.found[number] = self._value(number)
        return self.found[root]

    def _value(self, number: int) -> Any:
        term, known = self.terms[number], self.terms.value(number)
        args = [self.found[arg] for arg in term.args]
        if known is not None or term.op in UNKNOWN or any(arg is None for arg in args):
            return known
        kind = term.kind
        assert kind is not None
        if term.op == "parameter":
            place, at, part = term.data
            value = self.arrays[place].reshape(-1)[at]
            return getattr(value, part) if part else value
        if term.op in ("bits", "piece", "joined"):
            raw = np.array(args).view(np.uint8).tobytes()
            size = kind.numpy.itemsize
            start = (term.data or 0) * size
            return np.frombuffer(raw[start : start + size], kind.numpy)[0]
        kinds = [self.terms[arg].kind for arg in term.args]
        arity = OPS[term.op].arity[1]
        if len(args) > arity:  # a chain of an associative op
            return reduce(lambda x, y: self._op(term.op, kind, kinds[:2], None, [x, y]), args)
        return self._op(term.op, kind, kinds, term.data, args)

    def _op(self, op: str, kind: Any, kinds: list[Any], data: Any, args: list[Any]) -> Any:
        attributes = {}
        if op == "compare":
            attributes = {"direction": data[0], "type": "TOTALORDER" if data[1] else None}
        elif data:
            attributes = {name: int(value) for name, value in data}
        stored = keeps_bits(op, attributes, kinds[-1])
        arrays = [
            np.asarray(arg, own.numpy if stored else own.compute)
            for arg, own in zip(args, kinds, strict=True)
        ]
        result = evaluate_op(op, ScalarArgs(kinds[-1], kind, attributes), arrays)
        return rounded(result, kind.numpy)[()]


def examine(text: str, seed: int) -> tuple[int, int]:
    """How many elements of results have a value by their terms, and how many have not."""
    module = hloopt.parse(text, "random")
    hloopt.verify(module)
    arrays = inputs(module, seed)
    terms = ElementTerms()
    try:
        want = hloopt.evaluate(module, arrays)
        found = Symbolic(module, terms, HANDLERS).result()
    except HlooptError:
        return 0, 0
    values, known, left = Values(terms, arrays), 0, 0
    assert [shape.dims for shape, _ in found] == [array.shape for array in want]
    for (_, numbers), array in zip(found, want, strict=True):
        for number, element in zip(numbers.reshape(-1), array.reshape(-1), strict=True):
            got = values.of(int(number))
            if got is None:
                left += 1
                continue
            known += 1
            assert identical(np.asarray(got, array.dtype), np.asarray(element)), (
                f"{text}\n{arrays}\n{terms[int(number)]}: {got} instead of {element}"
            )
    return known, left


@pytest.mark.every_value("opcode")
@pytest.mark.parametrize(("opcode", "seed"), CASES)
def test_terms_have_the_values_of_the_interpreter(opcode: str, seed: int) -> None:
    """Random modules, each with one opcode in it."""
    with np.errstate(all="ignore"):
        examine(campaign_module(Random(seed), opcode, steps=3), seed)


def test_most_elements_have_terms() -> None:
    """Few of them are unknown functions, so that the comparison is one."""
    with np.errstate(all="ignore"):
        counts = [
            examine(campaign_module(Random(seed), opcode, steps=3), seed)
            for opcode, seed in CASES[::2]
        ]
    known, left = (sum(column) for column in zip(*counts, strict=True))
    assert known > 500
    assert known > left
