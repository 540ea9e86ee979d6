"""Processes of their own, each with its inputs in a file.

They find the bytecode of all modules, as those of an installed package do, and BLAS chooses its code by the
processor, whatever the environment here says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hloopt.types import DTYPES
from tests.helpers.support import as_type, recorded
from tests.oracle.oracle import python

__all__ = ["FOLDER", "Program", "child", "ours", "programs", "saved", "scratch", "theirs"]

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
TIME_LIMIT = 3600.0

Array = np.ndarray[Any, Any]


class Program:
    """A program with inputs: of the corpus where there is one, else a sample."""

    def __init__(self, name: str, path: Path, inputs: list[Array]) -> None:
        self.name = name
        self.path = path
        self.inputs = inputs


@cache
def scratch() -> Path:
    """A folder for inputs and bytecode, gone in the end."""
    _KEPT.append(TemporaryDirectory(prefix="hloopt-bench-"))
    return Path(_KEPT[-1].name)


_KEPT: list[TemporaryDirectory[str]] = []


def child(command: Sequence[str]) -> str:
    """What a process prints."""
    hidden = ("OPENBLAS_CORETYPE", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "PYTHONPYCACHEPREFIX": str(scratch() / "bytecode"),
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stderr[-4000:]}")
    return done.stdout


def ours(
    path: Path, inputs: Path, pipeline: str, device: str = "cpu", seconds: float = 0.0
) -> dict[str, Any]:
    """What ``run_ours.py`` says of a program."""
    command = [sys.executable, str(FOLDER / "run_ours.py"), str(path), str(inputs), pipeline]
    answer: dict[str, Any] = json.loads(
        child([*command, device, str(time.monotonic()), str(seconds)])
    )
    return answer


def theirs(path: Path, inputs: Path, seconds: float = 0.0) -> dict[str, float]:
    """What ``run_xla.py`` says of it."""
    command = [python(), str(FOLDER / "run_xla.py"), str(path), str(inputs)]
    answer: dict[str, float] = json.loads(child([*command, str(time.monotonic()), str(seconds)]))
    return answer


def saved(program: Program) -> Path:
    """Its inputs in a file, with the names of their types."""
    file = scratch() / f"{program.name}.npz"
    if not file.exists():
        types = np.array([array.dtype.name for array in program.inputs])
        arrays = {f"in_{index}": array for index, array in enumerate(program.inputs)}
        np.savez(file, types=types, **arrays)  # type: ignore[arg-type]
    return file


def programs() -> list[Program]:
    """Those of ``corpus/jax`` whose values are all there, else the samples."""
    corpus = os.environ.get("HLOOPT_CORPUS")
    if not corpus:
        return [_sample(path) for path in sorted((ROOT / "samples").glob("*.npz"))]
    paths = sorted((Path(corpus) / "jax").glob("*.before.hlo"))
    return [_of_corpus(path) for path in paths if "{...}" not in path.read_text()]


def _sample(path: Path) -> Program:
    import hloopt

    text = path.with_suffix(".hlo")
    parameters = hloopt.parse(text.read_text(), path.stem).entry.parameters
    with np.load(path) as arrays:
        inputs = [
            as_type(arrays[f"in_{index}"], parameter.array.dtype.name)
            for index, parameter in enumerate(parameters)
        ]
    return Program(path.stem, text, inputs)


def _of_corpus(path: Path) -> Program:
    name = path.name.removesuffix(".before.hlo")
    record = recorded(path.with_name(name))
    if record is not None:
        return Program(name, path, record.inputs)
    meta = json.loads(path.with_name(f"{name}.json").read_text())
    return Program(name, path, [drawn(spec) for spec in meta["inputs"]])


def drawn(spec: dict[str, Any]) -> Array:
    """An input by its rule; see the corpus' own page."""
    rule, shape = spec["rule"], spec["shape"]
    generator = np.random.default_rng(rule["seed"])
    values: Any
    if rule["kind"] == "normal":
        values = generator.standard_normal(shape) * rule["a"]
    elif rule["kind"] == "uniform":
        values = generator.uniform(rule["a"], rule["b"], shape)
    elif rule["kind"] == "integers":
        values = generator.integers(int(rule["a"]), int(rule["b"]), shape)
    else:
        raise ValueError(f"unknown rule {rule['kind']!r}")
    return np.asarray(values).astype(DTYPES[spec["dtype"]].numpy)
