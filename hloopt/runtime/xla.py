"""XLA itself as an executor: its CPU compiler, in a Python that has jaxlib (``extras.jaxlib_python``).

It runs in a child process, since it may abort on what it does not like.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from select import select
from time import monotonic
from typing import Any, Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError, EvaluationError, UnsupportedError
from hloopt.extras import XLA_PYTHON, jaxlib_python
from hloopt.interpret.values import from_storage
from hloopt.ir import Module
from hloopt.types import Array, ArrayShape, in_numpy, leaves

__all__ = ["XLA_SECONDS", "XlaRun", "XlaServer", "run_xla", "xla_python"]

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
    """The Python that has jaxlib.  Raises ``DeviceError`` where there is none."""
    python = jaxlib_python()
    if python is None:
        raise DeviceError(f"{XLA_PYTHON} names no Python that has jaxlib")
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
        files = _write(folder, module, inputs)
        command = [python, str(_CHILD), *files, str(repeat)]
        reply = _run_child(command, module.name, seconds, flags)
        results = _results(module, Path(files[-1]))
    return XlaRun(results, tuple(reply["seconds"]), reply["version"])


class XlaServer:
    """XLA's CPU compiler in one process for many modules: its start takes a second or two.

    ``start`` is called by the process that owns it, ``run`` by that or by one that it has forked, one at a
    time.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0

    def start(self) -> None:
        """Start the process, or another one where it has ended.  Raises ``DeviceError`` where it cannot be."""
        if self._process is not None and self._process.poll() is None:
            self._number += 1
            return
        self.close()
        command = [xla_python(), str(_CHILD)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(""),
                bufsize=0,
            )
        except FileNotFoundError as error:
            raise DeviceError(f"{XLA_PYTHON}: there is no {command[0]}") from error
        # What it takes to start is not the module's.
        assert self._process.stdout is not None
        if select([self._process.stdout], [], [], XLA_SECONDS)[0]:
            self._process.stdout.readline()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
            self._process = None

    def run(
        self, module: Module, inputs: Sequence[Array], seconds: float | None = None
    ) -> list[Array]:
        """The results of a module.

        Raises ``UnsupportedError`` for what XLA does not compile, ``EvaluationError`` where it crashes, or
        takes longer than ``seconds``, which ends it.
        """
        process = self._process
        assert process is not None, "it was started"
        assert process.stdin is not None
        with tempfile.TemporaryDirectory() as folder:
            files = _write(folder, module, inputs)
            request = json.dumps([self._number, *files, 0])
            try:
                process.stdin.write(request.encode() + b"\n")
                reply = self._reply(process, seconds or XLA_SECONDS)
            except BrokenPipeError:
                reply = None
            if reply is None:
                raise EvaluationError("XLA crashed")
            if "error" in reply:
                raise UnsupportedError(
                    f"XLA: {reply['error'].partition(chr(10))[0]}", name=module.name
                )
            return _results(module, Path(files[-1]))

    def _reply(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any] | None:
        """The answer to the request of this number; None where the process has ended."""
        assert process.stdout is not None
        end, content = monotonic() + seconds, b""
        while True:
            while b"\n" in content:
                line, _, content = content.partition(b"\n")
                reply: dict[str, Any] = json.loads(line)
                if reply["number"] == self._number:
                    return reply
            if not select([process.stdout], [], [], max(end - monotonic(), 0.0))[0]:
                process.kill()
                raise EvaluationError(f"XLA took more than {seconds:.0f} seconds")
            part = process.stdout.read(1 << 16)
            if not part:
                return None
            content += part


def _write(folder: str, module: Module, inputs: Sequence[Array]) -> list[str]:
    """Write a module and its inputs for XLA; the names of both files, and of that for the results."""
    text, given, made = (Path(folder) / name for name in ("m.hlo", "in.npz", "out.npz"))
    text.write_text(module.to_text())
    arrays: dict[str, Any] = {f"in_{n}": _stored(a) for n, a in enumerate(inputs)}
    np.savez(given, **arrays)
    return [str(text), str(given), str(made)]


def _environment(flags: str) -> dict[str, str]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    if flags:
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {flags}".strip()
    return environment


def _run_child(command: list[str], name: str, seconds: float, flags: str) -> dict[str, Any]:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env=_environment(flags),
        )
    except FileNotFoundError as error:
        raise DeviceError(f"{XLA_PYTHON}: there is no {command[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise EvaluationError(f"XLA took more than {seconds:.0f} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reply = lines[-1] if lines else f"exit code {done.returncode}"
        if "No module named" in reply:
            raise DeviceError(f"{XLA_PYTHON}: {reply}")
        raise UnsupportedError(f"XLA: {reply}", name=name)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _stored(array: Array) -> Array:
    """Arrays of types that NumPy lacks as unsigned views; the child has their types from the module."""
    if in_numpy(array.dtype):
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
