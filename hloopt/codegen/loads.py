"""Reading memory: single elements, and vectors where all their elements are wanted.

A kernel's body is written twice: first to learn which elements are read, then with one access for each aligned
group of neighbours that are all read.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from hloopt.analysis.index import Index
from hloopt.codegen.scalars import load
from hloopt.codegen.types import is_packed
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Array, Expr, Member, as_expr
from hloopt.kernel_ir.types import INT, Type, vector
from hloopt.types import ArrayShape

if TYPE_CHECKING:
    from hloopt.codegen.elements import Elements

__all__ = ["VECTOR_BYTES", "Loads"]

VECTOR_BYTES = 16


@dataclass
class Loads:
    """How a function reads.

    ``index_type`` is the type of indices; ``widest`` the most elements of a vector, 1 for none; ``seen``
    are the elements the first writing read: where, and at which position.
    """

    index_type: Type = INT
    widest: int = 1
    seen: frozenset[tuple[Array, Index]] = frozenset()
    now: set[tuple[Array, Index]] = field(default_factory=set)

    def read(
        self, elements: Elements, memory: Array, linear: Index, shape: ArrayShape, hint: str
    ) -> Expr:
        """Write the access; returns the element."""
        self.now.add((memory, linear))
        kind = shape.dtype
        width = self._width(memory, linear, shape)
        if width == 1:
            value = load(memory, linear, kind, elements.uses)
            return elements.scope.declare(elements.uses.type(kind), value, hint)
        lane = linear.constant % width
        head = linear - lane
        key = ("vector", memory, head, width)
        whole = elements.scope.known(key)
        if whole is None:
            type = vector(elements.uses.storage(kind), width)
            source = memory.address(head)
            call = elements.uses.call(f"load_vector<{width}>", source, type=type)
            whole = elements.scope.declare(type, call, f"{hint}_vector")
            elements.scope.remember(key, whole)
        return Member(whole, "lane", elements.uses.type(kind), as_expr(lane))

    def _width(self, memory: Array, linear: Index, shape: ArrayShape) -> int:
        """The widest vector around an element: aligned, inside the array, every element of it read."""
        kind = shape.dtype
        if self.widest == 1 or is_packed(kind):
            return 1
        width = min(self.widest, VECTOR_BYTES * 8 // kind.bits)
        while width > 1:
            head = linear - linear.constant % width
            if (
                shape.elements % width == 0
                and head.is_multiple(width)
                and all((memory, head + lane) in self.seen for lane in range(width))
            ):
                return width
            width //= 2
        return 1
