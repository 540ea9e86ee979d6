"""What every pass promises, held against its own example: it changes it, keeps results, can be stopped."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.ir.canonical import fingerprint
from hloopt.pipelines import PASSES, parse_pipeline
from hloopt.report.passes import describe
from hloopt.rewrite import Controls, Pass, Pipeline
from hloopt.rewrite.spec import pass_text
from tests.campaigns.campaign_modules import campaign_module
from tests.helpers.respell import respell
from tests.passes.proof import check, identical, inputs, ordinary

KINDS = [pytest.param(kind, id=name) for name, kind in PASSES.items()]

# Ops with several computations, or with regions that passes look into.
REGIONS = ("conditional", "while", "select-and-scatter", "scatter", "sort")

# Passes that write one op as several, which round in between; the docstring of each says how far.
ROUNDING = {
    "batch-norm-expander": 1e-5,
    "logistic-expander": 1e-5,
    "triangular-solve-expander": 1e-4,
}

# Passes that rewrite all of a module or nothing, and why; each instruction they change is told all the same.
WHOLE = {"layout-normalization": "callers and callees agree on the layouts of what they hand over"}


def rows(kind: type[Pass], wanted: int) -> list[list[np.ndarray[Any, Any]]]:
    """Inputs on which the example computes something: a loop that runs to a parameter may not end."""
    module = hloopt.parse(kind.example)
    found: list[list[np.ndarray[Any, Any]]] = []
    for seed in range(4 * wanted):
        if len(found) == wanted:
            break
        arrays = inputs(module, seed)
        if kind.name in ROUNDING:
            arrays = ordinary(arrays)
        if _ends(module, arrays):
            found.append(arrays)
    assert len(found) == wanted
    return found


def _ends(module: Module, arrays: list[np.ndarray[Any, Any]]) -> bool:
    """Whether each loop does; nothing is run where there is none."""
    if all(one.opcode != "while" for computation in module for one in computation):
        return True
    try:
        hloopt.evaluate(module, arrays)
    except hloopt.EvaluationError as error:
        if "the loop does not end" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_is_changed_and_computes_the_same(kind: type[Pass]) -> None:
    """With default options: valid before and after, bit by bit the same results, and no second change."""
    assert kind.example.startswith("HloModule "), "a pass shows what it does: example"
    check(kind.example, kind(), rtol=ROUNDING.get(kind.name), given=rows(kind, 8))


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_attributes_does_not_matter(kind: type[Pass]) -> None:
    """What a pass makes of its example, and of others, is the same module whatever the order in the text."""
    others = [campaign_module(Random(at), opcode, 2) for at, opcode in enumerate(REGIONS)]
    for seed, text in enumerate([kind.example, *others]):
        want = hloopt.parse(text)
        spelled = respell(want, Random(seed), ["attributes"], 1.0)
        module = hloopt.parse(spelled)
        assert Pipeline((kind(),)).run(module).changed is Pipeline((kind(),)).run(want).changed
        assert fingerprint(module) == fingerprint(want), spelled


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_in_any_spelling(kind: type[Pass]) -> None:
    """All that a pass promises, whatever the writer of a text chose; and the results are those of the example."""
    example = hloopt.parse(kind.example)
    given = rows(kind, 2)
    for seed in range(2):
        text = respell(example, Random(seed))
        check(text, kind(), rtol=ROUNDING.get(kind.name), given=given, changes=None)
        for arrays in given:
            pairs = zip(
                hloopt.evaluate(hloopt.parse(text), arrays),
                hloopt.evaluate(example, arrays),
                strict=True,
            )
            assert all(identical(one, other) for one, other in pairs), text


@pytest.mark.parametrize("kind", KINDS)
def test_without_fuel_nothing_is_changed(kind: type[Pass]) -> None:
    """Not an instruction, not a computation; the pass says so, and the runner says why."""
    module = hloopt.parse(kind.example)
    before = fingerprint(module)
    report = Pipeline((kind(),)).run(
        module, controls=Controls({kind.name: 0}, verify_each=True, remarks=True)
    )
    assert not report.changed
    assert fingerprint(module) == before
    assert not report.hits()[kind.name]
    assert f"{kind.name}: out of fuel after 0 rewrites" in report.notes


@pytest.mark.parametrize("kind", KINDS)
def test_with_fuel_for_one_there_is_one_rewrite(kind: type[Pass]) -> None:
    """The first of those that it makes anyway, the module valid, its results the same; it names what it is about."""
    given = hloopt.parse(kind.example)
    module = clone_module(given)
    controls = Controls({kind.name: 1}, verify_each=True, remarks=True)
    report = Pipeline((kind(),)).run(module, controls=controls)
    assert report.changed
    told, *_ = (told for told in report.remarks() if told.remark.kind == "passed")
    if kind.name not in WHOLE:
        assert sum(report.hits()[kind.name].values()) == 1, report.hits()
    assert told.remark.instruction
    assert told.remark.computation
    rtol = ROUNDING.get(kind.name)
    for arrays in rows(kind, 3):
        pairs = zip(hloopt.evaluate(given, arrays), hloopt.evaluate(module, arrays), strict=True)
        for one, other in pairs:
            if rtol is None:
                assert identical(one, other)
            else:
                wide = (other.astype(np.float64), one.astype(np.float64))
                np.testing.assert_allclose(*wide, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("kind", KINDS)
def test_fuel_takes_a_pass_step_by_step_to_the_same_end(kind: type[Pass]) -> None:
    """One rewrite more with each unit, until all are made: what a search by halves relies on."""
    whole = hloopt.parse(kind.example)
    total = sum(Pipeline((kind(),)).run(whole).hits()[kind.name].values())
    for fuel in sorted({1, 2, total - 1, total} - {0}):
        module = hloopt.parse(kind.example)
        report = Pipeline((kind(),)).run(module, controls=Controls({kind.name: fuel}))
        if kind.name not in WHOLE:
            assert sum(report.hits()[kind.name].values()) == min(fuel, total)
        if fuel >= total or kind.name in WHOLE:
            assert fingerprint(module) == fingerprint(whole)


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_of_a_pass_gives_it_back(kind: type[Pass]) -> None:
    """With default options, and with another value of each option that takes one."""
    assert parse_pipeline(pass_text(kind())).entries == (kind(),)
    assert pass_text(kind()) == kind.name
    options: Any = kind
    for option in dataclasses.fields(options):
        default = getattr(kind(), option.name)
        if isinstance(default, (bool, int, float)) and option.init:
            other: Any = not default if isinstance(default, bool) else default + 1
            instance = kind(**{option.name: other})
            assert parse_pipeline(pass_text(instance)).entries == (instance,)


@pytest.mark.parametrize("kind", KINDS)
def test_everything_about_a_pass_is_told(kind: type[Pass]) -> None:
    """A sentence that says what it does, and one for each option."""
    row = describe(kind)
    assert row["summary"].endswith(".")
    assert row["summary"][0].isupper()
    assert kind.example, f"{row['name']}: give it an example, as other passes have"
    bare = [option["name"] for option in row["options"] if len(option["meaning"].split()) < 2]
    assert not bare, f"{row['name']}: its docstring has a line for each option"
    instance: Any = kind
    assert dataclasses.is_dataclass(kind)
    assert instance.__dataclass_params__.frozen
