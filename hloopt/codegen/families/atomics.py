"""Combining a value with one in memory in a single step, whatever other threads do there."""

from __future__ import annotations

from collections.abc import Mapping

from hloopt.analysis.index import Index
from hloopt.codegen.elements import Emission
from hloopt.codegen.writer import FunctionWriter, Pointee
from hloopt.ir import Computation
from hloopt.kernels.families.scatter import NATIVE
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
    value: str,
) -> Emission:
    """``memory = combiner(memory, value)``: by an instruction for ``opcode``, else by compare-and-swap.

    ``opcode`` is the combiner's if it is one op, else empty.  Elements have 8 to 64 bits.
    """
    e = f.elements
    kind = pointee.shape.dtype
    target = f"&{pointee.name}[{place}]"
    if kind.name in NATIVE.get(opcode, ()):
        e.scope.line(f"{_FUNCTIONS[opcode]}({target}, {value});")
        return ""
    if opcode == "add" and kind.name in ("f16", "bf16"):
        e.scope.line(f"{f.uses.call(f'add_to_{kind.name}', target, value)};")
        return ""
    type_name = f.uses.type(kind)
    # Swapping a value for itself changes nothing and tells what is there.
    seen = e.scope.variable(type_name, "seen", f.uses.call("swap_if", target, value, value))
    old = e.scope.variable(type_name, "old")
    loop = e.scope.block("do")
    with e.within(loop):
        e.scope.line(f"{old} = {seen};")
        combined = yield from e.call(combiner, [old, value])
        e.scope.line(f"{seen} = {f.uses.call('swap_if', target, old, combined[0])};")
    e.scope.line(f"while (!{f.uses.call('same_bits', seen, old)});")
    return ""
