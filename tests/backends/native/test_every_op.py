"""Every op of every element type natively, as the interpreter has it: a program for each type."""

from __future__ import annotations

import pytest
from numpy.exceptions import ComplexWarning

import hloopt
from hloopt.backends.native.compile import compile_native, plan_native
from hloopt.errors import HlooptError
from hloopt.ir import Module
from hloopt.kernels.examples import example_text, opcodes
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import judged
from hloopt.types import DTYPES
from tests.helpers.joined_modules import joined

QUICK = ("f32", "s32", "c64")
OTHERS = tuple(name for name, kind in DTYPES.items() if kind.is_array and name not in QUICK)


def _examples(kind: str) -> dict[str, Module]:
    """The least module of each op that takes the type, is defined for it, and has a plan."""
    found = {}
    for opcode in opcodes():
        try:
            module = hloopt.parse(example_text(opcode, [DTYPES[kind]]))
            hloopt.verify(module)
            plan_native(module)
            hloopt.evaluate(module, generate(module, 0))
        except (HlooptError, TypeError, ComplexWarning):
            # The text of an op is for types that it does not take, too: complex numbers have no order.
            continue
        found[opcode] = module
    return found


@pytest.mark.parametrize(
    "kind", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_every_op(kind: str) -> None:
    """One program has them all: the compiler is started once."""
    examples = _examples(kind)
    bits = DTYPES[kind].bits
    if bits % 8 and 8 % bits:
        assert not examples
        return
    assert len(examples) > 30
    program = compile_native(joined(list(examples.values())))
    for seed in range(2):
        inputs = [generate(module, seed) for module in examples.values()]
        got = iter(program.run([array for given in inputs for array in given]))
        for (opcode, module), given in zip(examples.items(), inputs, strict=True):
            wanted = hloopt.evaluate(module, given)
            found = judged(module, given, [next(got) for _ in wanted], wanted)
            assert all(one.passed for one in found), (opcode, seed, found)
