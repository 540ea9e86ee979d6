"""What a computation of scalars does, where it is one op."""

from __future__ import annotations

from hloopt.ir import Computation

__all__ = ["plain_opcode"]


def plain_opcode(computation: Computation) -> str:
    """The opcode of a computation that is one elementwise op of its two parameters, in any order.

    Empty for every other one, and where the op takes other types than it gives.
    """
    root, parameters = computation.root, computation.parameters
    if len(parameters) != 2 or not root.op.is_elementwise or len(root.operands) != 2:
        return ""
    if set(root.operands) != set(parameters) or root.shape != parameters[0].shape:
        return ""
    if root.operands[0] is not parameters[0] and not root.op.commutative:
        return ""
    return root.opcode
