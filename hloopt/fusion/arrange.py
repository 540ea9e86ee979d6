"""Operands and results of a fusion in another order: it computes the same, and looks as another one did."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.fusion.merge import aliases, has_tuple_root, set_aliases
from hloopt.ir import Computation, Instruction, edit
from hloopt.types import TupleShape

__all__ = ["arrange_operands", "arrange_results"]


def arrange_operands(fusion: Instruction, order: Sequence[int]) -> None:
    """Put operands, and the parameters of the body, into an order of the numbers they have."""
    body: Computation = fusion.attributes["calls"]
    kept = aliases(fusion)
    edit.set_operands(fusion, tuple(fusion.operands[number] for number in order))
    edit.permute_parameters(body, order)
    for parameter in reversed(body.parameters):
        edit.move_before(next(iter(body)), parameter)
    set_aliases(fusion, kept)


def arrange_results(fusion: Instruction, order: Sequence[int]) -> bool:
    """Put results into an order of the numbers they have; say whether that could be done.

    It cannot where somebody reads them otherwise than one by one, or where they share buffers with operands.
    """
    readers = list(fusion.users)
    if not has_tuple_root(fusion) or fusion.is_root or aliases(fusion):
        return False
    if any(reader.opcode != "get-tuple-element" for reader in readers):
        return False
    root: Instruction = fusion.attributes["calls"].root
    edit.set_operands(root, tuple(root.operands[number] for number in order))
    shape = TupleShape(tuple(operand.shape for operand in root.operands))
    edit.set_shape(root, shape)
    edit.set_shape(fusion, shape)
    places = {old: new for new, old in enumerate(order)}
    for reader in readers:
        edit.set_attribute(reader, "index", places[reader.attributes["index"]])
    return True
