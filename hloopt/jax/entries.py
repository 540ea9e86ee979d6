"""What XLA calls by its foreign function interface, with the addresses of inputs and results.

A custom call has the number of an entry, which says what that computes: programs that XLA has cached find it.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal, TypeAlias
from weakref import WeakValueDictionary

import jax
import numpy as np

from hloopt.backends.native.entry import AddressEntry
from hloopt.backends.native.toolchain import build_library
from hloopt.ir import Module
from hloopt.types import AliasEntry

__all__ = ["Handler", "call_entry"]

Handler: TypeAlias = Literal["hloopt_native", "hloopt_on_stream"]
"""The functions of ``xla_ffi.cpp`` that XLA calls."""

_PLATFORMS: Final = {"cpu": "cpu", "cuda": "CUDA"}


class _Lowered:
    """What keeps an entry until XLA has compiled the calls of it; after that XLA's executables do."""


_entries: dict[int, AddressEntry] = {}
_lowered: WeakValueDictionary[int, _Lowered] = WeakValueDictionary()
_lock: Final = Lock()


def call_entry(
    ctx: Any,
    operands: Sequence[Any],
    handler: Handler,
    platform: str,
    module: Module,
    computes: str,
    make: Callable[[], AddressEntry],
) -> Sequence[Any]:
    """The results of a custom call, in what ``ctx`` lowers, of the entry that runs ``module``.

    All calls for which ``computes`` says the same share an entry; ``make`` makes it where there is none.
    Results take the memory of the operands that ``input_output_alias`` pairs them with.
    """
    number = int.from_bytes(hashlib.sha256(computes.encode()).digest()[:8], signed=True)
    with _lock:
        _forget_unused()
        lowered = _lowered.setdefault(number, _Lowered())
    ctx.module_context.add_keepalive(lowered)
    if number not in _entries:
        entry = make()
        with _lock:
            if number not in _entries:
                _entries[number] = entry
                _library().hloopt_register(ctypes.c_int64(number), ctypes.c_void_p(entry.address))
    _make_known(handler, platform)
    aliases: Sequence[AliasEntry] = module.attributes.get("input_output_alias", ())
    call = jax.ffi.ffi_lowering(
        handler,
        operand_output_aliases={
            one.parameter: one.output_index[0] if one.output_index else 0 for one in aliases
        },
    )
    found: Sequence[Any] = call(ctx, *operands, entry=np.int64(number))
    return found


def _forget_unused() -> None:
    """Free the entries that no executable of XLA's calls any more, and none will."""
    for number in list(_entries):
        if number not in _lowered and _library().hloopt_forget(ctypes.c_int64(number)):
            del _entries[number]


@cache
def _make_known(handler: Handler, platform: str) -> None:
    stages = {"instantiate": _library().hloopt_instantiate, "execute": getattr(_library(), handler)}
    capsules = {stage: jax.ffi.pycapsule(function) for stage, function in stages.items()}
    jax.ffi.register_ffi_target(handler, capsules, platform=_PLATFORMS[platform])


@cache
def _library() -> ctypes.CDLL:
    text = (Path(__file__).parent / "xla_ffi.cpp").read_text(encoding="utf-8")
    return ctypes.CDLL(str(build_library(text, include=(jax.ffi.include_dir(),))))
