"""What holds of all passes about loops: fuel, examples, time in proportion to the module, and together."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.ir.canonical import fingerprint
from hloopt.passes.call_inliner import CallInliner
from hloopt.passes.cse import CommonSubexpressionElimination
from hloopt.passes.dce import DeadCodeElimination
from hloopt.passes.loops.constant_sinking import WhileConstantSinking
from hloopt.passes.loops.invariant_motion import WhileInvariantMotion
from hloopt.passes.loops.simplifier import WhileLoopSimplifier
from hloopt.passes.loops.trip_count import TripCount
from hloopt.passes.loops.unroll import WhileUnroll
from hloopt.pipelines import PASSES
from hloopt.rewrite import Fix, Pass, PassLog, Pipeline
from tests.helpers.rarely import one_in
from tests.helpers.support import count_calls
from tests.passes.loop_texts import COUNT, loop_text
from tests.passes.proof import check, identical, inputs
from tests.properties.random_modules import module_text

ALL: tuple[Pass, ...] = (
    WhileConstantSinking(),
    WhileLoopSimplifier(),
    WhileInvariantMotion(),
    WhileInvariantMotion(constants=True, reshapes=True),
    WhileUnroll(),
    WhileUnroll(factor=2, full_max=0),
    TripCount(),
)


@pytest.mark.parametrize("instance", ALL, ids=str)
def test_a_pass_stops_where_its_fuel_ends(instance: Pass) -> None:
    """After so many rewrites the module is valid, computes the same, and was changed if any was made."""
    for seed in range(500, 506):
        text = module_text(random.Random(seed))
        module = hloopt.parse(text)
        arrays = inputs(module, seed)
        want = hloopt.evaluate(module, arrays)
        for fuel in range(4):
            better, log = hloopt.parse(text), PassLog(fuel=fuel)
            changed = instance.run(better, log)
            assert changed == (fingerprint(better) != fingerprint(module)) == bool(log.hits)
            assert sum(log.hits.values()) <= fuel
            hloopt.verify(better)
            assert all(map(identical, want, hloopt.evaluate(better, arrays)))


@pytest.mark.parametrize("instance", [one for one in ALL if one == type(one)()], ids=str)
def test_examples(instance: Pass) -> None:
    """The example shows what the pass does, and the pass is known by its name."""
    check(instance.example, instance)
    assert PASSES[instance.name] is type(instance)


def wide(count: int) -> str:
    """A loop with so many elements: handed on, constant, equal, unused, counters, and work on each."""
    state = [("i", "s32[]", "zero")]
    body, following = [COUNT], ["i1"]
    for number in range(count):
        state += [(f"v{number}", "f32[4]", "x"), (f"w{number}", "f32[4]", "y"),
                  (f"c{number}", "f32[]", "half"), (f"j{number}", "s32[]", "three")]  # fmt: skip
        body.append(f"k{number} = s32[] constant({number + 1})\nj1.{number} = s32[] add(j{number}, k{number})\n"
                    f"e{number} = f32[4] exponential(w{number})\n"
                    f"b{number} = f32[4] broadcast(c{number}), dimensions={{}}\n"
                    f"m{number} = f32[4] multiply(v{number}, e{number})\n"
                    f"flat{number} = f32[] convert(j{number})\ng{number} = f32[4] broadcast(flat{number}), dimensions={{}}\n"
                    f"a{number} = f32[4] add(m{number}, b{number})\nv1.{number} = f32[4] add(a{number}, g{number})")  # fmt: skip
        following += [f"v1.{number}", f"w{number}", f"c{number}", f"j1.{number}"]
    return loop_text(
        state, body="\n".join(body), following=following, entry="half = f32[] constant(0.5)"
    )


@pytest.mark.parametrize("instance", ALL, ids=str)
def test_time_is_in_proportion_to_the_module(instance: Pass) -> None:
    """A loop that carries twice as much takes about twice as much work."""
    few, many = (hloopt.parse(wide(count)) for count in (20, 40))
    assert instance.run(hloopt.parse(wide(2)), PassLog())
    work = [
        count_calls(lambda module=module: instance.run(module, PassLog())) for module in (few, many)
    ]
    assert work[1] < 2.3 * work[0]


@pytest.mark.parametrize("seed", one_in(3, range(600, 615)))
def test_together_with_the_passes_around_them(seed: int) -> None:
    """A group of them comes to rest, and results stay to the last bit."""
    text = module_text(random.Random(seed))
    module = hloopt.parse(text)
    group = Fix((CallInliner(), WhileConstantSinking(), WhileLoopSimplifier(), WhileInvariantMotion(),
                 CommonSubexpressionElimination(), DeadCodeElimination()))  # fmt: skip
    pipeline = Pipeline((group, WhileUnroll(full_max=2, factor=2), group, TripCount()))
    better = hloopt.parse(text)
    report = pipeline.run(better, verify_each=True)
    assert all(run.converged for run in report.groups)
    for draw in range(2):
        arrays = inputs(module, draw)
        assert all(map(identical, hloopt.evaluate(module, arrays), hloopt.evaluate(better, arrays)))
