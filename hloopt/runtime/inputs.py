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
from hloopt.interpret.drawn import Role, drawn
from hloopt.interpret.values import from_storage
from hloopt.ir import Instruction, Module
from hloopt.runtime.roles import roles
from hloopt.types import ArrayShape, Shape, TupleShape

__all__ = ["generate", "load_expected", "load_inputs"]

Array = np.ndarray[Any, Any]


def generate(module: Module, seed: int = 0) -> list[Array]:
    """Inputs for every array of the entry's parameters, in order; the same for a module and a seed.

    Floats are standard normal, integers -4 to 4 (0 to 4 without sign), pred a fair coin, but for what the
    module asks of a parameter (``runtime.roles``):

    - indices, labels and positions lie in the range it shows for them;
    - weights of products are divided by the square root of the number of products in a sum, so that results
      are as large as the data, however many layers there are;
    - of what a square root or a logarithm is taken, such as a variance, is uniform in [0.5, 1.5), and
      integers there and bounds of loops are 1 to 4;
    - matrices to be factored or solved with are symmetric and positive definite;
    - keys of generators are random bits.

    Each parameter has a stream of its own (``[seed, number]``), so that one parameter's change leaves the
    others as they were.
    """
    asked = roles(module)
    arrays: list[Array] = []
    for number, parameter in enumerate(module.entry.parameters):
        rng = np.random.default_rng([seed, number])
        for index, shape in _positions(parameter.shape):
            arrays.append(drawn(rng, shape, asked.get((parameter, index), Role())))
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
