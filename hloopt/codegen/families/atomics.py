"""Combining a value with one in memory in a single step, whatever other threads do there."""

from __future__ import annotations

from collections.abc import Mapping

from hloopt.analysis.index import Index
from hloopt.codegen.emission import Asking
from hloopt.codegen.writer import FunctionWriter, Pointee
from hloopt.cost_models.contention import NATIVE
from hloopt.ir import Computation
from hloopt.kernel_ir.expressions import TRUE, Call, Expr
from hloopt.kernel_ir.types import BOOL, VOID
from hloopt.ops.traits import ASSOCIATIVE, op_table

__all__ = ["combine_atomically"]

_FUNCTIONS: Mapping[str, str] = op_table(
    {
        "add": "atomicAdd",
        "minimum": "atomicMin",
        "maximum": "atomicMax",
        "and": "atomicAnd",
        "or": "atomicOr",
        "xor": "atomicXor",
    },
    ASSOCIATIVE,
    "a loop of compare and swap",
)


def combine_atomically(
    f: FunctionWriter,
    pointee: Pointee,
    place: Index,
    combiner: Computation,
    opcode: str,
    value: Expr,
) -> Asking:
    """``memory = combiner(memory, value)``: by an instruction for ``opcode``, else by compare-and-swap.

    ``opcode`` is the combiner's if it is one op, else empty.  Elements have 8 to 64 bits.
    """
    e, kind = f.elements, pointee.shape.dtype
    type, target = pointee.memory.element, pointee.memory.address(place)
    if kind.name in NATIVE.get(opcode, ()):
        e.scope.do(Call(_FUNCTIONS[opcode], (target, value), type))
        return
    if opcode == "add" and kind.name in ("f16", "bf16"):
        e.scope.do(f.uses.call(f"add_to_{kind.name}", target, value, type=VOID))
        return

    def swap(old: Expr, new: Expr) -> Expr:
        return f.uses.call("swap_if", target, old, new, type=type)

    # Swapping a value for itself changes nothing and returns what is there.
    seen = e.scope.variable(type, "seen", swap(value, value))
    old = e.scope.variable(type, "old")
    with e.within(e.scope.repeat(TRUE)):
        e.scope.set(old, seen)
        (combined,) = yield from e.call(combiner, [old, value])
        e.scope.set(seen, swap(old, combined))
        e.scope.leave(f.uses.call("same_bits", seen, old, type=BOOL))
