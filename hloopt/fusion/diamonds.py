"""Normalisation diamonds: a value and what its rows reduce to, joined again by one op.

    p -> reduce over the last dimension -> broadcast -> root
    p -----------------------------------------------> root

On the edges there are only ops that read nothing but the value they transform.  The maximum that a softmax
subtracts is one diamond, the sum it divides by another.
"""

from __future__ import annotations

from hloopt.analysis.elementwise import is_elementwise
from hloopt.dataclass import dataclass
from hloopt.fusion.triton_support import unsupported_by_triton
from hloopt.ir import Computation, Instruction, walk
from hloopt.targets import Target
from hloopt.types import ArrayShape, Shape

__all__ = ["Diamond", "find_diamonds"]


@dataclass(frozen=True, eq=False)
class Diamond:
    """``producer`` is read by ``reduce`` and, along another path, by ``root``."""

    producer: Instruction
    reduce: Instruction
    root: Instruction

    def body(self) -> list[Instruction]:
        """Everything between: what the root is computed from, down to the producer; operands come first.

        Parameters of the computation are not among them, constants are.
        """
        order: list[Instruction] = []
        seen: set[Instruction] = set()
        pending = [(self.root, False)]
        while pending:
            node, ready = pending.pop()
            if ready:
                order.append(node)
            elif node not in seen and node is not self.producer and node.opcode != "parameter":
                seen.add(node)
                pending.append((node, True))
                pending.extend((operand, False) for operand in reversed(node.operands))
        return order


def find_diamonds(computation: Computation, target: Target) -> list[Diamond]:
    """All diamonds of ops that Triton has, by their roots; operands come first."""
    found = [_diamond(instruction, target) for instruction in walk.post_order(computation)]
    return [diamond for diamond in found if diamond is not None]


def _diamond(root: Instruction, target: Target) -> Diamond | None:
    if len(root.operands) != 2 or not is_elementwise(root) or unsupported_by_triton(root, target):
        return None
    broadcast = _behind(root.operands[1], "broadcast", target)
    if broadcast is None:
        return None
    reduce = _behind(broadcast.operands[0], "reduce", target)
    if reduce is None or not _is_row_reduce(reduce, target):
        return None
    if not (_is_row_major(broadcast.shape) and len(broadcast.users) == len(reduce.users) == 1):
        return None
    if broadcast.array.rank - 1 in broadcast.attributes.get("dimensions", ()):
        return None
    producer = reduce.operands[0]
    while _is_trivial(producer, target):
        producer = _main_operand(producer)
    other = root.operands[0]
    if not _is_row_major(producer.shape) or not _leads_to(other, producer, target):
        return None
    if other is not producer and len(other.users) != 1:
        return None
    diamond = Diamond(producer, reduce, root)
    ordered = any(node.has_control_edges for node in diamond.body())
    return None if ordered else diamond


def _is_row_reduce(reduce: Instruction, target: Target) -> bool:
    """Whether it reduces the last dimension alone, from a constant or a converted one."""
    if unsupported_by_triton(reduce, target) or not _is_row_major(reduce.shape):
        return False
    if reduce.dimensions != (reduce.operands[0].array.rank - 1,):
        return False
    init = reduce.operands[1]
    if init.opcode == "convert" and not unsupported_by_triton(init, target):
        init = init.operands[0]
    return init.opcode == "constant"


def _behind(node: Instruction, opcode: str, target: Target) -> Instruction | None:
    """The nearest op with an opcode, going up through trivial ones."""
    while node.opcode != opcode:
        if not _is_trivial(node, target):
            return None
        node = _main_operand(node)
    return node


def _leads_to(node: Instruction, producer: Instruction, target: Target) -> bool:
    """Whether a path of trivial ops leads from the producer to a node."""
    while node is not producer:
        if not _is_trivial(node, target):
            return False
        node = _main_operand(node)
    return True


def _is_trivial(node: Instruction, target: Target) -> bool:
    """Whether an op reads nothing but its one operand, and numbers that are the same for all elements."""
    if len(node.users) > 1 or not _is_row_major(node.shape):
        return False
    if node.opcode == "bitcast":
        return True
    if not is_elementwise(node) or unsupported_by_triton(node, target):
        return False
    if len(node.operands) == 2:
        first, second = node.operands
        return first is second or _is_splat(first) is not _is_splat(second)
    return len(node.operands) == 1


def _is_splat(node: Instruction) -> bool:
    """A broadcast of a single constant, or of a parameter."""
    if node.opcode != "broadcast":
        return False
    (source,) = node.operands
    return source.opcode == "parameter" or (
        source.opcode == "constant"
        and isinstance(source.shape, ArrayShape)
        and not source.shape.dims
    )


def _main_operand(node: Instruction) -> Instruction:
    if len(node.operands) > 1 and _is_splat(node.operands[0]):
        return node.operands[1]
    return node.operands[0]


def _is_row_major(shape: Shape) -> bool:
    return isinstance(shape, ArrayShape) and (shape.layout is None or shape.layout.is_descending)
