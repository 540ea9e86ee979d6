"""What a text may choose changes nothing: the module, its results, and the code that is made of it."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

import hloopt
from hloopt.backends.device_compile import prepare
from hloopt.backends.native.compile import prepare_native
from hloopt.errors import UnsupportedError
from hloopt.ir import Module
from hloopt.ir.canonical import fingerprint
from tests.campaigns.campaign_modules import OPCODES, campaign_module
from tests.helpers.respell import FREEDOMS, respell
from tests.passes.proof import identical
from tests.properties.special_inputs import special_inputs

# What code is named after: another order or other names make other code that computes the same.
ORDERS = ("instructions", "computations", "names", "in place")


@cache
def modules() -> tuple[str, ...]:
    """One with each opcode."""
    return tuple(
        campaign_module(Random(seed), opcode, steps=2) for seed, opcode in enumerate(OPCODES)
    )


def spelled(text: str, seed: int, *freedoms: str) -> Module:
    """Another spelling, read strictly; the text is in the message of whoever fails."""
    return hloopt.parse(respell(hloopt.parse(text), Random(seed), freedoms, 0.8), strict=True)


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_each_freedom_is_used_and_leaves_the_module_as_it_is(freedom: str) -> None:
    changed = 0
    for seed, text in enumerate(modules()[::5]):
        module = hloopt.parse(text)
        other = respell(module, Random(seed), [freedom], 0.8)
        changed += other != respell(module, Random(seed), [])
        assert fingerprint(hloopt.parse(other, strict=True)) == fingerprint(module), other
    assert changed


@pytest.mark.parametrize("seed", range(len(OPCODES)), ids=OPCODES)
def test_results_are_the_same_in_any_spelling(seed: int) -> None:
    """Of every opcode: by the interpreter, by the executor, and after O2."""
    text = modules()[seed]
    module, other = hloopt.parse(text), spelled(text, seed, *FREEDOMS)
    hloopt.verify(other)
    arrays = special_inputs(module, seed)
    want = hloopt.evaluate(module, arrays)
    forms = [hloopt.evaluate(other, arrays), hloopt.evaluate(hloopt.optimize(other), arrays)]
    try:
        forms.append(hloopt.compile(other, exact=True).run(arrays))
    except UnsupportedError:
        forms.append(want)
    for got in forms:
        assert all(map(identical, want, got)), other.to_text()


@pytest.mark.parametrize("seed", range(0, len(OPCODES), 7), ids=OPCODES[::7])
def test_compiled_devices_run_the_same_code(seed: int) -> None:
    """What is written for the host's compiler and for a GPU's, to the letter."""
    text = modules()[seed]
    rest = [freedom for freedom in FREEDOMS if freedom not in ORDERS]
    module, other = hloopt.parse(text), spelled(text, seed, *rest)
    for code in (lambda one: prepare_native(one).source, lambda one: prepare(one).source):
        try:
            want = code(module)
        except UnsupportedError:
            continue
        assert statements(code(other)) == statements(want)


def statements(source: str) -> list[str]:
    """Without the comments, which show instructions as they were written."""
    return [line for line in source.splitlines() if not line.strip().startswith("//")]
