"""The graph: instructions, computations, modules; ``build`` makes, ``edit`` changes, ``walk`` queries."""

from hloopt.ir import build, edit, walk
from hloopt.ir.computation import Computation
from hloopt.ir.instruction import Instruction
from hloopt.ir.module import Module, StackTables

__all__ = [
    "Computation",
    "Instruction",
    "Module",
    "StackTables",
    "build",
    "edit",
    "walk",
]
