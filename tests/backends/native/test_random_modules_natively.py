"""Random modules natively, as they are and after -O2, in one program: what the interpreter has."""

from __future__ import annotations

import os
from random import Random

import hloopt
from hloopt.backends.native.compile import compile_native
from hloopt.runtime.judge import judged
from tests.helpers.joined_modules import joined
from tests.properties.random_modules import module_text
from tests.properties.special_inputs import special_inputs

# The compiler is started once for all of them.
SEEDS = range(200) if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else range(6)


def test_random_modules() -> None:
    """Inputs are special values: infinities, NaN, zeros of both signs, the ends of integers."""
    given = [hloopt.parse(module_text(Random(seed))) for seed in SEEDS]
    forms = [*given, *(hloopt.optimize(module, "O2") for module in given)]
    seeds = [*SEEDS, *SEEDS]
    inputs = [special_inputs(module, seed) for module, seed in zip(forms, seeds, strict=True)]
    program = compile_native(joined(forms))
    got = iter(program.run([array for arrays in inputs for array in arrays]))
    for seed, module, arrays in zip(seeds, forms, inputs, strict=True):
        wanted = hloopt.evaluate(module, arrays)
        found = judged(module, arrays, [next(got) for _ in wanted], wanted)
        assert all(one.passed for one in found), (seed, found, module.to_text())
