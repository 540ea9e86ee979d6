"""Inputs of a module: made from a seed, or read from files.

Files hold ``in_0``, ``in_1``, ... in the order of the entry's parameters (the elements of a tuple parameter in
its place) and ``out_0``, ... in the order of the flat result list: one ``.npz``, or a folder of ``.npy`` files
of those names.  Element types NumPy lacks are stored as unsigned views of the same item size.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hloopt.errors import EvaluationError, UsageError
from hloopt.interpret.values import from_storage
from hloopt.ir import Instruction, Module
from hloopt.runtime.index_ranges import index_ranges
from hloopt.types import ArrayShape, DType, Shape, TupleShape

__all__ = ["generate", "load_expected", "load_inputs"]

Array = np.ndarray[Any, Any]

_SMALL = 4  # integers that are no indices: -4 .. 4, so that products and powers stay in range


def generate(module: Module, seed: int = 0) -> list[Array]:
    """Inputs for every array of the entry's parameters, in order.

    Floats are standard normal, integers small, pred a fair coin; integers that the module uses as indices
    lie in the range it shows for them.  Each parameter has a stream of its own (``[seed, number]``), so that
    one parameter's change leaves the others as they were.
    """
    ranges = index_ranges(module)
    arrays: list[Array] = []
    for number, parameter in enumerate(module.entry.parameters):
        rng = np.random.default_rng([seed, number])
        for index, shape in _positions(parameter.shape):
            arrays.append(_draw(rng, shape, ranges.get((parameter, index))))
    return arrays


def _positions(
    shape: Shape, index: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], ArrayShape]]:
    """The arrays of a shape and where they are in it, in the order of a flat list."""
    if isinstance(shape, TupleShape):
        for number, element in enumerate(shape.elements):
            yield from _positions(element, (*index, number))
    elif isinstance(shape, ArrayShape) and shape.dtype.is_array:
        yield index, shape


def _draw(rng: np.random.Generator, shape: ArrayShape, limit: int | None) -> Array:
    kind, dims = shape.dtype, shape.dims
    if kind.is_pred:
        return rng.integers(0, 2, dims).astype(np.bool_)
    if kind.is_integer:
        low, high = _integer_range(kind, limit)
        return rng.integers(low, high + 1, dims).astype(kind.numpy)
    if kind.is_complex:
        values = rng.standard_normal(dims) + 1j * rng.standard_normal(dims)
        return values.astype(kind.numpy)
    if kind.name == "f8e8m0fnu":
        return np.exp2(rng.integers(-4, 5, dims)).astype(kind.numpy)
    return np.asarray(rng.standard_normal(dims)).astype(kind.numpy)


def _integer_range(kind: DType, limit: int | None) -> tuple[int, int]:
    most = (1 << (kind.bits - 1)) - 1 if kind.kind == "signed" else (1 << kind.bits) - 1
    if limit is not None:
        return 0, max(0, min(limit - 1, most))
    low = -min(_SMALL, most + 1) if kind.kind == "signed" else 0
    return low, min(_SMALL, most)


def load_inputs(path: Path, module: Module) -> list[Array]:
    """The inputs in a file or folder, as the parameters' element types.

    Raises ``UsageError`` naming the entry that is missing, surplus, or of the wrong shape or type.
    """
    wanted = [
        (f"parameter {parameter.name}", shape)
        for parameter in module.entry.parameters
        for shape in _arrays(parameter)
    ]
    return _load(path, "in", wanted)


def load_expected(path: Path, module: Module) -> list[Array]:
    """The expected results in a file or folder, as the results' element types."""
    wanted = [("result", shape) for shape in _arrays(module.entry.root)]
    return _load(path, "out", wanted)


def _arrays(instruction: Instruction) -> list[ArrayShape]:
    return [shape for _, shape in _positions(instruction.shape)]


def _load(path: Path, prefix: str, wanted: list[tuple[str, ArrayShape]]) -> list[Array]:
    stored = _stored(path)
    found = sorted(
        (name for name in stored if name.startswith(f"{prefix}_")),
        key=lambda name: (len(name), name),
    )
    names = [f"{prefix}_{number}" for number in range(len(wanted))]
    missing = [name for name in names if name not in stored]
    surplus = [name for name in found if name not in names]
    if missing or surplus:
        lack = f"it has no {_few(missing)}" if missing else f"{_few(surplus)} too many"
        raise UsageError(f"{path}: {lack}; {_need(prefix, names)}")
    return [
        _as_shape(stored[name], shape, f"{path}: {name} ({what})")
        for name, (what, shape) in zip(names, wanted, strict=True)
    ]


def _few(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def _need(prefix: str, names: list[str]) -> str:
    what = "input" if prefix == "in" else "result"
    if not names:
        return f"the module has no {what}s"
    if len(names) == 1:
        return f"the module has one {what}, {names[0]}"
    return f"the module has {len(names)} {what}s, {names[0]} to {names[-1]}"


def _stored(path: Path) -> dict[str, Array]:
    try:
        if path.is_dir():
            return {entry.stem: np.load(entry) for entry in sorted(path.glob("*.npy"))}
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        if not zipfile.is_zipfile(path):
            raise UsageError(f"{path}: not an .npz file or a folder of .npy files")
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"{path}: arrays that cannot be read: {error}") from error


def _as_shape(values: Array, shape: ArrayShape, what: str) -> Array:
    if values.shape != shape.dims:
        raise UsageError(f"{what} has dimensions {list(values.shape)}, not {list(shape.dims)}")
    try:
        return from_storage(values, shape.dtype, what)
    except EvaluationError as error:
        raise UsageError(error.message) from error
