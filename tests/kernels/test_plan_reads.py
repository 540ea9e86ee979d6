"""Plans held against the graph: each read sees the value that it says, and the check sees what is wrong."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.kernels import planning
from hloopt.kernels.buffers.packing import Packing, pack
from hloopt.kernels.drafting import _Drafter
from hloopt.kernels.planning import plan_program
from hloopt.kernels.selection import KernelSelection
from hloopt.kernels.selection import choose as select_kernel
from hloopt.pipelines import _TEXTS, PIPELINES
from hloopt.rewrite import Pipeline
from hloopt.targets import find_target
from tests.helpers.fake_device import choose
from tests.helpers.plans import (
    CHOICES,
    Choose,
    apart,
    entry,
    planned,
)
from tests.helpers.rarely import one_in
from tests.helpers.support import count_calls
from tests.helpers.symbolic_plan import WrongReadError, check_plan
from tests.properties.random_modules import module_text


@pytest.mark.parametrize("name", CHOICES)
def test_random_programs_read_what_was_written(name: str) -> None:
    """Whatever kernels do in place, plans of random modules read the values of the graph, near the bound."""
    for seed in range(40):
        _, plan = planned(module_text(random.Random(seed)), CHOICES[name])
        assert plan.live_bound <= plan.peak <= 1.2 * plan.live_bound


def broken(change: Callable[[pytest.MonkeyPatch], None], chooser: Choose = choose) -> int:
    """How many of some random modules are planned wrong, after a change for the worse."""
    found = 0
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        for seed in range(40):
            try:
                planned(module_text(random.Random(seed)), chooser)
            except (WrongReadError, UsageError):
                found += 1
    return found


def too_short(patch: pytest.MonkeyPatch) -> None:
    def packed(sizes: list[int], starts: list[int], ends: list[int]) -> Packing:
        return pack(sizes, starts, [max(s, e - 1) for s, e in zip(starts, ends, strict=True)])

    patch.setattr(planning, "pack", packed)


def never_apart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Drafter, "apart", lambda _self, _spec, _operands, results, _read: results)


def nothing_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("hloopt.kernels.drafting._read", lambda _spec, _count: frozenset())


def not_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(_TEXTS, "device", PIPELINES["device"].removesuffix(",copy-insertion"))


def test_what_plans_must_not_do_is_seen() -> None:
    """The check is worth something: lives cut short, shared bytes, unseen reads, missing copies are found."""
    assert broken(lambda _: None) == 0
    assert broken(too_short) > 5
    assert broken(never_apart, apart) > 5
    assert broken(nothing_read) > 20
    assert broken(not_copied) > 10


def test_time_is_in_proportion_to_the_module() -> None:
    """Four times the instructions take about four times the calls."""

    def chain(length: int) -> Module:
        lines = ["p = f32[256] parameter(0)", "v0 = f32[256] negate(p)"]
        for number in range(1, length):
            other = f"v{max(0, number - 7)}"
            lines.append(f"v{number} = f32[256] add(v{number - 1}, {other})")
        lines.append(f"ROOT r = f32[256] cosine(v{length - 1})")
        return hloopt.optimize(hloopt.parse(entry("\n".join(lines))), "device")

    few, many = chain(300), chain(1200)
    plan_program(few, choose)
    assert count_calls(lambda: plan_program(many, choose)) < 5 * count_calls(
        lambda: plan_program(few, choose)
    )


@pytest.mark.corpus
@pytest.mark.parametrize(
    "name", one_in(2, ["while_tuple_heavy", "transformer_lm_train_step", "adam_100_arrays"])
)
def test_real_programs_with_the_kernels_they_get(name: str) -> None:
    """With chosen kernels each read is right, and memory is within 1.2 of what lives at once."""
    path = Path(os.environ["HLOOPT_CORPUS"]) / "jax" / f"{name}.before.hlo"
    selection = KernelSelection()
    target, limits = find_target(selection.target), selection.limits()
    for pipeline in ("O0", "O2"):
        ready = hloopt.optimize(hloopt.optimize(hloopt.parse(path.read_text()), pipeline), "device")
        Pipeline((selection,)).run(ready)
        plan = plan_program(ready, lambda one: select_kernel(one, target, limits))
        check_plan(ready, plan)
        assert plan.peak <= 1.2 * plan.live_bound
