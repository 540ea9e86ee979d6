"""How much code kernels have: values that several readers share are written once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import hloopt
from hloopt.analysis.code_size import MOST_CODE, Room, executed_instructions
from hloopt.analysis.parallel_loop import gpu_mappings, parallel_loop, thread_code
from hloopt.backends.native.compile import prepare_native
from hloopt.codegen import writer
from hloopt.fusion.decision import Decision
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.fusion.loop_host import judge_host
from hloopt.fusion.loop_verdict import refusal_of
from hloopt.fusion.loop_wrap import wrap_loop
from hloopt.ir import Instruction
from hloopt.targets import find_target
from tests.codegen.harness import check_kernel, planned
from tests.helpers.kernel_code import KernelCode
from tests.helpers.large_bodies import PROGRAMS, gradients, loop_text, shuffled_halves
from tests.helpers.rarely import one_in


def _loop(module: hloopt.Module) -> Instruction:
    return next(one for one in module.entry if one.opcode == "while")


def _fused(text: str, kind: str) -> hloopt.Module:
    module = hloopt.parse(text)
    loop = _loop(module)
    mapping = next(one for one in gpu_mappings(loop, find_target("h200")) if one.kind == kind)
    assert not mapping.problem, mapping.problem
    wrap_loop(mapping.parallel, "loop", 64)
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
    module, _, kernels = planned(text, kernel)
    source = kernels.text
    fusion = next(one for one in module.entry if one.opcode == "fusion")
    return source[source.index('extern "C"') :], executed_instructions(fusion)


@pytest.mark.every_value
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
    check_kernel(text, f"while-per-{kind}", everywhere=False, twice=False)


@pytest.mark.parametrize("steps", [1, 2, 4, 8])
def test_a_thread_is_refused_whose_code_would_exceed_what_a_body_may_have(steps: int) -> None:
    """What every unit computes by itself is written wherever a unit needs it: in every branch, at any index."""
    text = gradients(steps)
    mapping = next(
        one
        for one in gpu_mappings(_loop(hloopt.parse(text)), find_target("h200"))
        if one.kind == "thread"
    )
    if mapping.problem:
        assert mapping.code == "code-size"
        assert mapping.limit is not None
        assert mapping.actual is not None
        assert mapping.actual > mapping.limit
        return
    source, instructions = _functions(_fused(text, "thread").to_text(), "while-per-thread")
    assert len(source) <= MOST_CODE.of(instructions)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        *((PROGRAMS[name](8), 16) for name in ("quaternions", "stacked-products", "matrices")),
        *((gradients(steps), 16) for steps in (2, 4)),
    ],
)
def test_code_of_a_thread_is_about_as_long_as_is_foretold(
    text: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_code, "MOST_CODE", Room(10**7, 0, 10**7))
    loop = _loop(hloopt.parse(text))
    plan = thread_code.thread_plan(parallel_loop(loop))
    assert plan.unrolled == most
    source, _ = _functions(_fused(text, "thread").to_text(), "while-per-thread")
    monkeypatch.setattr(thread_code, "MOST_CODE", Room(0, 0, 10**7))
    foretold = thread_code.code_problem(plan)["actual"]
    assert 0.7 * foretold <= len(source) <= 1.25 * foretold


def test_what_loops_over_arrays_share_is_written_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An array and another hold the same values, at other places: each is computed once in a trip."""
    lines = []
    for at in range(3):
        lines.append(f"c{at} = f32[1] slice(x0), slice={{[{at}:{at + 1}]}}")
        lines.append(f"sine{at} = f32[1] sine(c{at})")
    lines += [
        "a = f32[21] slice(x0), slice={[3:24]}",
        "b = f32[21] slice(x1), slice={[0:21]}",
        "n0 = f32[24] concatenate(sine0, sine1, sine2, a), dimensions={0}",
        "n1 = f32[24] concatenate(b, sine2, sine1, sine0), dimensions={0}",
    ]
    monkeypatch.setattr(writer, "WRITTEN_ANEW", Room(0, 0, 0))
    text = _fused(loop_text("f32[24] f32[24]", lines, ["n0", "n1"]), "thread").to_text()
    program = check_kernel(text, "while-per-thread", everywhere=False, twice=False)
    assert len(KernelCode.of(program).calls("sinf")) == 3


def test_code_of_a_fusion_is_linear_in_its_depth() -> None:
    """An element is computed from 2^steps others: of them the code is, not of the ways to get there."""
    source, instructions = _functions(shuffled_halves(4), "loop")
    assert len(source) <= MOST_CODE.of(instructions)
    check_kernel(shuffled_halves(4), "loop", everywhere=False, twice=False)


@pytest.mark.parametrize("name", one_in(2, PROGRAMS))
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


@pytest.mark.parametrize("name", ["quaternions", "chained-updates"])
@pytest.mark.parametrize("mapping", ["thread", "block", "native"])
def test_a_loop_is_refused_that_has_more_code_than_it_may(
    name: str, mapping: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever kernel it would be: whoever asks gets the limit and the value; with more room it is one."""
    text = PROGRAMS[name](4)
    instructions = executed_instructions(_loop(hloopt.parse(text)))
    most = 10 * instructions

    def decided() -> Decision:
        loop = _loop(hloopt.parse(text))
        if mapping == "native":
            return judge_host(loop, always=True).decision
        return refusal_of(
            next(one for one in gpu_mappings(loop, find_target("h200")) if one.kind == mapping)
        )

    monkeypatch.setattr(thread_code, "MOST_CODE", Room(0, 10, 10**6))
    decision = decided()
    assert decision.code == "loop-code-size"
    assert decision.limit == most
    assert decision.actual is not None
    assert decision.actual > most
    assert f"its code would have {decision.actual} bytes, {most} at most" in str(decision)

    monkeypatch.setattr(thread_code, "MOST_CODE", Room(decision.actual, 0, 10**6))
    assert decided().code != "loop-code-size"


@pytest.mark.parametrize("target", ["h200", "host"])
def test_a_loop_that_no_kernel_has_room_for_stays_a_loop(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass refuses it by the last way it asked, and leaves the module as it was."""
    module = hloopt.parse(PROGRAMS["quaternions"](4))
    text = module.to_text()
    with monkeypatch.context() as patch:
        patch.setattr(thread_code, "MOST_CODE", Room(0, 10, 10**6))
        (refusal,) = LoopFusion(target=target, always=True).fuse(module).refusals
    assert refusal.decision.code == "loop-code-size"
    assert module.to_text() == text
    assert LoopFusion(target=target, always=True).fuse(module).steps


def test_what_no_compiler_ends_is_too_long_however_long_the_body() -> None:
    assert Room(10, 5, 100).of(10) == 60
    assert Room(10, 5, 100).of(1000) == 100
