"""How much code kernels have: values that several readers share are written once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from large_bodies import PROGRAMS, shuffled_halves

import hloopt
from harness import check_kernel, planned
from hloopt.analysis.code_size import MOST_CODE, executed_instructions
from hloopt.analysis.parallel_loop import ways
from hloopt.fusion.loop_wrap import wrap_loop
from hloopt.targets import find_target


def _fused(text: str, kind: str) -> hloopt.Module:
    module = hloopt.parse(text)
    loop = next(one for one in module.entry if one.opcode == "while")
    way = next(one for one in ways(loop, find_target("h200")) if one.kind == kind)
    assert not way.problem, way.problem
    wrap_loop(way.parallel, "loop", 64)
    hloopt.verify(module)
    return module


def _size(text: str, kernel: str) -> tuple[int, int]:
    """Bytes of a program's functions, and the instructions of its fusion."""
    module, _, source = planned(text, kernel)
    lines = source[source.index('extern "C"') :].splitlines()
    fusion = next(one for one in module.entry if one.opcode == "fusion")
    return sum(len(line) + 1 for line in lines), executed_instructions(fusion)


@pytest.mark.parametrize("kind", ["thread", "block"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_code_of_a_loop_is_linear_in_its_body(name: str, kind: str) -> None:
    found = [
        _size(_fused(PROGRAMS[name](steps), kind).to_text(), f"while-per-{kind}")
        for steps in (8, 16, 32)
    ]
    for size, instructions in found:
        assert size <= MOST_CODE.of(instructions)
    for (size, _), (larger, _) in pairwise(found):
        assert larger <= 2.1 * size


@pytest.mark.parametrize("kind", ["thread", "block"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_stay(name: str, kind: str) -> None:
    text = _fused(PROGRAMS[name](9), kind).to_text()
    check_kernel(text, f"while-per-{kind}", everywhere=False, fast=kind == "block")


def test_code_of_a_fusion_is_linear_in_its_depth() -> None:
    """An element is computed from 2^steps others: of them the code is, not of the ways to get there."""
    size, instructions = _size(shuffled_halves(4), "loop")
    assert size <= MOST_CODE.of(instructions)
    check_kernel(shuffled_halves(4), "loop", everywhere=False)
