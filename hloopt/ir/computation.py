"""A computation: instructions in an order in which each comes after its operands.

The order is an intrusive linked list, so that inserting beside an instruction and removing one cost the
same in a computation of ten and of a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from hloopt.ir.instruction import MOST_SHOWN, Instruction, brief
from hloopt.spelling import first_of, missing
from hloopt.types import Shape

if TYPE_CHECKING:
    from hloopt.ir.module import Module

__all__ = ["Computation"]


class Computation:
    """Parameters, instructions and a root.

    ``callers`` maps each instruction that calls this computation to how often it names it.
    Changed through ``ir.edit`` only.  Iteration may remove or replace the instruction it stands on; to
    remove others on the way, iterate over ``list(computation)``.
    """

    __slots__ = (
        "_count",
        "_facts",
        "_first",
        "_last",
        "_serial",
        "by_name",
        "callers",
        "execution_thread",
        "module",
        "name",
        "offset",
        "parameters",
        "root",
    )

    def __init__(self, name: str, offset: int = -1) -> None:
        self.name = name
        self.offset = offset
        self.module: Module | None = None
        self.parameters: list[Instruction] = []
        self.callers: dict[Instruction, int] = {}
        self.by_name: dict[str, Instruction] = {}
        self.execution_thread: str | None = None
        self.root: Instruction
        self._first: Instruction | None = None
        self._last: Instruction | None = None
        self._count = 0
        self._facts: dict[Callable[[Computation], Any], Any] = {}
        self._serial: dict[str, int] = {}

    def __iter__(self) -> Iterator[Instruction]:
        current = self._first
        while current is not None:
            following = current._next
            yield current
            current = following

    def __reversed__(self) -> Iterator[Instruction]:
        current = self._last
        while current is not None:
            previous = current._previous
            yield current
            current = previous

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, name: str) -> Instruction:
        """The instruction of a name, with ``%`` or without.  Raises ``KeyError``, with similar names."""
        found = self.by_name.get(name.removeprefix("%"))
        if found is None:
            what = f"computation {self.name} has no instruction"
            raise KeyError(missing(name, self.by_name, what))
        return found

    def __contains__(self, instruction: object) -> bool:
        if isinstance(instruction, str):
            return instruction.removeprefix("%") in self.by_name
        return isinstance(instruction, Instruction) and instruction.computation is self

    @property
    def result_shape(self) -> Shape:
        """The shape of the root."""
        return self.root.shape

    @property
    def results(self) -> tuple[Instruction, ...]:
        """The results one by one: the operands of a tuple at the root, or the root itself."""
        root = self.root
        return root.operands if root.opcode == "tuple" else (root,)

    @property
    def parameter_shapes(self) -> tuple[Shape, ...]:
        """The parameters' shapes in order."""
        return tuple(parameter.shape for parameter in self.parameters)

    def fresh_name(self, base: str) -> str:
        """``base``, or ``base.N`` with the least unused N: a name no instruction here has."""
        if base not in self.by_name:
            return base
        stem, dot, digits = base.rpartition(".")
        if not (dot and digits.isdigit()):
            stem = base
        number = self._serial.get(stem, 1)
        while (name := f"{stem}.{number}") in self.by_name:
            number += 1
        self._serial[stem] = number + 1
        return name

    def __repr__(self) -> str:
        return f"<computation {self.outline}: {self._count} instructions>"

    @property
    def outline(self) -> str:
        """``main(x: f32[8], y: f32[]) -> f32[8]``, without layouts, long ones cut."""
        given = first_of((f"{one.name}: {brief(one.shape)}" for one in self.parameters), MOST_SHOWN)
        root = getattr(self, "root", None)  # one that is being made has none yet
        return f"{self.name}({given})" + (f" -> {brief(root.shape)}" if root is not None else "")
