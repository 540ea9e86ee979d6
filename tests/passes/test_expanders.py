"""What all expanders promise: names, marks and edges stay, and what cannot be expanded stays and says why."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.logistic_expander import LogisticExpander
from hloopt.pipelines import PASSES
from hloopt.rewrite import PassLog, same_layout
from hloopt.types import Verbatim
from tests.helpers.rarely import one_in
from tests.passes.proof import check
from tests.properties.random_modules import module_text

EXPANDERS = [entry for entry in PASSES.values() if issubclass(entry, Expander)]


def candidate(module: Module, expander: Expander) -> Instruction:
    (found,) = filter(expander.is_candidate, module.entry)
    return found


def test_there_are_expanders() -> None:
    """The tests of this file are about something."""
    assert len(EXPANDERS) >= 12


@pytest.mark.parametrize("kind", EXPANDERS, ids=lambda kind: kind.name)
def test_marks_and_edges_stay(kind: type[Expander]) -> None:
    """The result has the name, the marks and the control edges of what it replaces, and its layout."""
    expander, module = kind(), hloopt.parse(kind.example, "example")
    old = candidate(module, expander)
    name, shape = old.name, old.shape
    marks = {"sharding": Verbatim("{replicated}"), "frontend_attributes": Verbatim('{a="b"}')}
    for mark, value in marks.items():
        edit.set_attribute(old, mark, value)
    before = _copy_of(old.operands[0], old)
    after = _copy_of(old.operands[0], module.entry)
    edit.add_control_edge(before, old)
    edit.add_control_edge(old, after)
    assert expander.run(module, PassLog())
    new = module.entry.by_name[name]
    assert new is module.entry.root
    assert same_layout(new.shape, shape)
    assert {mark: new.attributes[mark] for mark in marks} == marks
    assert new.control_successors == (after,)
    assert before in new.control_predecessors
    hloopt.verify(module)


def _copy_of(operand: Instruction, position: Instruction | Computation) -> Instruction:
    return build.make(position, "copy", (operand,))


@pytest.mark.parametrize("kind", EXPANDERS, ids=lambda kind: kind.name)
def test_fuel_and_unknown_attributes(kind: type[Expander]) -> None:
    """Without fuel nothing is expanded, and nothing that has an attribute nobody knows."""
    expander, module = kind(), hloopt.parse(kind.example, "example")
    assert not expander.run(module, PassLog(fuel=0))
    edit.set_attribute(candidate(module, expander), "unheard_of", Verbatim("{1}"))
    log = PassLog(kinds=frozenset({"missed"}))
    assert not expander.run(module, log)
    (remark,) = log.remarks
    assert "it has an attribute that is not known: unheard_of" in remark.reason


def test_sizes_known_at_run_time_stay() -> None:
    """An array of dynamic size is left alone, and the reason names it."""
    text = """HloModule dynamic
ENTRY main {
  x = f32[<=8]{0} parameter(0)
  ROOT y = f32[<=8]{0} logistic(x)
}
"""
    log = PassLog(kinds=frozenset({"missed"}))
    assert not LogisticExpander().run(hloopt.parse(text, "text"), log)
    assert [remark.reason for remark in log.remarks] == [
        "y has shape f32[<=8]{0}, whose size is known at run time only"
    ]


@pytest.mark.parametrize("seed", one_in(3, range(6)))
def test_random_modules(seed: int) -> None:
    """Whatever a module has beside the ops that are expanded, it computes as before."""
    check(
        module_text(random.Random(seed)),
        *(kind() for kind in EXPANDERS),
        draws=1,
        changes=None,
    )
