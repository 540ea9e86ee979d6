"""XLA itself as a device of a study: its CPU compiler, in a Python that has jaxlib (``HLOOPT_XLA_PYTHON``).

XLA gets the optimised module without fusions and choices of kernels, which it makes itself: the study measures
what the passes before fusion gain there.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from hloopt.errors import DeviceError, EvaluationError, UnsupportedError
from hloopt.interpret.values import from_storage
from hloopt.ir import Module, build
from hloopt.runtime.timing import Timing
from hloopt.runtime.xla_form import make_for_xla
from hloopt.study.cells import Checked, Measured
from hloopt.study.devices import machine
from hloopt.study.execute import REPEAT, StudyLimits
from hloopt.study.reference import StudyReference
from hloopt.types import Array, ArrayShape, leaves

__all__ = ["VARIABLE", "execute_xla"]

VARIABLE: Final = "HLOOPT_XLA_PYTHON"
_CHILD: Final = Path(__file__).with_name("xla_child.py")
_SECONDS: Final = 600.0
"""XLA compiles a module and runs it some times; longer than this it is given up."""


def execute_xla(
    module: Module, wanted: StudyReference, limits: StudyLimits
) -> tuple[Checked, Measured]:
    """Compile and run by XLA's CPU compiler; results compared, times taken.

    Raises ``DeviceError`` where no Python with jaxlib is named, ``UnsupportedError`` for what XLA does not
    compile and for programs of several participants.
    """
    python = os.environ.get(VARIABLE)
    if not python:
        raise DeviceError(f"{VARIABLE} names no Python that has jaxlib")
    if prod(wanted.counts) != 1:
        raise UnsupportedError("studies run XLA with one participant only", name=module.name)
    if wanted.written:
        raise UnsupportedError("what XLA writes to the host is not read here", name=module.name)
    with tempfile.TemporaryDirectory() as folder:
        text, given, made = (Path(folder) / name for name in ("m.hlo", "in.npz", "out.npz"))
        copy = build.clone_module(module)
        make_for_xla(copy)
        text.write_text(copy.to_text())
        arrays: dict[str, Any] = {f"in_{n}": _stored(a) for n, a in enumerate(wanted.inputs[0])}
        np.savez(given, **arrays)
        repeat = str(limits.repeat or REPEAT)
        reply = _run_child(
            [python, str(_CHILD), str(text), str(given), str(made), repeat], module.name
        )
        results = _results(module, made)
    checked = wanted.check("xla-cpu", [results], wanted.host.restarted())
    where = f"{machine()}, jaxlib {reply['version']}"
    return checked, Measured(Timing(tuple(reply["seconds"])), where)


def _run_child(command: list[str], name: str) -> dict[str, Any]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_SECONDS, env=environment
        )
    except FileNotFoundError as error:
        raise DeviceError(f"{VARIABLE}: there is no {command[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise EvaluationError(f"XLA took more than {_SECONDS:.0f} s") from error
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
