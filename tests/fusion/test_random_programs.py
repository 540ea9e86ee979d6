"""Fusing a random program, and taking it apart again, leaves a valid module with the same results."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

import hloopt
from hloopt.fusion.instruction_fusion import InstructionFusion
from hloopt.passes.defuse import Defuse
from hloopt.rewrite.pass_ import PassLog
from tests.helpers.programs import programs, results
from tests.helpers.rarely import examples


@pytest.mark.parametrize("may_duplicate", [False, True])
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=programs())
def test_fusion_and_defusion_keep_every_bit(may_duplicate: bool, text: str) -> None:
    """Twice, as pipelines run it; then apart again."""
    module = hloopt.parse(text)
    before = results(module)
    for _ in range(2):
        InstructionFusion(may_duplicate=may_duplicate).fuse(module)
        hloopt.verify(module)
    assert results(module) == before
    Defuse().run(module, PassLog())
    hloopt.verify(module)
    assert results(module) == before
    assert all(entry.opcode != "fusion" for entry in module.instructions())


@settings(max_examples=examples(30), deadline=None)
@given(text=programs())
def test_a_fused_module_is_read_back(text: str) -> None:
    """The text of a fused module parses to the same module."""
    module = hloopt.parse(text)
    InstructionFusion().fuse(module)
    again = hloopt.parse(module.to_text())
    assert again.to_text() == module.to_text()


@settings(max_examples=examples(30), deadline=None)
@given(text=programs())
def test_fusion_comes_to_rest(text: str) -> None:
    """A second run finds nothing that the first left for lack of looking, without duplication."""
    module = hloopt.parse(text)
    InstructionFusion(may_duplicate=False).fuse(module)
    assert InstructionFusion(may_duplicate=False).fuse(module).steps == []
