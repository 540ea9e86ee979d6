"""The fusion passes that XLA chained in 2022, as one: results stay, they come to rest, and a Cartpole step."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import hloopt
from hloopt.fusion.history import FusionPlan
from hloopt.ir import Module
from hloopt.pipelines import parse_pipeline
from hloopt.presets import XLA_PRESETS, Rows, preset_text
from tests.helpers.programs import programs, results
from tests.helpers.rarely import examples

SAMPLES = Path(__file__).parents[2] / "samples"
FUSION = tuple(
    row
    for row in XLA_PRESETS["xla-gpu-2022"]
    if isinstance(row, Rows) and row.xla in ("fusion", "horizontal fusion")
)


def test_the_passes_and_their_limits() -> None:
    """Two groups, each until nothing changes, with the limits of that time."""
    first, second = (",".join(step.entry for step in row.steps) for row in FUSION)
    passes = list(parse_pipeline(first).passes())
    assert [instance.name for instance in passes] == [
        "variadic-op-splitter",
        "instruction-fusion",
        "instruction-fusion",
        "fusion-merger",
        "multi-output-fusion",
        "cse",
        "dce",
    ]
    for instance in passes[1:5]:
        options = vars(instance)
        assert (options["max_operands"], options["column_bytes"]) == (64, 2112)
    assert [vars(instance)["may_duplicate"] for instance in passes[1:3]] == [False, True]
    names = [instance.name for instance in parse_pipeline(second).passes()]
    assert names == ["horizontal-loop-fusion", "horizontal-input-fusion", "cse", "dce"]


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=programs())
def test_results_stay_and_a_second_run_changes_nothing(text: str) -> None:
    """All passes over random programs, bit by bit."""
    pipeline = parse_pipeline(preset_text(FUSION))
    module = hloopt.parse(text)
    before = results(module)
    pipeline.run(module)
    hloopt.verify(module)
    assert results(module) == before
    fused = module.to_text()
    pipeline.run(module)
    assert module.to_text() == fused


def _kernels(module: Module) -> Counter[str]:
    """Opcodes of what is launched in computations that run one by one."""
    quiet = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "copy", "while"}
    homes = [
        computation
        for computation in module
        if all(caller.opcode == "while" for caller in computation.callers)
    ]
    return Counter(entry.opcode for home in homes for entry in home if entry.opcode not in quiet)


def _reasons(text: str, entries: str) -> tuple[Module, Counter[str]]:
    """The module after some passes, and the last run's reasons of each strategy."""
    module = hloopt.parse(text)
    report = parse_pipeline(entries).run(module)
    plans = {
        plan.strategy: plan
        for run in report.runs
        for plan in run.records
        if isinstance(plan, FusionPlan)
    }
    return module, sum((plan.reasons() for plan in plans.values()), Counter())


def test_a_cartpole_step_is_two_kernels() -> None:
    """Flag and reward over 2048 numbers in one, the state over four times as many in the other."""
    text = (SAMPLES / "cartpole_step.hlo").read_text()
    module, reasons = _reasons(text, "xla-gpu-2022")
    assert _kernels(module) == {"fusion": 2}
    assert reasons["different-loops"]
    assert not reasons["custom-call"]
    assert not reasons["loop-carried"]


def _loop() -> str:
    """Steps of a Cartpole whose actions a custom call draws, as text."""
    case = (Path(__file__).parents[1] / "cases/fusion/cartpole_barriers.test").read_text()
    return case.partition("-- input\n")[2].partition("-- output")[0]


def test_a_loop_of_steps_is_a_call_and_a_kernel() -> None:
    """What is left between kernels after all passes: the call, and the tuple of the loop."""
    module, reasons = _reasons(_loop(), "xla-gpu-2022")
    (loop,) = (entry for entry in module.entry if entry.opcode == "while")
    inner = Counter(entry.opcode for entry in loop.attributes["body"])
    assert (inner["custom-call"], inner["fusion"]) == (1, 1)
    assert reasons["custom-call"]
    assert reasons["loop-carried"]
    assert not reasons["barrier-users"]


@pytest.mark.parametrize(("users", "expected"), [(1, True), (2, False)])
def test_the_barriers_the_paper_names(users: int, expected: bool) -> None:
    """The call that draws random numbers, a concatenate with several users, the tuple of the loop.

    "Operator Fusion in XLA" (arXiv 2301.13062).  The second is a limit of instruction fusion.
    """
    entries = preset_text(FUSION).replace(
        "instruction-fusion{max_operands=64",
        f"instruction-fusion{{max_barrier_users={users},max_operands=64",
    )
    assert f"max_barrier_users={users}" in entries
    first_rounds = ",".join(entries.removeprefix("fix(").split(",fusion-merger")[:1])
    module, reasons = _reasons(_loop(), first_rounds)
    assert reasons["custom-call"] == 1
    assert reasons["loop-carried"] == 1
    assert bool(reasons["barrier-users"]) is expected
    body = module.entry.by_name["loop"].attributes["body"]
    assert ("moved" in body.by_name) is expected
