"""Inputs of a module: made from a seed, or read from files.

Files hold ``in_0``, ``in_1``, ... in the order of the entry's parameters (the elements of a tuple parameter in
its place) and ``out_0``, ... in the order of the flat result list: one ``.npz``, or a folder of ``.npy`` files
of those names.  Element types NumPy lacks are stored as unsigned views of the same item size.

Of several participants ``in_0`` is what all of them have, ``in_0.3`` what number 3 has.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from hloopt.errors import EvaluationError, UsageError
from hloopt.interpret import Host
from hloopt.interpret.drawn import InputRole, drawn
from hloopt.interpret.values import from_storage
from hloopt.ir import Instruction, Module
from hloopt.runtime.roles import roles
from hloopt.runtime.sharing import data_keys, is_about_whole_arrays
from hloopt.spelling import first_of
from hloopt.types import (
    UNBOUNDED,
    Array,
    ArrayShape,
    DType,
    Shape,
    TupleShape,
    in_numpy,
    leaves,
    of_numpy,
)

__all__ = [
    "generate",
    "generate_all",
    "has_inputs",
    "keep_weights",
    "load_all_expected",
    "load_all_inputs",
    "load_expected",
    "load_host",
    "load_inputs",
    "named_arrays",
    "npz",
    "origin_of",
    "positions",
    "stored",
    "stray",
]


_SIZES = 1 << 32  # the stream that sizes are drawn from: no parameter has this number
_STRAYS = _SIZES + 1  # and strays


def generate(module: Module, seed: int = 0) -> list[Array]:
    """Inputs for every array of the entry's parameters, in order; the same for a module and a seed.

    Floats are standard normal, integers -4 to 4 (0 to 4 without sign), pred a fair coin, but for what the
    module needs of a parameter (``runtime.roles``):

    - indices, labels and positions lie in the range it shows for them;
    - weights of products are divided by the square root of the number of products in a sum, so that results
      are as large as the data, however many layers there are;
    - of what a square root or a logarithm is taken, such as a variance, is uniform in [0.5, 1.5), and
      integers there and bounds of loops are 1 to 4;
    - matrices to be factored or solved with are symmetric and positive definite;
    - keys of generators are random bits.

    Dynamic dimensions have sizes from 1 to their bounds, one for each bound, and so have parameters that
    set such a size.

    Each parameter has a separate random stream (``[seed, number]``), so that one parameter's change leaves the
    others as they were.
    """
    return generate_all(module, seed, 1, 1)[0]


def generate_all(module: Module, seed: int, replicas: int, partitions: int) -> list[list[Array]]:
    """As ``generate``, for each participant; the inputs of participant 0 are those of a single one.

    Participants have different data but where the parameter says that they share it
    (``runtime.sharing``): the stream of another one is ``[seed, number, participant]``.  ``module.weights``
    take the place of what would be made.
    """
    found_roles, whole = roles(module), is_about_whole_arrays(module)
    found: list[list[Array]] = [[] for _ in range(replicas * partitions)]
    weights = _weights(module)
    for number, parameter in enumerate(module.entry.parameters):
        places = list(positions(parameter.shape))
        if (weight := weights.get(len(found[0]))) is not None:
            for arrays in found:
                arrays.append(weight)
            continue
        keys = [
            key
            for key, leaf in zip(
                data_keys(parameter, replicas, partitions, whole=whole),
                leaves(parameter.shape),
                strict=True,
            )
            if isinstance(leaf, ArrayShape) and leaf.dtype.is_array
        ]
        made: dict[int, list[Array]] = {}
        for key in sorted({key for leaf in keys for key in leaf}):
            rng = np.random.default_rng([seed, number, key] if key else [seed, number])
            made[key] = [
                _drawn(rng, shape, found_roles.get((parameter, index), InputRole()), seed)
                for index, shape in places
            ]
        for participant, arrays in enumerate(found):
            arrays += (made[leaf[participant]][at] for at, leaf in enumerate(keys))
    return found


def _weights(module: Module) -> dict[int, Array]:
    """The module's weights by their places among the inputs, those that fit the parameters it has now."""
    found: dict[int, Array] = {}
    place = 0
    for number, parameter in enumerate(module.entry.parameters):
        array, shape = module.weights.get(number), parameter.shape
        if (
            array is not None
            and isinstance(shape, ArrayShape)
            and (shape.dims, shape.dtype.numpy) == (array.shape, array.dtype)
        ):
            found[place] = array
        place += sum(1 for _ in positions(shape))
    return found


def keep_weights(module: Module, changed: Sequence[Array], inputs: Sequence[Array]) -> list[Array]:
    """Changed inputs, but for the module's weights, which stay as they were in ``inputs``."""
    kept = _weights(module)
    return [
        old if place in kept else new
        for place, (new, old) in enumerate(zip(changed, inputs, strict=True))
    ]


def origin_of(module: Module, source: object) -> str:
    """What inputs come from that were made by a seed or a trial, for people."""
    return f"{source}, weights of the model" if _weights(module) else str(source)


def stray(module: Module, inputs: list[Array], seed: int = 0) -> list[Array]:
    """The inputs with about a third of all indices, and one at least, outside the range shown for them.

    Such indices are just below and above it, and the extremes of their type; they test clamps and
    guards.  Where nothing is an index, the arrays are the same.
    """
    found_roles = roles(module)
    rng = np.random.default_rng([seed, _STRAYS])
    arrays = iter(inputs)
    found = []
    for parameter in module.entry.parameters:
        for index, shape in positions(parameter.shape):
            array = next(arrays)
            limit = found_roles.get((parameter, index), InputRole()).limit
            if limit is not None and shape.dtype.is_integer:
                array = _strayed(rng, array, shape.dtype, limit)
            found.append(array)
    return found


def _strayed(rng: np.random.Generator, array: Array, kind: DType, limit: int) -> Array:
    least, most = kind.limits
    outside = {n for n in (-1, limit, least, most) if least <= n <= most and not 0 <= n < limit}
    if not outside or not array.size:
        return array
    strays = rng.choice(np.array(sorted(outside), array.dtype), array.shape)
    chances = np.asarray(rng.random(array.shape))
    return np.where(chances <= max(1 / 3, chances.min()), strays, array)


def _drawn(rng: np.random.Generator, shape: ArrayShape, role: InputRole, seed: int) -> Array:
    """Dynamic dimensions of one bound have one size in a module: those that have to agree do."""
    if role.bound and shape.dtype.is_integer:
        return np.full(shape.dims, _size(role.bound, seed), shape.dtype.numpy)
    if not shape.dynamic:
        return drawn(rng, shape, role)
    dims = tuple(
        _size(bound, seed) if mark and bound != UNBOUNDED else bound
        for bound, mark in zip(shape.dims, shape.dynamic, strict=True)
    )
    return drawn(rng, replace(shape, dims=dims, dynamic=()), role)


def _size(bound: int, seed: int) -> int:
    rng = np.random.default_rng([seed, bound, _SIZES])
    return int(rng.integers(min(bound, 1), bound, endpoint=True))


def positions(
    shape: Shape, index: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], ArrayShape]]:
    """The arrays of a shape and where they are in it, in the order of a flat list."""
    if isinstance(shape, TupleShape):
        for number, element in enumerate(shape.elements):
            yield from positions(element, (*index, number))
    elif isinstance(shape, ArrayShape) and shape.dtype.is_array:
        yield index, shape


def load_inputs(path: Path, module: Module) -> list[Array]:
    """The inputs in a file or folder, as the parameters' element types.

    Raises ``UsageError`` naming the entry that is missing, surplus, or of the wrong shape or type.
    """
    return load_all_inputs(path, module, 1)[0]


def load_all_inputs(path: Path, module: Module, participants: int) -> list[list[Array]]:
    """As ``load_inputs``, for each participant.  ``module.weights`` are taken for what is not there."""
    wanted = [
        (f"parameter {parameter.name}", shape)
        for parameter in module.entry.parameters
        for shape in _arrays(parameter)
    ]
    return _load(path, "in", wanted, participants, _weights(module))


def load_expected(path: Path, module: Module) -> list[Array]:
    """The expected results in a file or folder, as the results' element types."""
    return load_all_expected(path, module, 1)[0]


def load_all_expected(path: Path, module: Module, participants: int) -> list[list[Array]]:
    """As ``load_expected``, for each participant."""
    wanted = [("result", shape) for shape in _arrays(module.entry.root)]
    return _load(path, "out", wanted, participants, {})


def _arrays(instruction: Instruction) -> list[ArrayShape]:
    return [shape for _, shape in positions(instruction.shape)]


def _load(
    path: Path,
    prefix: str,
    wanted: list[tuple[str, ArrayShape]],
    participants: int,
    others: Mapping[int, Array],
) -> list[list[Array]]:
    there = stored(path)
    named = {name.partition(".")[0] for name in there}
    there |= {
        name: array
        for number, array in others.items()
        if (name := f"{prefix}_{number}") not in named
    }
    found = sorted(
        (name for name in there if name.startswith(f"{prefix}_")),
        key=lambda name: (len(name), name),
    )
    names = [f"{prefix}_{number}" for number in range(len(wanted))]
    own = [_names(there, names, participant, participants) for participant in range(participants)]
    used = {name for listed in own for name in listed}
    missing = sorted(used - there.keys(), key=lambda name: (len(name), name))
    # What all of them have may lie beside what each has.
    surplus = [name for name in found if name not in used and name not in names]
    if missing or surplus:
        lack = (
            f"it has no {first_of(missing, 5)}" if missing else f"{first_of(surplus, 5)} too many"
        )
        raise UsageError(f"{path}: {lack}; {_need(prefix, names, participants)}")
    loaded = {
        (name, number): _as_shape(there[name], shape, f"{path}: {name} ({what})")
        for number, (what, shape) in enumerate(wanted)
        for name in {listed[number] for listed in own}
    }
    return [[loaded[name, number] for number, name in enumerate(listed)] for listed in own]


def _names(
    there: dict[str, Array], names: list[str], participant: int, participants: int
) -> list[str]:
    """What a participant takes: ``in_0.3`` where it is there (or nothing is), else ``in_0``."""
    if participants == 1:
        return [
            f"{name}.0" if name not in there and f"{name}.0" in there else name for name in names
        ]
    return [
        name if name in there and f"{name}.{participant}" not in there else f"{name}.{participant}"
        for name in names
    ]


def _need(prefix: str, names: list[str], participants: int) -> str:
    if participants > 1 and names:
        last = participants - 1
        return f"{names[0]} is for all {participants} participants, {names[0]}.{last} for number {last}"
    what = "input" if prefix == "in" else "result"
    if not names:
        return f"the module has no {what}s"
    if len(names) == 1:
        return f"the module has one {what}, {names[0]}"
    return f"the module has {len(names)} {what}s, {names[0]} to {names[-1]}"


def has_inputs(path: Path) -> bool:
    """Whether a file or folder holds more than what the host sends."""
    names = _stored_names(path)
    return not names or not all(_is_stream(name) for name in names)


def _is_stream(name: str) -> bool:
    return name.startswith(("infeed_", "recv_"))


def _stored_names(path: Path) -> list[str]:
    """The names of the arrays, none of which is read; of a file that cannot be read, none."""
    if path.is_dir():
        return [entry.stem for entry in path.glob("*.npy")]
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except Exception:  # noqa: BLE001 - whatever it is, ``stored`` reports it
        return []


def load_host(path: Path | None, seed: int = 0) -> Host:
    """A host that sends ``infeed_0``, ``recv_CHANNEL_0`` ... of a file or folder; without such, random data.

    Raises ``UsageError`` for files that cannot be read and names that make no streams.
    """
    if path is None or not any(map(_is_stream, _stored_names(path))):
        return Host(seed=seed)
    try:
        streams = {name: array for name, array in stored(path).items() if _is_stream(name)}
        return Host(streams, seed=seed)
    except UsageError as error:
        at = "" if error.message.startswith(str(path)) else f"{path}: "
        raise UsageError(f"{at}{error.message}") from error


def named_arrays(prefix: str, arrays: Iterable[Iterable[Array]]) -> dict[str, Array]:
    """Arrays of each participant by the names that files have: ``in_0``, of several participants ``in_0.3``."""
    listed = [list(own) for own in arrays]
    alone = len(listed) == 1
    return {
        f"{prefix}_{number}" if alone else f"{prefix}_{number}.{participant}": array
        for participant, own in enumerate(listed)
        for number, array in enumerate(own)
    }


def npz(arrays: Mapping[str, Array]) -> bytes:
    """The bytes of an ``.npz`` file.

    Floats that NumPy lacks are stored as unsigned views of the same item size, integers as whole bytes.
    """
    content = BytesIO()
    plain: dict[str, Any] = {name: _npz_array(array) for name, array in arrays.items()}
    np.savez(content, **plain)
    return content.getvalue()


def _npz_array(array: Array) -> Array:
    if in_numpy(array.dtype):
        return array
    kind = of_numpy(array.dtype)
    if kind.is_integer:
        return array.astype(np.int8 if kind.kind == "signed" else np.uint8)
    return array.view(f"u{array.dtype.itemsize}")


def stored(path: Path) -> dict[str, Array]:
    """The arrays of a file or folder by name.  Raises ``UsageError`` where they cannot be read."""
    if not path.exists():
        raise UsageError(f"{path}: no such file or directory")
    try:
        if path.is_dir():
            entries = sorted(path.glob("*.npy"))
            return {
                entry.stem: _array(partial(np.load, entry), entry.read_bytes) for entry in entries
            }
        found = _members(path)
    except Exception as error:  # NumPy and zipfile raise any exception for a damaged file
        reason = str(error) or type(error).__name__
        raise UsageError(f"{path}: arrays that cannot be read: {reason}") from error
    if found is None:
        raise UsageError(f"{path}: not an .npz file or a folder of .npy files")
    for name, values in found.items():
        if not isinstance(values, np.ndarray):
            raise UsageError(f"{path}: {name} in it is not an array (.npy)")
    return found


def _members(path: Path) -> dict[str, Array] | None:
    """What is in an archive; None where it is none."""
    if not zipfile.is_zipfile(path):
        return None
    with path.open("rb") as stream, np.load(stream) as arrays:
        return {
            name: _array(partial(arrays.__getitem__, name), partial(arrays.zip.read, f"{name}.npy"))
            for name in arrays.files
        }


def _array(load: Callable[[], Array], read: Callable[[], bytes]) -> Array:
    """An array as NumPy loads it; of f8e5m2 the raw bytes, since NumPy does not read the type it writes."""
    try:
        return load()
    except ValueError as error:
        if not str(error).endswith("'<f1'"):
            raise
    return np.load(BytesIO(read().replace(b"'<f1'", b"'|V1'", 1)))  # type: ignore[no-any-return]


def _as_shape(values: Array, shape: ArrayShape, what: str) -> Array:
    if not shape.holds(values.shape):
        raise UsageError(f"{what} has dimensions {list(values.shape)}, not {shape.sizes_text}")
    try:
        return from_storage(values, shape.dtype, what)
    except EvaluationError as error:
        raise UsageError(error.message) from error
