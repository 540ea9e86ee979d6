"""The CUDA column of the op table: values of elementwise ops, element by element.

The interpreter is the truth: integers wrap and no operand is undefined, narrow floats are computed in
f32 and rounded once an op, c64 is computed in f64.  Operands are names or literals of the register
types (``codegen/types``); a value may have one several times.
"""

from hloopt.codegen.scalars.conversions import convert, reinterpret
from hloopt.codegen.scalars.literals import are_constants, literal
from hloopt.codegen.scalars.memory import load, pack, store, unpack
from hloopt.codegen.scalars.table import elementwise, expression, scalar_op, scalar_problem

__all__ = [
    "are_constants",
    "convert",
    "elementwise",
    "expression",
    "literal",
    "load",
    "pack",
    "reinterpret",
    "scalar_op",
    "scalar_problem",
    "store",
    "unpack",
]
