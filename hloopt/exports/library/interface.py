"""What a library takes and gives, by name, and where the plan's memory lies in it."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from hloopt.backends.native.bindings import Binding, bindings
from hloopt.backends.native.memory import constant_bytes, is_dense
from hloopt.dataclass import dataclass
from hloopt.exports.library.names import identifiers
from hloopt.ir import Instruction, Module
from hloopt.kernels.kernel import unsupported
from hloopt.kernels.plan import Plan, PlanBuffer
from hloopt.runtime.device import bytes_of_array
from hloopt.types import Array, ArrayShape, leaves

__all__ = ["Interface", "LibraryArray", "LibraryPlace", "interface_of"]

_ALIGNMENT: Final = 256
_UNSIGNED: Final = {8: "uint8_t", 16: "uint16_t"}
"""Of types that C does not have: their bits."""


@dataclass(frozen=True)
class LibraryArray:
    """An input or a result: ``name`` as the module has it, ``field`` as C does; ``byte_size`` in all."""

    name: str
    field: str
    shape: ArrayShape
    byte_size: int

    @property
    def c_type(self) -> str:
        """The type of C that its memory consists of: of a complex number both parts."""
        kind = self.shape.dtype
        if kind.is_pred:
            return "uint8_t"
        if kind.is_integer:
            return f"{'' if kind.kind == 'signed' else 'u'}int{kind.bits}_t"
        part = kind.bits // 2 if kind.is_complex else kind.bits
        return {32: "float", 64: "double"}.get(part) or _UNSIGNED[part]

    @property
    def alignment(self) -> int:
        """Bytes of an element."""
        return self.shape.dtype.bytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from an element to the next one of each dimension."""
        rank = len(self.shape.dims)
        layout = self.shape.layout
        order = tuple(range(rank))[::-1] if layout is None else layout.minor_to_major
        found, step = [0] * rank, self.shape.dtype.bytes
        for axis in order:
            found[axis] = step
            step *= self.shape.dims[axis]
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "field": self.field,
            "type": self.shape.dtype.name,
            "dims": list(self.shape.dims),
            "strides": list(self.strides),
            "bytes": self.byte_size,
            "alignment": self.alignment,
        }


@dataclass(frozen=True)
class LibraryPlace:
    """Where an allocation lies: given by each run's caller, in the data, or in the memory of a context."""

    home: str
    offset: int = 0


@dataclass(frozen=True)
class Interface:
    """A program as a library.

    ``data`` are constants and weights with their offsets, ``data_size`` bytes in all; ``memory`` is what a
    context needs, in bytes.  ``weights`` counts the parameters that are not inputs.
    """

    prefix: str
    module: str
    inputs: tuple[LibraryArray, ...]
    results: tuple[LibraryArray, ...]
    places: tuple[LibraryPlace, ...]
    bound: tuple[Binding, ...]
    data: tuple[tuple[int, Array], ...]
    data_size: int
    memory: int
    weights: int

    def digest(self, text: str) -> str:
        """A hash of the data and of a text, in hexadecimal: what tells one build from another."""
        found = blake2b(text.encode(), digest_size=16)
        for offset, array in self.data:
            found.update(b"%d:%d:" % (offset, array.nbytes))
            found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()


def interface_of(module: Module, plan: Plan, prefix: str) -> Interface:
    """The interface of a planned module; ``module.weights`` become part of the library.

    Raises ``UnsupportedError`` for inputs and results whose elements are packed or not of a known number.
    """
    parameters = [
        (parameter, index, shape)
        for parameter in module.entry.parameters
        for index, shape in enumerate(leaves(parameter.shape))
        if isinstance(shape, ArrayShape) and shape.dtype.is_array
    ]
    buffers = [one for one in plan.parameters if one is not None]
    store = _Data()
    weights: dict[int, int] = {}
    given: list[tuple[str, PlanBuffer]] = []
    for number, ((parameter, index, _), buffer) in enumerate(zip(parameters, buffers, strict=True)):
        _check(parameter, buffer)
        array = module.weights.get(parameter.parameter_number)
        if array is None:
            given.append((_name(parameter, index), buffer))
        else:
            weights[number] = store.add(bytes_of_array(array, buffer.shape))
    found, apart = bindings(plan, weights)
    for buffer in plan.results:
        _check(module.entry.root, buffer)
    places, memory = _places(plan, store, apart, _still(plan, weights))
    several = len(plan.results) > 1
    names = [f"result_{number}" if several else "result" for number in range(len(plan.results))]
    return Interface(
        prefix,
        module.name,
        _arrays([name for name, _ in given], [buffer for _, buffer in given]),
        _arrays(names, list(plan.results)),
        places,
        tuple(found),
        tuple(store.parts),
        store.size,
        memory,
        len(weights),
    )


class _Data:
    """Arrays of bytes one behind the other, aligned."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, Array]] = []
        self.size = 0

    def add(self, raw: Array) -> int:
        offset = -(-self.size // _ALIGNMENT) * _ALIGNMENT
        self.parts.append((offset, raw))
        self.size = offset + raw.nbytes
        return offset


def _still(plan: Plan, weights: Mapping[int, int]) -> dict[int, int]:
    """The offset in the data of each allocation that a weight has, by ``id``."""
    buffers = [one for one in plan.parameters if one is not None]
    return {id(buffers[number].allocation): offset for number, offset in weights.items()}


def _places(
    plan: Plan, store: _Data, apart: list[int], weights: Mapping[int, int]
) -> tuple[tuple[LibraryPlace, ...], int]:
    """The place of each allocation, and the memory of a context."""
    found: list[LibraryPlace] = []
    memory = 0
    for number, allocation in enumerate(plan.allocations):
        if allocation.kind == "arena" or number in apart:
            found.append(LibraryPlace("memory", memory))
            memory += -(-allocation.byte_size // _ALIGNMENT) * _ALIGNMENT
        elif allocation.kind == "constant":
            found.append(LibraryPlace("data", store.add(constant_bytes(allocation))))
        elif id(allocation) in weights:
            found.append(LibraryPlace("data", weights[id(allocation)]))
        else:
            found.append(LibraryPlace("given"))
    return tuple(found), memory


def _arrays(names: list[str], buffers: list[PlanBuffer]) -> tuple[LibraryArray, ...]:
    return tuple(
        LibraryArray(name, field, buffer.shape, buffer.byte_size)
        for name, field, buffer in zip(names, identifiers(names), buffers, strict=True)
    )


def _name(parameter: Instruction, index: int) -> str:
    """What the user's program calls a parameter, else its own name; of a tuple's leaf with its number."""
    fields = {} if parameter.metadata is None else parameter.metadata.fields
    name = str(fields.get("op_name") or parameter.name)
    return name if isinstance(parameter.shape, ArrayShape) else f"{name}.{index}"


def _check(instruction: Instruction, buffer: PlanBuffer) -> None:
    shape = buffer.shape
    if not is_dense(shape):
        raise unsupported(
            instruction, f"has a form in memory that C has no type for: {shape} is packed"
        )
