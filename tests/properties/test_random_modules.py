"""What optimisation and execution promise, on random modules with all that can be in one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.backends.numpy import arena, block_limits, block_plan, blocks, sharing
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.interpret.progress import Progress
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.pipelines import PIPELINES, parse_pipeline
from tests.helpers.rarely import examples, one_in
from tests.properties.random_modules import module_text
from tests.properties.special_inputs import special_inputs

Array = np.ndarray[Any, Any]

CHOOSERS = st.randoms(use_true_random=False)
SHRINKABLE = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def results(arrays: list[Array]) -> list[tuple[str, tuple[int, ...], bytes]]:
    """Types, dimensions and bits; all NaNs are the same one."""
    found = []
    for array in arrays:
        if array.dtype.kind not in "biu":
            array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
        found.append((array.dtype.name, array.shape, array.tobytes()))
    return found


def read(chooser: random.Random) -> tuple[Module, list[Array]]:
    """A valid module and inputs for it."""
    text = module_text(chooser)
    module = hloopt.parse(text)
    hloopt.verify(module)
    return module, special_inputs(module, len(text))


@settings(max_examples=examples(40), **SHRINKABLE)
@given(chooser=CHOOSERS)
def test_text_is_read_back(chooser: random.Random) -> None:
    """Printing and reading gives the same text again, and a module that computes the same."""
    module, arrays = read(chooser)
    again = hloopt.parse(module.to_text())
    assert again.to_text() == module.to_text()
    assert results(hloopt.evaluate(again, arrays)) == results(hloopt.evaluate(module, arrays))


@pytest.mark.parametrize("pipeline", ["O1", "O2", "O3", "O2,defuse"])
@settings(max_examples=examples(25), **SHRINKABLE)
@given(chooser=CHOOSERS)
def test_optimisation_keeps_every_bit(pipeline: str, chooser: random.Random) -> None:
    """Each pass leaves a valid module and says truly whether it changed anything; results stay."""
    module, arrays = read(chooser)
    better = clone_module(module)
    report = parse_pipeline(pipeline).run(better, verify_each=True)
    assert not report.notes
    wanted = results(hloopt.evaluate(module, arrays))
    assert results(hloopt.evaluate(better, arrays)) == wanted
    assert results(hloopt.compile(better, exact=True).run(arrays)) == wanted
    assert hloopt.parse(better.to_text()).to_text() == better.to_text()


@pytest.mark.parametrize("seed", one_in(3, range(40)))
def test_large_modules_keep_every_bit(seed: int) -> None:
    """As above, with more in a module than the examples that are made small have."""
    module, arrays = read(random.Random(seed))
    wanted = results(hloopt.evaluate(module, arrays))
    assert results(hloopt.compile(module, exact=True).run(arrays)) == wanted
    for pipeline in ("O2", "O3"):
        better = hloopt.optimize(module, pipeline)
        hloopt.verify(better)
        assert results(hloopt.compile(better, exact=True).run(arrays)) == wanted


# Fusion runs once, as in XLA: what it leaves may be fused further.
_BEFORE_FUSION = PIPELINES["O3"].partition(",priority-fusion")[0]


@pytest.mark.parametrize("pipeline", ["O1", _BEFORE_FUSION], ids=["O1", "O3 before fusion"])
@settings(max_examples=examples(25), **SHRINKABLE)
@given(chooser=CHOOSERS)
def test_optimisation_comes_to_rest(pipeline: str, chooser: random.Random) -> None:
    """Pipelines that repeat until nothing changes find nothing on a second run."""
    module, _ = read(chooser)
    parse_pipeline(pipeline).run(module)
    report = parse_pipeline(pipeline).run(module)
    assert not report.changed, report.hits()


@pytest.mark.parametrize("excess_precision", [False, True])
@settings(max_examples=examples(40), **SHRINKABLE)
@given(chooser=CHOOSERS)
def test_the_executor_agrees_with_the_interpreter(
    excess_precision: bool, chooser: random.Random
) -> None:
    """To the bit, twice, with the inputs left as they are."""
    module, arrays = read(chooser)
    before = results(arrays)
    wanted = results(hloopt.evaluate(module, arrays, excess_precision=excess_precision))
    program = hloopt.compile(module, excess_precision=excess_precision, exact=True)
    assert results(program.run(arrays)) == wanted
    assert results(program.run(arrays)) == wanted
    assert results(arrays) == before


@pytest.fixture(scope="module")
def nothing_is_small() -> Iterator[None]:
    """Arrays of a few elements are worked on by blocks, have places, and are kept, as large ones are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_limits, "DEFAULT", block_limits.BlockLimits(least=2))
        patch.setattr(blocks, "_SHARED", 0)
        patch.setattr(block_plan, "_FEWEST", 1)
        patch.setattr(block_plan, "_MOST", 2)
        patch.setattr(arena, "_LARGE", 1)
        patch.setattr(sharing, "_LARGE", 0)
        yield


@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize("seed", one_in(3, range(100)))
def test_results_stay_when_a_program_runs_again(seed: int) -> None:
    """Runs on other inputs, and one that is stopped half way, leave them alone, and each other's."""
    module, first = read(random.Random(seed))
    given = [first, special_inputs(module, 1), special_inputs(module, 2), first]
    wanted = [results(hloopt.evaluate(module, arrays)) for arrays in given]
    program = hloopt.compile(module, exact=True, threads=1 + seed % 3)
    assert isinstance(program, NumpyProgram)
    got = []
    for arrays in given:
        got.append(program.run(arrays))
        program.progress.__class__ = _Stopping
        try:
            with suppress(KeyboardInterrupt):
                program.run(first)
        finally:
            program.progress.__class__ = Progress
    assert [results(arrays) for arrays in got] == wanted


class _Stopping(Progress):
    """Stops a run after some of its steps, as Ctrl-C does."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "done" and value > 0:
            raise KeyboardInterrupt
        super().__setattr__(name, value)


def test_small_arrays_are_worked_on_as_large_ones_are(nothing_is_small: None) -> None:
    """Among random modules there are some with blocks."""
    regions = 0
    for seed in range(40):
        program = hloopt.compile(read(random.Random(seed))[0], exact=True)
        assert isinstance(program, NumpyProgram)
        regions += program._compiler.regions
    assert regions > 5
