"""Chains of ops on arrays with dynamic dimensions are what their static twins are.

The interpreter and the NumPy executor must give the twin's results, on the module as it is written and as it is
optimised.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from tests.helpers.rarely import examples
from tests.properties.dynamic_chains import Chain
from tests.properties.dynamic_steps import STEPS, merge

REGIONS = """
plus { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] add(a, b) }
larger { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] maximum(a, b) }
less { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
"""


@st.composite
def chains(draw):
    """Two modules, static and dynamic, and their inputs."""
    c = Chain(draw)
    bound = draw(st.integers(1, 6))
    size = draw(st.integers(0, bound))
    for _ in range(draw(st.integers(1, 3))):
        rest = draw(st.lists(st.integers(1, 3), max_size=1))
        dynamic = draw(st.booleans())
        first = size if dynamic else bound
        c.parameter((bound, *rest), (dynamic, *(False for _ in rest)), (first, *rest))
    for _ in range(draw(st.integers(1, 8))):
        candidates = [step for step in STEPS if step is not merge or _has_rank(c, 2)]
        draw(st.sampled_from(candidates))(c)
    results = c.arrays[-1:] + draw(st.lists(st.sampled_from(c.arrays), max_size=3))
    texts = []
    for lines, shapes in (
        (c.dynamic, [array.dynamic() for array in results]),
        (c.static, [array.static() for array in results]),
    ):
        names = ", ".join(array.name for array in results)
        body = "\n  ".join([*lines, f"ROOT out = ({', '.join(shapes)}) tuple({names})"])
        regions = REGIONS + "".join(c.regions if lines is c.dynamic else [])
        texts.append(f"HloModule chain\n{regions}\nENTRY e {{\n  {body}\n}}\n")
    return texts[0], texts[1], c.inputs


def _has_rank(c, rank):
    return any(len(array.bounds) >= rank for array in c.arrays)


@given(chains())
@settings(max_examples=examples(150))
def test_dynamic_chains_are_their_static_twins(chain):
    """Bounds change nothing but shapes: not in the interpreter, the executor, or the optimiser."""
    text, twin, inputs = chain
    want = hloopt.evaluate(_valid(twin), inputs)
    module = _valid(text)
    optimized = hloopt.optimize(module, pipeline="O2")
    hloopt.verify(optimized)
    for what, given_module in (("given", module), ("O2", optimized)):
        for who, results in (
            ("interpreter", hloopt.evaluate(given_module, inputs)),
            ("executor", hloopt.compile(given_module).run(inputs)),
        ):
            for got, wanted in zip(results, want, strict=True):
                np.testing.assert_array_equal(got, wanted, f"{who}, {what}", strict=True)


def _valid(text):
    module = hloopt.parse(text, "chain.hlo")
    hloopt.verify(module)
    return module
