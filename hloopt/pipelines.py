"""All passes by name, and the named pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hloopt.fusion.instruction_fusion import InstructionFusion
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.passes.call_inliner import CallInliner
from hloopt.passes.constant_folding import ConstantFolding
from hloopt.passes.cse import CommonSubexpressionElimination
from hloopt.passes.dce import DeadCodeElimination
from hloopt.passes.defuse import Defuse
from hloopt.passes.map_inliner import MapInliner
from hloopt.passes.simplify import Simplify
from hloopt.passes.tuple_simplifier import TupleSimplifier
from hloopt.rewrite import Pass, Pipeline

__all__ = ["PASSES", "PIPELINES", "optimize_module", "parse_pipeline"]

_ALL: tuple[type[Pass], ...] = (
    CallInliner,
    MapInliner,
    TupleSimplifier,
    Simplify,
    ConstantFolding,
    CommonSubexpressionElimination,
    DeadCodeElimination,
    InstructionFusion,
    Defuse,
)

PASSES: Final[Mapping[str, type[Pass]]] = {entry.name: entry for entry in _ALL}

# Instruction fusion runs twice, as in XLA: what may be fused without computing anything twice first.  A body
# may then hold what several producers brought along, the same constants above all: cse takes one of each.
PIPELINES: Final[Mapping[str, str]] = {
    "O0": "",
    "O1": "fix(call-inliner,tuple-simplifier,simplify,constant-folding,cse,dce)",
    "O2": "O1,instruction-fusion{may_duplicate=false},instruction-fusion,cse,dce",
    "O3": "O1,fix(instruction-fusion{may_duplicate=false},instruction-fusion,cse,dce)",
}


def parse_pipeline(text: str) -> Pipeline:
    """A pipeline from text, named pipelines included; raises ``UsageError``."""
    return Pipeline.parse(text, PASSES, PIPELINES)


def optimize_module(module: Module, pipeline: str = "O2", target: str | None = None) -> Module:
    """Run a pipeline over a copy of the module; ``target`` is for passes that ask for a device."""
    copy = clone_module(module)
    parse_pipeline(pipeline).run(copy)
    return copy
