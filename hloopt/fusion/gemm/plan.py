"""What joins a dot in a Triton kernel: producers of its operands, and consumers of its result.

Source of the rules: OpenXLA, xla/backends/gpu/transforms/gemm_fusion.cc and
xla/service/gpu/triton_tiling_propagation.cc (Apache-2.0).
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.fusion.gemm.orders import (
    DimensionOrder,
    OrderError,
    inputs,
    major_part,
    order_of,
    output,
)
from hloopt.fusion.triton_support import unsupported_by_triton
from hloopt.ir import Instruction
from hloopt.ops.traits import CONTRACTING, FOLDING, PERMUTING, TUPLES
from hloopt.targets import Target
from hloopt.types import DotDims, free_dims

__all__ = ["GemmNode", "GemmPlan", "plan_gemm", "refused_dot"]

_MOST_PARAMETERS: Final = 4
"""Of each operand of the dot."""
_TINY: Final = 100
"""Below (M + N) * K the dot is one of XLA's loop kernels."""
_TOLERATED_BYTES: Final = 1024
_TYPES: Final = frozenset({"bf16", "f16", "f32", "f64", "f8e4m3fn", "f8e5m2", "s8"})


@dataclass(eq=False)
class GemmNode:
    """A value as a fusion reads it; ``operands`` is None where it is a parameter of the fusion."""

    instruction: Instruction
    order: DimensionOrder
    operands: list[GemmNode] | None = None


@dataclass(eq=False)
class GemmPlan:
    """A dot with what joins it.

    sides   what its two operands are made from
    behind  ops behind it, each with its operands; None is the value before it
    root    the last of them
    closed  the user that did not join, and why; None where there is none or are several
    """

    dot: Instruction
    sides: list[GemmNode]
    behind: list[tuple[Instruction, list[GemmNode | None]]] = field(default_factory=list)
    closed: tuple[Instruction, str] | None = None

    @property
    def root(self) -> Instruction:
        """The instruction whose users read the kernel's result."""
        return self.behind[-1][0] if self.behind else self.dot


def refused_dot(dot: Instruction, target: Target) -> str:
    """Why there is no Triton kernel of a dot, in words; empty where there is one."""
    dims = DotDims.of(dot.attributes)
    types = [operand.array.dtype.name for operand in dot.operands]
    if unknown := next((name for name in types if name not in _TYPES), ""):
        return f"products of {unknown}"
    if len(dims.lhs_contracting) != 1:
        return f"dots with {len(dims.lhs_contracting)} contracting dimensions"
    sides = ((dims.lhs_batch, dims.lhs_contracting), (dims.rhs_batch, dims.rhs_contracting))
    sizes = []
    for operand, (batch, contracting) in zip(dot.operands, sides, strict=True):
        free = free_dims(operand.array.rank, batch, contracting)
        if len(free) > 1:
            return "operands of which several dimensions come back"
        sizes.append(operand.array.dims[free[0]] if free else 1)
    work = sum(sizes) * dot.operands[0].array.dims[dims.lhs_contracting[0]]
    return f"so small dots: (M + N) * K is {work}, below {_TINY}" if work < _TINY else ""


def plan_gemm(dot: Instruction, target: Target) -> GemmPlan:
    """What joins a dot that ``refused_dot`` has nothing against."""
    dims = DotDims.of(dot.attributes)
    sides, cut = [], 0
    batches = (dims.lhs_batch, dims.rhs_batch)
    contractings = (dims.lhs_contracting, dims.rhs_contracting)
    for number, operand in enumerate(dot.operands):
        free = free_dims(operand.array.rank, batches[number], contractings[number])
        # The left operand's free dimension may be cut in two, where there is no batch.
        splittable = free[0] if free and number == 0 and not dims.lhs_batch else None
        growth = _Growth(target, splittable, free[0] if free else None, most=_MOST_PARAMETERS)
        sides.append(growth.upwards(operand, order_of(operand)))
        cut = cut or growth.cut
    plan = GemmPlan(dot, sides)
    _downwards(plan, target, cut)
    return plan


@dataclass(eq=False)
class _Growth:
    """Grows towards operands, breadth first; ``cut`` is the major part of the dimension cut in two."""

    target: Target
    splittable: int | None
    free: int | None
    cut: int = 0
    most: int | None = None

    def upwards(self, value: Instruction, order: DimensionOrder) -> GemmNode:
        root = GemmNode(value, order)
        nodes = {(value, order): root}
        queue, waiting, edge = deque([root]), 0, 1
        while len(queue) > waiting:
            node = queue.popleft()
            if self.most is not None and edge + _more_parameters(node.instruction) > self.most:
                # Other joins may free room for it.
                queue.append(node)
                waiting += 1
                continue
            waiting = 0
            found = self._inputs(node)
            if found is None:
                continue
            edge -= 1
            node.operands = []
            for operand, its in zip(node.instruction.operands, found, strict=True):
                if (operand, its) not in nodes:
                    nodes[operand, its] = GemmNode(operand, its)
                    queue.append(nodes[operand, its])
                    edge += 1
                node.operands.append(nodes[operand, its])
        return root

    def _inputs(self, node: GemmNode) -> list[DimensionOrder] | None:
        """The orders of the operands of what may join; the cut it requires is kept."""
        instruction = node.instruction
        if instruction.opcode in ("parameter", "dynamic-slice"):
            return None
        try:
            found = self._followed(instruction, node.order)
            cut = self._common_cut([*found, node.order])
        except OrderError:
            return None
        if not _is_worth_reading(instruction) and not self._reads_broadcast(instruction, found):
            return None
        self.cut = cut
        return found

    def _followed(self, instruction: Instruction, order: DimensionOrder) -> list[DimensionOrder]:
        if instruction.opcode in TUPLES | FOLDING - CONTRACTING | {"fusion", "iota", "pad"}:
            raise OrderError(instruction.opcode)
        # Pieces side by side are what a dot reads, and no other Triton kernel.
        if instruction.opcode != "concatenate" and (
            words := _unsupported(instruction, self.target)
        ):
            raise OrderError(words)
        return inputs(instruction, order, self.free)

    def _common_cut(self, orders: list[DimensionOrder]) -> int:
        """The cut that all agree on.  Raises ``OrderError``."""
        found = {self.cut, *(major_part(order, self.splittable) for order in orders)} - {0}
        if len(found) > 1:
            raise OrderError("a dimension cut at two places")
        return found.pop() if found else 0

    def _reads_broadcast(self, node: Instruction, orders: list[DimensionOrder]) -> bool:
        """Whether an operand of a binary op is a broadcast that joins as well."""
        if not node.op.is_elementwise or len(node.operands) != 2:
            return False
        for operand, order in zip(node.operands, orders, strict=True):
            if operand.opcode != "broadcast":
                continue
            if operand.operands[0].opcode not in ("parameter", "constant"):
                continue
            try:
                self._common_cut([*self._followed(operand, order), order])
            except OrderError:
                continue
            if _is_worth_reading(operand):
                return True
        return False


def _more_parameters(instruction: Instruction) -> int:
    """What the fusion would read more by taking an input in."""
    is_array = instruction.opcode == "constant" and bool(instruction.array.dims)
    if instruction.opcode == "parameter" or is_array:
        return 0
    return len(instruction.operands) - 1


def _is_worth_reading(node: Instruction) -> bool:
    """Whether a kernel that computes a value itself reads little more than the value."""
    if _grown_bytes(node) <= _TOLERATED_BYTES:
        return True
    if len(node.users) > 1:
        return False
    given = all(operand.opcode in ("parameter", "constant") for operand in node.operands)
    if node.opcode == "slice" and given:
        return True
    return given and all(len(operand.users) == 1 for operand in node.operands)


def _grown_bytes(node: Instruction) -> int:
    return sum(operand.shape.byte_size for operand in node.operands) - node.shape.byte_size


def _downwards(plan: GemmPlan, target: Target, cut: int) -> None:
    """Take in what is done with the result, as long as each value has one user."""
    value, order = plan.dot, order_of(plan.dot)
    growth = _Growth(target, 0 if cut > 1 else None, None, cut if cut > 1 else 0)
    while len(value.users) == 1 and not value.is_root:
        (user,) = value.users
        words, below = _joins(user, value, order, growth)
        if words:
            plan.closed = (user, words)
            return
        others = [
            None if operand is value else growth.upwards(operand, below)
            for operand in user.operands
        ]
        plan.behind.append((user, others))
        value, order = user, below


def _joins(
    user: Instruction, value: Instruction, order: DimensionOrder, growth: _Growth
) -> tuple[str, DimensionOrder]:
    """Why a user cannot join, or the order of its result."""
    moves = user.opcode in PERMUTING - {"reverse"}
    if not moves and not user.op.is_elementwise:
        return f"no {user.opcode} behind a dot", ()
    if words := _unsupported(user, growth.target):
        return f"no {words}", ()
    for operand in user.operands:
        if operand is not value and not _is_given(operand):
            return f"no second input that is computed, as {operand.name} is", ()
    if _grown_bytes(user) < -_TOLERATED_BYTES and not _is_last(user):
        return "no profit from results that are larger than what they are made from", ()
    try:
        below = output(user, order)
        growth.cut = growth._common_cut([order, below])
    except OrderError as error:
        return f"no {error}", ()
    return "", below


def _unsupported(node: Instruction, target: Target) -> str:
    """What a Triton kernel of a dot does not have of an op: besides what none has, arithmetic of f64."""
    if node.op.is_elementwise and any(
        one.array.dtype.name == "f64" for one in (node, *node.operands)
    ):
        return f"{node.opcode} of f64 beside a dot"
    return unsupported_by_triton(node, target)


def _is_given(operand: Instruction) -> bool:
    """A parameter, or the broadcast of one or of a scalar."""
    if operand.opcode == "broadcast":
        (source,) = operand.operands
        return not source.array.dims or _is_parameter(source)
    return _is_parameter(operand)


def _is_parameter(operand: Instruction) -> bool:
    while operand.opcode in ("bitcast", "get-tuple-element"):
        (operand,) = operand.operands
    return operand.opcode == "parameter"


def _is_last(user: Instruction) -> bool:
    """Whether nothing else could take the value in: it is a result of the computation."""
    if user.is_root:
        return True
    return len(user.users) == 1 and any(one.is_root and one.opcode == "tuple" for one in user.users)
