"""Where a native program's allocations lie during a run, and how its results are returned.

Parameters and constants are read in place, unless a step writes into them or their bytes are not those a
buffer holds (other strides, packed types, other layouts).  Each result that has its own allocation is written
into the fresh array that is returned, with the strides of its layout; the arena is allocated once.  A large
result that its caller has freed is overwritten by the next run.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import prod
from sys import getrefcount
from typing import Final, TypeAlias

import numpy as np

from hloopt.analysis.layout import physical_dims
from hloopt.backends.native.addresses import address_of, aligned, copied
from hloopt.dataclass import dataclass
from hloopt.interpret.context import leaf_arrays
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.values import parameter_values
from hloopt.ir import Module
from hloopt.kernels.plan import Allocation, KernelStep, Plan, PlanBuffer, PlanStep, walk_steps
from hloopt.runtime.device import array_of_bytes, bytes_of_array, empty
from hloopt.types import Array, ArrayShape, DType, Literal, Shape, leaves

__all__ = [
    "BufferView",
    "Placed",
    "PlanMemory",
    "as_array",
    "constant_bytes",
    "is_dense",
    "is_plain",
    "written_allocations",
]

Placed: TypeAlias = "list[Array | None]"
"""The array that lies at each allocation, in the order of the plan's; None where nothing does."""

BufferView: TypeAlias = Callable[[Placed], Array]
"""What gives the array of a buffer during a run."""

# Bytes from which a result's memory is kept for the next run, where the result is no longer referenced: systems
# take as long to give so many pages as kernels to fill them.
_LARGE: Final = 1 << 20


def _references(kept: dict[int, Array], at: int) -> int:
    return getrefcount(kept[at])


# The reference count in this Python of an array that only the dictionary refers to.
_UNSHARED: Final = _references({0: np.empty(0)}, 0)


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A leaf of the entry's parameters: ``at`` counts allocations; None for what has no memory.

    Where it ``is_dense`` its buffer holds the elements of an array of ``kind`` and ``dims``, in the order of
    its dimensions that ``moves`` says.  What steps write into, and what lies in another order, ``is_copied``.
    """

    at: int | None
    kind: np.dtype
    dims: tuple[int, ...]
    moves: tuple[int, ...] | None
    is_dense: bool
    is_copied: bool
    shape: ArrayShape

    def own(self, array: Array) -> Array:
        """The bytes of an array as the buffer holds them, in private memory."""
        if not self.is_dense:
            return copied(bytes_of_array(array, self.shape))
        return np.array(array if self.moves is None else array.transpose(self.moves), order="C")


class PlanMemory:
    """The places of a plan's allocations.

    ``table`` is the C array of their addresses; those of the places ``changing`` are other ones in each run.
    """

    def __init__(self, module: Module, plan: Plan) -> None:
        self._module = module
        self._context = Interpreter(module, {})
        self._numbers = {id(one): number for number, one in enumerate(plan.allocations)}
        self._still: Placed = [None] * len(plan.allocations)
        self.table = (ctypes.c_void_p * max(1, len(plan.allocations)))()
        for number, allocation in enumerate(plan.allocations):
            if allocation.kind in ("arena", "constant"):
                array = _still(allocation)
                self._still[number] = array
                self.table[number] = address_of(array)
        written = written_allocations(plan)
        self._parameters = [
            self._parameter(buffer, written) for buffer in plan.parameters if buffer is not None
        ]
        # The place, type and dimensions of what is read where it is; no array has the type None.
        self._in_place = [
            (-1, None, ())
            if one.at is None or one.is_copied or not one.is_dense
            else (one.at, one.kind, one.dims)
            for one in self._parameters
        ]
        dense = {
            self._numbers[id(buffer.allocation)]: buffer.shape
            for buffer in plan.results
            if buffer.allocation.kind == "result" and is_dense(buffer.shape)
        }
        plain = {number for number, shape in dense.items() if is_plain(shape)}
        self._fresh = [
            (
                number,
                shape.dims if number in plain else physical_dims(shape),
                shape.dtype.numpy,
            )
            for number, shape in dense.items()
        ]
        self._large = [one for one in self._fresh if prod(one[1]) * one[2].itemsize >= _LARGE]
        self._fresh = [one for one in self._fresh if one not in self._large]
        self._last: dict[int, Array] = {}
        self._handed = plain | self._copies(plan)
        self._turned = dense.keys() - plain
        self._rough = [
            (number, allocation.byte_size)
            for number, allocation in enumerate(plan.allocations)
            if allocation.kind == "result" and number not in dense
        ]
        changing = [one.at for one in self._parameters if one.at is not None]
        changing += [one[0] for one in (*self._fresh, *self._large)]
        changing += [at for at, _ in self._rough]
        self.changing = (ctypes.c_longlong * len(changing))(*changing)
        self._results = [self._result(buffer) for buffer in plan.results]
        self._is_simple = all(isinstance(result, int) for result in self._results)

    def place(self, inputs: Sequence[Array]) -> Placed:
        """Put the inputs in place, and fresh memory where results go.

        Raises ``EvaluationError`` where the inputs do not fit the parameters.
        """
        placed = self._still.copy()
        if len(inputs) != len(self._parameters):
            self._checked(inputs)
        for array, (at, kind, dims) in zip(inputs, self._in_place, strict=True):
            # `carray`: without gaps, aligned, and what may be written, so that one look is enough for most.
            if not (
                type(array) is np.ndarray
                and array.dtype is kind
                and array.shape == dims
                and array.flags.carray
            ):
                self._place_anew(inputs, placed)
                break
            placed[at] = array
        for at, dims, kind in self._fresh:
            placed[at] = np.empty(dims, kind)
        for at, dims, kind in self._large:
            if at not in self._last or _references(self._last, at) > _UNSHARED:
                self._last[at] = np.empty(dims, kind)
            placed[at] = self._last[at]
        for at, size in self._rough:
            placed[at] = aligned(size)
        return placed

    def find_arrays(self, placed: Placed) -> None:
        """Put the addresses of what is placed into ``table``, as the driver does by ``ITEMS``."""
        for at in self.changing:
            self.table[at] = address_of(placed[at])  # type: ignore[arg-type]

    def _place_anew(self, inputs: Sequence[Array], placed: Placed) -> None:
        """Put the inputs in place of which some are not, or may not be, what a buffer holds."""
        checked: list[Array] = []
        for number, parameter in enumerate(self._parameters):
            array = inputs[number]
            if not (
                parameter.is_dense
                and type(array) is np.ndarray
                and array.dtype == parameter.kind
                and array.shape == parameter.dims
            ):
                checked = checked or self._checked(inputs)
                array = parameter.own(checked[number])
            elif parameter.is_copied or not ((flags := array.flags).c_contiguous and flags.aligned):
                array = parameter.own(array)
            if parameter.at is not None:
                placed[parameter.at] = array

    def results(self, placed: Placed) -> list[Array]:
        """The result arrays after a run."""
        if self._is_simple:
            return [placed[at] for at in self._results]  # type: ignore[index, misc]
        return [
            placed[result] if isinstance(result, int) else result(placed)  # type: ignore[misc]
            for result in self._results
        ]

    def view(self, buffer: PlanBuffer) -> BufferView:
        """What gives the array of a buffer; what is written into it is written into the buffer.

        For buffers that are plain (``is_plain``); of others it is a copy.
        """
        if not buffer.byte_size:
            nothing = empty(buffer.shape)
            return lambda _: nothing
        at = self._numbers[id(buffer.allocation)]
        still = self._still[at]
        plain = is_plain(buffer.shape)
        if still is not None and plain:
            known = as_array(still, buffer)
            return lambda _: known

        def seen(placed: Placed) -> Array:
            array = placed[at]
            assert array is not None
            if array.shape == buffer.shape.dims and array.dtype == buffer.shape.dtype.numpy:
                return array
            return as_array(array, buffer)

        return seen if plain else lambda placed: as_array(placed[at], buffer)  # type: ignore[arg-type]

    def bytes_of(self, buffer: PlanBuffer) -> BufferView:
        """What gives the bytes (u8) of a buffer."""
        at = self._numbers[id(buffer.allocation)]

        def raw(placed: Placed) -> Array:
            array = placed[at]
            assert array is not None
            whole = array.reshape(-1).view(np.uint8)
            return whole[buffer.offset : buffer.offset + buffer.byte_size]

        return raw

    def still(self, buffer: PlanBuffer) -> Array | None:
        """The array of a plain buffer whose address is fixed for the life of the program."""
        array = self._still[self._numbers[id(buffer.allocation)]]
        if array is None or not buffer.byte_size or not is_plain(buffer.shape):
            return None
        return as_array(array, buffer)

    def _parameter(self, buffer: PlanBuffer, written: set[int]) -> _Parameter:
        allocation, shape = buffer.allocation, buffer.shape
        moves = None if _is_row_major(shape) else _order(shape)
        return _Parameter(
            self._numbers[id(allocation)] if buffer.byte_size else None,
            shape.dtype.numpy,
            shape.dims,
            moves,
            is_dense(shape),
            id(allocation) in written or moves is not None,
            shape,
        )

    def _checked(self, inputs: Sequence[Array]) -> list[Array]:
        values = parameter_values(self._module.entry, inputs, self._context)
        shapes = [leaf for one in self._module.entry.parameters for leaf in _are_arrays(one.shape)]
        arrays = leaf_arrays(tuple(values))
        return [array for array, is_array in zip(arrays, shapes, strict=True) if is_array]

    def _copies(self, plan: Plan) -> set[int]:
        """The allocations of parameters that are copied anyway, and hold one result each."""
        lying = Counter(id(buffer.allocation) for buffer in plan.results)
        dims = {
            parameter.at: parameter.dims
            for parameter in self._parameters
            if parameter.is_copied and is_plain(parameter.shape)
        }
        return {
            at
            for buffer in plan.results
            if (at := self._numbers.get(id(buffer.allocation), -1)) in dims
            and lying[id(buffer.allocation)] == 1
            and is_plain(buffer.shape)
            and (buffer.offset, buffer.shape.dims) == (0, dims[at])
            and buffer.shape.dtype is _parameter_type(plan, buffer)
        }

    def _result(self, buffer: PlanBuffer) -> int | BufferView:
        number = self._numbers.get(id(buffer.allocation), -1)
        if number in self._handed:
            return number
        shape = buffer.shape
        if number in self._turned and buffer.byte_size:
            # In another order it has a separate fresh array, which is handed out as it lies.
            back = tuple(int(axis) for axis in np.argsort(_order(shape)))
            return lambda placed: placed[number].transpose(back)  # type: ignore[union-attr]
        view = self.view(buffer)
        if not buffer.byte_size:
            return lambda _: empty(shape)
        return (lambda placed: view(placed).copy()) if is_dense(shape) else view


def _parameter_type(plan: Plan, buffer: PlanBuffer) -> DType | None:
    for one in plan.parameters:
        if one is not None and one.allocation is buffer.allocation:
            return one.shape.dtype
    return None


def _are_arrays(shape: Shape) -> Iterable[bool]:
    """Of each leaf of a shape whether it is an array, not a token."""
    return [isinstance(leaf, ArrayShape) and leaf.dtype.is_array for leaf in leaves(shape)]


def is_plain(shape: ArrayShape) -> bool:
    """Whether a buffer of this shape holds the bytes of a row-major array of NumPy's."""
    return is_dense(shape) and _is_row_major(shape)


def is_dense(shape: ArrayShape) -> bool:
    """Whether a buffer of this shape holds elements as NumPy has them, in whatever order."""
    return shape.dtype.is_array and (shape.dtype.is_pred or shape.dtype.bits % 8 == 0)


def _order(shape: ArrayShape) -> tuple[int, ...]:
    """The dimensions as they lie in memory, the outermost first."""
    assert shape.layout is not None
    return shape.layout.minor_to_major[::-1]


def _is_row_major(shape: ArrayShape) -> bool:
    if shape.layout is None:
        return True
    order = [axis for axis in shape.layout.minor_to_major if shape.dims[axis] != 1]
    return order == sorted(order, reverse=True)


def as_array(memory: Array, buffer: PlanBuffer) -> Array:
    """The array of a buffer in the memory of its allocation: a view unless elements are packed."""
    raw = memory.reshape(-1).view(np.uint8)[buffer.offset : buffer.offset + buffer.byte_size]
    shape = buffer.shape
    if not is_dense(shape):
        return array_of_bytes(raw, shape)
    flat = raw.view(shape.dtype.numpy)
    if _is_row_major(shape):
        return flat.reshape(shape.dims)
    order = _order(shape)
    return flat.reshape([shape.dims[axis] for axis in order]).transpose(np.argsort(order))


def written_allocations(plan: Plan) -> set[int]:
    """The allocations that a step writes into, by ``id``."""

    def targets(step: PlanStep) -> Iterable[PlanBuffer]:
        if isinstance(step, KernelStep):
            yield from (*step.results, *step.scratch)
            yield from (move.target for move in (*step.before, *step.after))
        else:
            yield from getattr(step, "results", ())

    return {
        id(buffer.allocation)
        for step in walk_steps(plan.steps)
        for buffer in targets(step)
        if buffer.byte_size
    }


def _still(allocation: Allocation) -> Array:
    if allocation.kind == "arena":
        return aligned(allocation.byte_size)
    array, shape = _literal(allocation)
    if is_plain(shape) and array.flags.c_contiguous and array.flags.aligned:
        return array
    return copied(bytes_of_array(array, shape))


def constant_bytes(allocation: Allocation) -> Array:
    """The bytes (u8) that lie at the allocation of a constant."""
    return bytes_of_array(*_literal(allocation))


def _literal(allocation: Allocation) -> tuple[Array, ArrayShape]:
    assert allocation.instruction is not None
    literal: Literal | None = allocation.instruction.literal
    assert literal is not None
    for number in allocation.index:
        literal = literal.elements[number]
    array, shape = literal.array, literal.shape
    assert array is not None
    assert isinstance(shape, ArrayShape)
    return array, shape
