"""XLA itself as an executor: its CPU compiler, in a Python that has jaxlib (``HLOOPT_XLA_PYTHON``).

It runs in a child process, since it may abort on what it does not like.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError, EvaluationError, UnsupportedError
from hloopt.interpret.values import from_storage
from hloopt.ir import Module
from hloopt.types import Array, ArrayShape, leaves

__all__ = ["VARIABLE", "XLA_SECONDS", "XlaRun", "run_xla", "xla_python"]

VARIABLE: Final = "HLOOPT_XLA_PYTHON"
_CHILD: Final = Path(__file__).with_name("xla_child.py")
XLA_SECONDS: Final = 600.0
"""XLA compiles a module and runs it some times; after this it is given up."""


@dataclass(frozen=True)
class XlaRun:
    """What XLA gave: the flat list of results, seconds of each timed run, the version of jaxlib."""

    results: list[Array]
    seconds: tuple[float, ...]
    version: str


def xla_python() -> str:
    """The Python that has jaxlib.  Raises ``DeviceError`` where none is named."""
    python = os.environ.get(VARIABLE)
    if not python:
        raise DeviceError(f"{VARIABLE} names no Python that has jaxlib")
    return python


def run_xla(
    module: Module,
    inputs: Sequence[Array],
    *,
    repeat: int = 0,
    seconds: float = XLA_SECONDS,
    flags: str = "",
) -> XlaRun:
    """Compile a module by XLA's CPU compiler and run it: once, then ``repeat`` timed times.

    The module is compiled as it is; ``flags`` are added to ``XLA_FLAGS``.
    Raises ``DeviceError`` where no Python with jaxlib is named, ``UnsupportedError`` for what XLA does not
    compile or aborts on, ``EvaluationError`` where it takes longer than ``seconds``.
    """
    python = xla_python()
    with tempfile.TemporaryDirectory() as folder:
        text, given, made = (Path(folder) / name for name in ("m.hlo", "in.npz", "out.npz"))
        text.write_text(module.to_text())
        arrays: dict[str, Any] = {f"in_{n}": _stored(a) for n, a in enumerate(inputs)}
        np.savez(given, **arrays)
        command = [python, str(_CHILD), str(text), str(given), str(made), str(repeat)]
        reply = _run_child(command, module.name, seconds, flags)
        results = _results(module, made)
    return XlaRun(results, tuple(reply["seconds"]), reply["version"])


def _run_child(command: list[str], name: str, seconds: float, flags: str) -> dict[str, Any]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    if flags:
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {flags}".strip()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=seconds, env=environment
        )
    except FileNotFoundError as error:
        raise DeviceError(f"{VARIABLE}: there is no {command[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise EvaluationError(f"XLA took more than {seconds:.0f} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reply = lines[-1] if lines else f"exit code {done.returncode}"
        if "No module named" in reply:
            raise DeviceError(f"{VARIABLE}: {reply}")
        raise UnsupportedError(f"XLA: {reply}", name=name)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _stored(array: Array) -> Array:
    """Arrays of types that NumPy lacks as unsigned views; the child has their types from the module."""
    if array.dtype.kind != "V" and array.dtype.isbuiltin == 1:
        return array
    return array.view(f"u{array.dtype.itemsize}")


def _results(module: Module, path: Path) -> list[Array]:
    shapes = [
        leaf
        for leaf in leaves(module.entry.root.shape)
        if isinstance(leaf, ArrayShape) and leaf.dtype.is_array
    ]
    with np.load(path) as arrays:
        return [
            from_storage(arrays[f"out_{n}"], shape.dtype, f"out_{n}").reshape(shape.dims)
            for n, shape in enumerate(shapes)
        ]
