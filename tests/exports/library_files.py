"""Libraries that tests build, loaded beside the same program run natively in this process."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import hloopt
from hloopt.backends.native.compile import compile_native
from hloopt.driver.options import KernelOptions, PassOptions
from hloopt.driver.passes import choose_passes
from hloopt.runtime.inputs import generate
from tests.helpers.support import Array

__all__ = ["built", "natively", "same_bits"]


def built(text: str, folder: Path, name: str = "program", **options: Any) -> ModuleType:
    """The module of Python of a library, which is built into the folder."""
    module = hloopt.parse(text)
    hloopt.verify(module)
    script = folder / f"{name}.py"
    hloopt.build(
        module, folder / f"lib{name}.so", header=folder / f"{name}.h", python=script, **options
    )
    return loaded(script)


def loaded(script: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def natively(text: str, inputs: Sequence[Array]) -> list[Array]:
    """The results of the same passes on the device native."""
    module = hloopt.parse(text)
    choose_passes(PassOptions(), KernelOptions(), "host").run(module)
    return compile_native(module).run(inputs)


def same_bits(text: str, folder: Path, inputs: Sequence[Array] | None = None) -> ModuleType:
    """Hold a library against the program in this process, on one thread and on several."""
    found = built(text, folder)
    given = generate(hloopt.parse(text), 0) if inputs is None else inputs
    want = natively(text, given)
    for threads in (1, 3):
        made = found.Program(threads)(*given)
        got = made if isinstance(made, tuple) else (made,)
        assert [one.shape for one in got] == [one.shape for one in want]
        for one, other in zip(got, want, strict=True):
            assert one.dtype == other.dtype
            assert one.tobytes() == np.ascontiguousarray(other).tobytes()
    return found
