"""Arguments that a concatenate copies to make them longer: caches, histories."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.findings.grown_arguments import by_concatenates
from hloopt.findings.planning import Planner, pipeline_for
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.targets import find_target

LAYOUT = "{(f32[8,1024,16]{2,1,0}, f32[8,1,16]{2,1,0}, f32[8,3,16]{2,1,0})->"
HEAD = """HloModule cache, entry_computation_layout=LAYOUT
ENTRY main {
  cache = f32[8,1024,16] parameter(0)
  row = f32[8,1,16] parameter(1)
  rows = f32[8,3,16] parameter(2)
"""
BEHIND = "f32[8,1025,16] concatenate(cache, row), dimensions={1}\n}\n"
BEFORE = "f32[8,1027,16] concatenate(rows, cache), dimensions={1}\n}\n"
AMONG = "f32[8,1028,16] concatenate(rows, cache, row), dimensions={1}\n}\n"
READ_TOO = """
  longer = f32[8,1025,16] concatenate(cache, row), dimensions={1}
  doubled = f32[8,1024,16] add(cache, cache)
  ROOT r = (f32[8,1024,16], f32[8,1025,16]) tuple(doubled, longer)
}
"""


def module_of(body: str) -> Module:
    """The module with this body, in which a result has the layout that it has by itself."""
    text = HEAD + (body if "ROOT" in body else f"  ROOT longer = {body}")
    return hloopt.parse(text.replace(", entry_computation_layout=LAYOUT", ""))


def candidates(module: Module) -> list[FindingCandidate]:
    """What may be a finding on an H200."""
    target = find_target("h200")
    planner = Planner(pipeline_for(target, "h200")[0], Predictor(model_for(DEFAULT, target)))
    return list(by_concatenates(Subject(module, planner)))


@pytest.mark.parametrize(
    ("body", "first"),
    [(BEHIND, 0), (BEFORE, 3), (AMONG, 3), (READ_TOO, 0)],
    ids=["behind", "before", "among", "read otherwise, too"],
)
def test_both_changes_give_what_the_concatenate_gives(body: str, first: int) -> None:
    """In the program, and with an argument that is long enough from the start."""
    module = module_of(body)
    (one,) = candidates(module)
    rng = np.random.default_rng(4)
    given = [
        rng.normal(size=each.array.dims).astype(np.float32) for each in module.entry.parameters
    ]
    expected = hloopt.evaluate(module, given)

    inside = clone_module(module)
    assert one.change(inside, [inside.entry.by_name["longer"]])
    hloopt.verify(inside)
    assert all(map(np.array_equal, hloopt.evaluate(inside, given), expected))

    outside = clone_module(module)
    assert one.priced is not None
    assert one.priced(outside, [outside.entry.by_name["longer"]])
    hloopt.verify(outside)
    assert not any(each.opcode == "concatenate" for each in outside.entry)
    long = np.full(expected[-1].shape, np.nan, np.float32)
    long[:, first : first + 1024] = given[0]
    assert all(map(np.array_equal, hloopt.evaluate(outside, [long, *given[1:]]), expected))
    (alias,) = outside.attributes["input_output_alias"]
    assert alias.parameter == 0
    assert alias.output_index == ((1,) if "tuple" in body else ())


def test_the_layout_of_the_entry_follows() -> None:
    """It is a part of the header."""
    text = HEAD.replace("LAYOUT", LAYOUT + "f32[8,1025,16]{2,1,0}}") + f"  ROOT longer = {BEHIND}"
    module = hloopt.parse(text)
    (one,) = candidates(module)
    assert one.priced is not None
    assert one.priced(module, [module.entry.by_name["longer"]])
    hloopt.verify(module)
    assert "entry_computation_layout={(f32[8,1025,16]" in module.to_text()


@pytest.mark.parametrize(
    "body",
    [
        "f32[8,2048,16] concatenate(cache, cache), dimensions={1}\n}\n",
        "f32[8,4,16] concatenate(rows, row), dimensions={1}\n}\n",
        """
  longer = f32[8,1025,16] concatenate(cache, row), dimensions={1}
  ROOT r = f32[8,1025,16] negate(longer)
}
""",
        """
  twice = f32[8,1024,16] add(cache, cache)
  ROOT longer = f32[8,1025,16] concatenate(twice, row), dimensions={1}
}
""",
    ],
    ids=["itself", "small", "not a result", "computed"],
)
def test_what_does_not_grow_an_argument(body: str) -> None:
    """Nothing would be saved, or there is no argument to make longer."""
    assert not candidates(module_of(body))


def test_a_donated_argument_has_its_memory_given_away() -> None:
    """To another result."""
    module = module_of(READ_TOO)
    assert candidates(module)
    text = module.to_text().replace(
        "HloModule cache", "HloModule cache, input_output_alias={ {0}: (0, {}, may-alias) }"
    )
    assert not candidates(hloopt.parse(text))
