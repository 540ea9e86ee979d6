"""The dimension orders in which computations take their parameters and give their results.

What a loop carries has one order: that of its body's parameter; branches of a conditional agree on the first
one's result.  All others keep what the text says.  A computation that only XLA or its run time calls
(ENTRY, asynchronous calls, unknown ops) is *fixed*: its parameters and its result keep their layouts.
"""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.graphs import UnionFind
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import called_computations
from hloopt.ops.traits import BODIES
from hloopt.passes.layout_normalization.values import Orders, orders_of, plain_orders
from hloopt.types import Shape

__all__ = ["Signatures", "is_border", "wraps"]

_FAMILIES = ("custom", "host", "async")

_Slot = tuple[Computation, int]
_RESULT = -1


def is_border(instruction: Instruction) -> bool:
    """Whether code outside of HLO reads or writes the buffers, so that layouts stay as they are."""
    opcode = instruction.opcode
    return (
        not instruction.is_understood
        or instruction.op.family in _FAMILIES
        or opcode.endswith(("-start", "-done"))
    )


def wraps(caller: Instruction) -> bool:
    """Whether a computation is one op with its caller, or its meaning depends on its caller: it stays."""
    return caller.op.family == "async" or not caller.is_understood


class Signatures:
    """Orders of all parameters and results; all descending where ``logical``."""

    def __init__(self, module: Module, *, logical: bool) -> None:
        self.logical = logical
        self._fixed: set[Computation] = {module.entry}
        self._same = UnionFind[_Slot]()
        calls = [entry for entry in module.instructions() if entry.opcode in BODIES]
        for instruction in module.instructions():
            if instruction.opcode not in BODIES or not instruction.is_understood:
                self._fixed.update(called_computations(instruction))
        for computation in module:
            if any(map(wraps, computation.callers)):
                for instruction in computation:
                    self._fixed.update(called_computations(instruction))
        self._fix_partners(calls)
        for call in calls:
            for slots in _groups(call):
                self._same.join(*slots)

    def is_fixed(self, computation: Computation) -> bool:
        """Whether the layouts of parameters and result stay as the text has them."""
        return computation in self._fixed

    def is_fixed_call(self, instruction: Instruction) -> bool:
        """Whether the computations a call runs are fixed."""
        return any(map(self.is_fixed, called_computations(instruction)))

    def parameter(self, computation: Computation, number: int) -> Orders:
        """The orders in which a computation takes a parameter."""
        return self._orders((computation, number))

    def result(self, computation: Computation) -> Orders:
        """The orders in which a computation gives its result."""
        return self._orders((computation, _RESULT))

    def _orders(self, slot: _Slot) -> Orders:
        computation, number = self._same.find(slot)
        shape: Shape = (
            computation.root.shape if number == _RESULT else computation.parameters[number].shape
        )
        known = self._known.get((computation, number))
        if known is None:
            known = plain_orders(shape) if self.logical else orders_of(shape)
            self._known[computation, number] = known
        return known

    def freeze(self, module: Module) -> None:
        """Read all orders before shapes change."""
        self._known: dict[_Slot, Orders] = {}
        for computation in module:
            for number in range(_RESULT, len(computation.parameters)):
                self._orders((computation, number))

    def _fix_partners(self, calls: list[Instruction]) -> None:
        """Computations of one call are fixed together."""
        pending = list(self._fixed)
        partners: dict[Computation, list[Instruction]] = {}
        for call in calls:
            for called in called_computations(call):
                partners.setdefault(called, []).append(call)
        while pending:
            for call in partners.get(pending.pop(), ()):
                for called in called_computations(call):
                    if called not in self._fixed:
                        self._fixed.add(called)
                        pending.append(called)


def _groups(call: Instruction) -> Iterator[list[_Slot]]:
    if call.opcode == "while":
        body, condition = call.body, call.condition
        yield [(body, 0), (body, _RESULT), (condition, 0)]
    elif call.opcode == "conditional":
        yield [(branch, _RESULT) for branch in called_computations(call)]
