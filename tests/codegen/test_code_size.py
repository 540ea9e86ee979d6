"""How much code kernels have: values that several readers share are written once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from large_bodies import PROGRAMS, shuffled_halves

import hloopt
from harness import check_kernel, planned
from hloopt.analysis.code_size import MOST_CODE, Room, executed_instructions
from hloopt.analysis.parallel_loop import thread_code, ways
from hloopt.codegen import writer
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.fusion.loop_wrap import wrap_loop
from hloopt.ir import Instruction
from hloopt.runtime.native.compile import prepare_native
from hloopt.targets import find_target


def _loop(module: hloopt.Module) -> Instruction:
    return next(one for one in module.entry if one.opcode == "while")


def _fused(text: str, kind: str) -> hloopt.Module:
    module = hloopt.parse(text)
    loop = _loop(module)
    way = next(one for one in ways(loop, find_target("h200")) if one.kind == kind)
    assert not way.problem, way.problem
    wrap_loop(way.parallel, "loop", 64)
    hloopt.verify(module)
    return module


def _check(sources: Sequence[tuple[str, int]]) -> None:
    """Programs, the second with twice the body of the first, and the instructions of each."""
    for source, instructions in sources:
        assert len(source) <= MOST_CODE.of(instructions)
    (small, _), (large, _) = sources
    assert len(large.splitlines()) <= 2 * len(small.splitlines())
    # More names have longer numbers.
    assert len(large) <= 2.1 * len(small)


def _functions(text: str, kernel: str) -> tuple[str, int]:
    """A program's functions, and the instructions of its fusion."""
    module, _, source = planned(text, kernel)
    fusion = next(one for one in module.entry if one.opcode == "fusion")
    return source[source.index('extern "C"') :], executed_instructions(fusion)


@pytest.mark.parametrize("kind", ["thread", "block"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_code_of_a_loop_is_linear_in_its_body(name: str, kind: str) -> None:
    found = [
        _functions(_fused(PROGRAMS[name](steps), kind).to_text(), f"while-per-{kind}")
        for steps in (12, 24)
    ]
    _check(found)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("quaternions", "thread"),
        ("stacked-products", "thread"),
        ("stacked-products", "block"),
        ("chained-updates", "block"),
    ],
)
def test_sharing_changes_no_result(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small a body is, what its blocks share is written before them."""
    monkeypatch.setattr(writer, "WRITTEN_ANEW", Room(0, 0, 0))
    text = _fused(PROGRAMS[name](2), kind).to_text()
    check_kernel(text, f"while-per-{kind}", everywhere=False, fast=False)


def test_code_of_a_fusion_is_linear_in_its_depth() -> None:
    """An element is computed from 2^steps others: of them the code is, not of the ways to get there."""
    source, instructions = _functions(shuffled_halves(4), "loop")
    assert len(source) <= MOST_CODE.of(instructions)
    check_kernel(shuffled_halves(4), "loop", everywhere=False, fast=False)


@pytest.mark.parametrize("name", PROGRAMS)
def test_native_code_of_a_loop_is_linear_in_its_body(name: str) -> None:
    found = []
    for steps in (12, 24):
        module = hloopt.parse(PROGRAMS[name](steps))
        if not LoopFusion(target="host", always=True).fuse(module).steps:
            pytest.fail(f"{name} is no kernel")
        prepared = prepare_native(module)
        fusion = next(one for one in module.entry if one.opcode == "fusion")
        found.append((prepared.source, executed_instructions(fusion)))
    _check(found)


def test_a_loop_is_refused_that_has_more_code_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks gets the limit and the value; a little more room, and it is a kernel."""
    text = PROGRAMS["quaternions"](4)
    (loop,) = LoopFusion(always=True).fuse(hloopt.parse(text)).loops
    assert loop.kernel
    monkeypatch.setattr(thread_code, "MOST_CODE", Room(0, 10, 10**6))
    plan = LoopFusion(always=True).fuse(hloopt.parse(text))
    (refusal,) = plan.refusals
    decision = refusal.decision
    assert decision.code == "loop-code-size"
    assert decision.limit is not None
    assert decision.actual is not None
    assert decision.actual > decision.limit == 10 * executed_instructions(_loop(hloopt.parse(text)))
    assert f"its code would have {decision.actual} bytes, {decision.limit} at most" in str(decision)


def test_what_no_compiler_ends_is_too_long_however_long_the_body() -> None:
    assert Room(10, 5, 100).of(10) == 60
    assert Room(10, 5, 100).of(1000) == 100
