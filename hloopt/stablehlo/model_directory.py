"""Directories with a model: StableHLO, and its weights as arrays beside it.

hloopt's own has ``model.json``, by whose schema ``write_model_directory`` writes and ``read_model`` reads:

    {"format": "hloopt-model", "version": 1, "module": "model.mlir",
     "inputs": [{"name": "layer.weight", "kind": "weight", "file": "data/layer.weight.npy"},
                {"name": "x", "kind": "input"}],
     "results": [{"file": "data/result.npy"}]}

``inputs`` has an entry for each parameter, in their order; ``kind`` is weight, buffer, constant or input, and
``file`` an array of it, of an input that of an example.  ``results``, which may be left out, are those of the
examples.  Element types that NumPy lacks are stored as unsigned views.

torch_xla's directories (``StableHLOGraphModule.save``) have ``functions/NAME.meta`` and ``.bytecode``, arrays
of parameters under their names in ``data`` and of constants under their numbers in ``constants``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError, FileError, UsageError
from hloopt.interpret.values import from_storage
from hloopt.ir import Module
from hloopt.proto.snapshot import Snapshot
from hloopt.source import Source
from hloopt.stablehlo import MODEL_INDEX, torch_xla_functions
from hloopt.stablehlo.conversion import read_stablehlo
from hloopt.types import Array, ArrayShape, in_numpy, leaves

__all__ = [
    "Model",
    "ModelInput",
    "read_model",
    "write_model_directory",
]

KINDS: Final = ("weight", "buffer", "constant", "input")
_FORMAT: Final = "hloopt-model"
_VERSION: Final = 1
_TORCH_KINDS: Final = {"parameter": "weight", "constant": "constant", "input_arg": "input"}
_NOT_IN_FILES: Final = re.compile(r"[^\w.\-]")


@dataclass(frozen=True)
class ModelInput:
    """A parameter of a model: its name, its kind (``KINDS``), and an array of it or None."""

    name: str
    kind: str
    array: Array | None = None


@dataclass(frozen=True)
class Model:
    """A module with an input for each of its parameters, in order; ``results`` are those of the arrays."""

    module: Module
    inputs: tuple[ModelInput, ...]
    results: tuple[Array, ...] = ()

    @property
    def snapshot(self) -> Snapshot | None:
        """The module with all inputs and the results, where there is an array of each input."""
        arrays = [one.array for one in self.inputs if one.array is not None]
        if len(arrays) < len(self.inputs):
            return None
        return Snapshot(self.module, arrays, list(self.results))

    @property
    def weights(self) -> dict[int, Array]:
        """The arrays of what is no input of a run, by the number of the parameter."""
        return {
            number: one.array
            for number, one in enumerate(self.inputs)
            if one.kind != "input" and one.array is not None
        }


def read_model(
    folder: Path, sizes: Mapping[str, tuple[str, tuple[int, ...]]] | None = None
) -> Model:
    """The model in a directory; ``sizes`` as for ``read_stablehlo``, by the names of the inputs, too.

    Raises ``FileError`` for an index that makes no sense, ``UsageError`` for arrays that are not there or do
    not fit, and what ``read_stablehlo`` raises.
    """
    index = folder / MODEL_INDEX
    entries, file, results = _own(index) if index.is_file() else _of_torch_xla(folder)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    numbers = {name: str(number) for number, (name, _, _) in enumerate(entries)}
    numbered = {numbers.get(name, name): size for name, size in (sizes or {}).items()}
    module = read_stablehlo(content, str(file), numbered)
    shapes = module.entry.parameter_shapes
    if len(shapes) != len(entries):
        raise UsageError(
            f"{folder}: {len(entries)} inputs are listed, the module has {len(shapes)}"
        )
    inputs = tuple(
        ModelInput(name, kind, None if path is None else _array(path, shape, name))
        for (name, kind, path), shape in zip(entries, shapes, strict=True)
    )
    wanted = list(leaves(module.entry.result_shape))
    if results and len(results) != len(wanted):
        raise UsageError(
            f"{folder}: {len(results)} results are listed, the module has {len(wanted)}"
        )
    found = [_array(path, shape, "a result") for path, shape in zip(results, wanted, strict=False)]
    model = Model(module, inputs, tuple(found))
    module.weights = model.weights
    return model


_Entry = tuple[str, str, Path | None]


def _own(index: Path) -> tuple[list[_Entry], Path, list[Path]]:
    """The inputs, the module and the results that an index lists."""
    content = _json(index)

    def refuse(problem: str) -> FileError:
        return FileError(f"this is no index of a model: {problem}", name=str(index))

    def file(name: Any, where: str) -> Path:
        if (
            not isinstance(name, str)
            or not name
            or Path(name).is_absolute()
            or ".." in Path(name).parts
        ):
            raise refuse(f"{where} is not the name of a file in this directory")
        return index.parent / name

    def rows(key: str) -> list[Any]:
        found = content.get(key, [])
        if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
            raise refuse(f"'{key}' is not a list of objects")
        return found

    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise refuse(f"its 'format' is not '{_FORMAT}'")
    if content.get("version") != _VERSION:
        raise refuse(f"its 'version' is {content.get('version')}, {_VERSION} is read")
    entries: list[_Entry] = []
    for number, row in enumerate(rows("inputs")):
        name, kind = row.get("name"), row.get("kind")
        if not isinstance(name, str) or kind not in KINDS:
            raise refuse(f"inputs[{number}] needs a name and a kind, one of {', '.join(KINDS)}")
        path = file(row["file"], f"inputs[{number}].file") if "file" in row else None
        entries.append((name, kind, path))
    results = [file(row.get("file"), f"results[{n}].file") for n, row in enumerate(rows("results"))]
    return entries, file(content.get("module"), "'module'"), results


def _of_torch_xla(folder: Path) -> tuple[list[_Entry], Path, list[Path]]:
    """The inputs and the module of torch_xla's directory, whose first function counts."""
    meta = torch_xla_functions(folder)[0]
    content = _json(meta)
    entries: list[_Entry] = []
    try:
        for location in content["input_locations"]:
            kind = _TORCH_KINDS[location["type_"]]
            if kind == "weight":
                name = str(location["name"])
                path: Path | None = folder / "data" / Path(name).name
            elif kind == "constant":
                name = f"constant {int(location['position'])}"
                path = folder / "constants" / str(int(location["position"]))
            else:
                name, path = f"input {int(location['position'])}", None
            # Weights may have been left out when it was saved.
            entries.append((name, kind, path if path is not None and path.is_file() else None))
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(
            f"this is no description of torch_xla: {error!r}", name=str(meta)
        ) from error
    code = meta.with_suffix(".bytecode")
    return entries, code if code.is_file() else meta.with_suffix(".mlir"), []


def _json(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"byte {error.start} is not UTF-8", name=str(path)) from error
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Source(text, str(path)).error(FileError, error.pos, error.msg) from error
    except RecursionError as error:
        raise FileError("it is nested too deeply", name=str(path)) from error


def _array(path: Path, shape: Any, what: str) -> Array:
    """An array of a file, as the element type of ``shape``."""
    try:
        with path.open("rb") as stream:
            values = np.load(stream, allow_pickle=False)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise UsageError(f"{path}: an array that cannot be read: {error}") from error
    if not isinstance(shape, ArrayShape) or not isinstance(values, np.ndarray):
        raise UsageError(f"{path}: {what} is {shape}, which is not an array")
    if not shape.holds(values.shape):
        dims = list(values.shape)
        raise UsageError(f"{path}: {what} has dimensions {dims}, not {shape.sizes_text}")
    try:
        return from_storage(values, shape.dtype, what)
    except EvaluationError as error:
        raise UsageError(f"{path}: {error.message}") from error


def write_model_directory(
    folder: str | Path,
    text: str,
    inputs: Sequence[ModelInput],
    results: Sequence[Array] = (),
    *,
    bytecode: bytes = b"",
) -> None:
    """Write a model, as ``read_model`` reads it: ``text`` is StableHLO, ``bytecode`` the same in binary form.

    ``inputs`` are the parameters in their order, ``results`` those of the inputs' arrays.  A directory of this
    name is added to.  Raises ``UsageError`` for another kind and for what cannot be written.
    """
    top = Path(folder)
    listed: list[dict[str, str]] = []
    arrays: dict[str, Array] = {}
    for given in inputs:
        if given.kind not in KINDS:
            raise UsageError(f"input {given.name} is a {given.kind}, not one of {', '.join(KINDS)}")
        row = {"name": given.name, "kind": given.kind}
        if given.array is not None:
            row["file"] = _file(given.name, arrays)
            arrays[row["file"]] = given.array
        listed.append(row)
    made = []
    for number, result in enumerate(results):
        made.append({"file": _file(f"result.{number}", arrays)})
        arrays[made[-1]["file"]] = result
    content = {"format": _FORMAT, "version": _VERSION, "module": "model.mlir", "inputs": listed}
    try:
        (top / "data").mkdir(parents=True, exist_ok=True)
        (top / "model.mlir").write_text(text, encoding="utf-8")
        if bytecode:
            (top / "model.mlir.bc").write_bytes(bytecode)
        for name, array in arrays.items():
            values = np.asarray(array)
            np.save(
                top / name,
                values if in_numpy(values.dtype) else values.view(f"u{values.dtype.itemsize}"),
            )
        index = json.dumps({**content, "results": made}, indent=1)
        (top / MODEL_INDEX).write_text(index + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename or top}: {error.strerror or error}") from error


def _file(name: str, taken: Mapping[str, Array]) -> str:
    """A name for an array's file that no other has, in any spelling of letters."""
    stem = _NOT_IN_FILES.sub("_", name)[:100].lstrip(".") or "array"
    used = {one.lower() for one in taken}
    file, number = f"data/{stem}.npy", 1
    while file.lower() in used:
        file, number = f"data/{stem}.{number}.npy", number + 1
    return file
