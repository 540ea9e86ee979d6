"""Shapes and layouts: frozen values, shared by every instruction that has the same one.

``str(shape)`` is HLO text.  Dimension sizes count elements; a bounded dynamic dimension (``<=8``)
holds its bound and is marked in ``dynamic``; an unbounded one (``?``) holds ``UNBOUNDED``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import accumulate, chain
from math import prod
from typing import TypeAlias

from hloopt.dataclass import dataclass
from hloopt.types.dtype import DType, dtype

__all__ = [
    "UNBOUNDED",
    "ArrayShape",
    "BufferShape",
    "Dims",
    "Layout",
    "Shape",
    "TupleShape",
    "array",
    "compatible",
    "descending",
    "elements_of",
    "inverse_permutation",
    "leaves",
    "parts_of",
    "without_layout",
]

UNBOUNDED = -1

Dims: TypeAlias = tuple[int, ...]
"""A number for each of some dimensions: sizes, places, an order."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The physical order of dimensions, fastest first, and what a device adds to it.

    ``suffix`` is the part after the colon of ``{1,0:T(8,128)S(1)}`` in normal form (``T(8,128)S(1)``);
    ``memory_space`` and ``element_bits`` are read out of it (0 is the default and not printed).
    """

    minor_to_major: tuple[int, ...]
    suffix: str = ""
    memory_space: int = 0
    element_bits: int = 0

    def __str__(self) -> str:
        order = ",".join(map(str, self.minor_to_major))
        return f"{{{order}:{self.suffix}}}" if self.suffix else f"{{{order}}}"

    @property
    def is_descending(self) -> bool:
        """Whether the last dimension is the fastest: row-major order."""
        rank = len(self.minor_to_major)
        return self.minor_to_major == tuple(range(rank - 1, -1, -1))


@dataclass(frozen=True)
class ArrayShape:
    """Element type and dimensions; ``layout`` is None where the text leaves it out.

    ``dynamic`` is empty for a static shape, else one bool a dimension.
    """

    dtype: DType
    dims: tuple[int, ...]
    layout: Layout | None = None
    dynamic: tuple[bool, ...] = field(default=())

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.dtype, self.dims, self.layout, self.dynamic))

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.dims)

    @cached_property
    def elements(self) -> int:
        """The number of elements (the bound's, where a dimension is dynamic)."""
        return prod(self.dims)

    @cached_property
    def byte_size(self) -> int:
        """Bytes of a dense buffer: elements of 4 bits or fewer share a byte, as XLA counts them."""
        bits = self.dtype.bits
        if bits >= 8 or not bits:
            return self.elements * bits // 8
        return -(-self.elements // (8 // bits))

    @property
    def sizes_text(self) -> str:
        """``[2, 3]``, or ``[2, at most 3]`` for people."""
        marks = self.dynamic or (False,) * self.rank
        sizes = [
            f"at most {size}" if mark else str(size)
            for size, mark in zip(self.dims, marks, strict=True)
        ]
        return f"[{', '.join(sizes)}]"

    @cached_property
    def _text(self) -> str:
        sizes = map(str, self.dims)
        if self.dynamic:
            sizes = map(_dynamic_text, self.dims, self.dynamic)
        dims = ",".join(sizes)
        layout = self.layout
        shown = str(layout) if layout and (layout.minor_to_major or layout.suffix) else ""
        return f"{self.dtype.name}[{dims}]{shown}"

    def __str__(self) -> str:
        return self._text

    @property
    def is_dynamic(self) -> bool:
        """Whether the size of a dimension is known at run time only."""
        return bool(self.dynamic) and any(self.dynamic)

    def holds(self, sizes: Sequence[int]) -> bool:
        """Whether an array of these sizes is a value of the shape.

        Static dimensions have their size, bounded ones any size up to the bound, unbounded ones any.
        """
        if not self.dynamic:
            return tuple(sizes) == self.dims
        return len(sizes) == len(self.dims) and all(
            size == bound or (mark and (bound == UNBOUNDED or size <= bound))
            for size, bound, mark in zip(sizes, self.dims, self.dynamic, strict=True)
        )

    def with_dtype(self, element: DType) -> ArrayShape:
        """The same dimensions and layout with another element type."""
        return replace(self, dtype=element)


def _dynamic_text(size: int, mark: bool) -> str:
    if not mark:
        return str(size)
    return "?" if size == UNBOUNDED else f"<={size}"


@dataclass(frozen=True)
class TupleShape:
    """A tuple of shapes; ``()`` is the empty tuple."""

    elements: tuple[Shape, ...]

    @cached_property
    def _text(self) -> str:
        parts = []
        for index, element in enumerate(self.elements):
            mark = f"/*index={index}*/" if index and index % 5 == 0 else ""
            parts.append(f"{mark}{element}")
        return f"({', '.join(parts)})"

    def __str__(self) -> str:
        return self._text

    @cached_property
    def is_dynamic(self) -> bool:
        """Whether the size of a dimension of any leaf is known at run time only."""
        return any(element.is_dynamic for element in self.elements)

    @cached_property
    def byte_size(self) -> int:
        """Bytes of all leaves together; the table of pointers is not counted."""
        return sum(element.byte_size for element in self.elements)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Elements are often shared: without this, each would be traversed wherever it occurs.
        return hash(self.elements)

    @cached_property
    def depth(self) -> int:
        """Levels of tuples, 1 for a tuple of arrays."""
        inner = (element.depth for element in self.elements if isinstance(element, TupleShape))
        return 1 + max(inner, default=0)

    @cached_property
    def bare(self) -> TupleShape | None:
        """The same without layouts; None where there are none."""
        elements = tuple(map(without_layout, self.elements))
        changed = any(new is not old for new, old in zip(elements, self.elements, strict=True))
        return TupleShape(elements) if changed else None

    @cached_property
    def holds_buffers(self) -> bool:
        """Whether some leaf is a buffer."""
        return any(
            isinstance(element, BufferShape)
            or (isinstance(element, TupleShape) and element.holds_buffers)
            for element in self.elements
        )

    @cached_property
    def leaves(self) -> tuple[ArrayShape | BufferShape, ...]:
        """What ``leaves`` gives, remembered."""
        parts = (
            element.leaves if isinstance(element, TupleShape) else (element,)
            for element in self.elements
        )
        return tuple(chain.from_iterable(parts))

    @cached_property
    def first_leaves(self) -> tuple[int, ...]:
        """For each element the number of its first leaf."""
        counts = (
            len(element.leaves) if isinstance(element, TupleShape) else 1
            for element in self.elements
        )
        return tuple(accumulate(counts, initial=0))[:-1]


@dataclass(frozen=True)
class BufferShape:
    """``b(f32[8])``: a buffer that ops update in place."""

    element: ArrayShape

    def __str__(self) -> str:
        return f"b({self.element})"

    @property
    def is_dynamic(self) -> bool:
        """Whether the size of a dimension of the buffer is known at run time only."""
        return self.element.is_dynamic

    @property
    def byte_size(self) -> int:
        """Bytes of the buffer."""
        return self.element.byte_size


Shape: TypeAlias = ArrayShape | TupleShape | BufferShape


def descending(rank: int) -> Layout:
    """Row-major layout, XLA's default."""
    return Layout(tuple(range(rank - 1, -1, -1)))


def inverse_permutation(permutation: Sequence[int]) -> Dims:
    """The permutation that undoes one; of other dimensions the places in the order of their numbers."""
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def array(element: DType | str, dims: tuple[int, ...] = ()) -> ArrayShape:
    """A static array shape with the default (row-major) layout."""
    kind = dtype(element) if isinstance(element, str) else element
    return ArrayShape(kind, tuple(dims), descending(len(dims)))


def leaves(shape: Shape) -> Iterator[ArrayShape | BufferShape]:
    """The shapes of a shape's leaves, depth first: the order of a flat result list."""
    return iter(shape.leaves) if isinstance(shape, TupleShape) else iter((shape,))


def elements_of(shape: Shape) -> int:
    """Elements of all leaves."""
    if isinstance(shape, ArrayShape):
        return shape.elements
    return sum(
        leaf.elements if isinstance(leaf, ArrayShape) else leaf.element.elements
        for leaf in leaves(shape)
    )


def parts_of(shape: Shape) -> tuple[Shape, ...]:
    """The elements of a tuple's shape; any other shape by itself."""
    return shape.elements if isinstance(shape, TupleShape) else (shape,)


def without_layout(shape: Shape) -> Shape:
    """The logical shape alone."""
    if isinstance(shape, TupleShape):
        return shape.bare or shape
    if isinstance(shape, BufferShape):
        return BufferShape(replace(shape.element, layout=None)) if shape.element.layout else shape
    return replace(shape, layout=None) if shape.layout is not None else shape


def compatible(left: Shape, right: Shape) -> bool:
    """Whether two shapes are the same value type: layouts and dynamic marks may differ."""
    if left is right:
        return True
    if isinstance(left, TupleShape) and isinstance(right, TupleShape):
        return len(left.elements) == len(right.elements) and all(
            map(compatible, left.elements, right.elements)
        )
    if isinstance(left, BufferShape) and isinstance(right, BufferShape):
        return compatible(left.element, right.element)
    if isinstance(left, ArrayShape) and isinstance(right, ArrayShape):
        return left.dtype is right.dtype and left.dims == right.dims
    return False
