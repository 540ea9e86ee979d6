"""JAX's calls run by programs that hloopt compiled for the host's processor.

XLA calls them as a custom call, by its foreign function interface, with the addresses of inputs and results:
nothing is copied.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

import jax
import numpy as np

from hloopt.backends.native.compile import compile_native
from hloopt.backends.native.entry import NativeEntry
from hloopt.backends.native.toolchain import build_library, check_native
from hloopt.errors import UnsupportedError
from hloopt.ir import Module
from hloopt.jax.function import Optimizing
from hloopt.jax.modules import aliases, module_of, platform_of
from hloopt.pipelines import Given
from hloopt.runtime.program import NativeOptions

__all__ = ["Native"]

_TARGET: Final = "hloopt_native"


class _Registered(NativeEntry):
    """An entry that XLA's handler finds by its number."""

    number = 0

    def register(self, number: int) -> None:
        """Make it known."""
        self.number = number
        _handler()(ctypes.c_int64(number), ctypes.c_void_p(self.address))

    def __del__(self) -> None:
        """Make it unknown, where no other has taken its number."""
        if self.number and self.number not in _entries:
            _handler()(ctypes.c_int64(self.number), None)
        super().__del__()


_entries: WeakValueDictionary[int, _Registered] = WeakValueDictionary()


class Native(Optimizing):
    """JAX's module after a pipeline, compiled by the host's C++ compiler.

    Raises ``DeviceError`` where there is none.
    """

    def __init__(self, name: str, pipeline: Given, threads: int | None) -> None:
        super().__init__(name, pipeline)
        check_native()
        self._threads = threads

    def lower(
        self, ctx: Any, operands: Sequence[Any], jaxpr: Any, donated: Sequence[bool]
    ) -> Sequence[Any]:
        """A custom call that runs the compiled program."""
        if (platform := platform_of(ctx)) != "cpu":
            raise UnsupportedError(
                f"a program for the host's processor cannot run on {platform}", name=self.name
            )
        entry = self._entry(module_of(jaxpr, self.name, platform, donated))
        # The number says which entry it is, but does not keep it.
        ctx.module_context.add_keepalive(entry)
        call = jax.ffi.ffi_lowering(_TARGET, operand_output_aliases=aliases(entry.program.module))
        found: Sequence[Any] = call(ctx, *operands, entry=np.int64(entry.number))
        return found

    def _entry(self, module: Module) -> _Registered:
        optimized = self.made_of(module)
        text = f"{self._threads} {optimized.to_text()}"
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], signed=True)
        entry = _entries.get(number)
        if entry is None:
            entry = _Registered(compile_native(optimized, NativeOptions(threads=self._threads)))
            _entries[number] = entry
            entry.register(number)
        return entry


@cache
def _handler() -> Any:
    """What registers entries, once XLA knows the handler."""
    text = (Path(__file__).parent / "xla_ffi.cpp").read_text(encoding="utf-8")
    library = ctypes.CDLL(str(build_library(text, include=(jax.ffi.include_dir(),))))
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(library.hloopt_native), platform="cpu")
    return library.hloopt_register
