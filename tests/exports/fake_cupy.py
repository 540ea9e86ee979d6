"""CuPy as far as an exported file uses it, with the emulator for a GPU: each launch runs its CUDA C on the CPU.

An address is the number of an allocation in the upper bits and the offset in it in the lower ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import numpy as np

from hloopt.backends.emulator import EmulatorDevice
from hloopt.runtime.device import Pointer, PointerArgument

__all__ = ["emulated_cupy"]

_SHIFT = 40


class _Array:
    """``cupy.ndarray``: contiguous memory of the emulator."""

    def __init__(self, gpu: _Gpu, dims: Any, kind: Any) -> None:
        self.gpu, self.dtype = gpu, np.dtype(kind)
        self.shape = tuple(dims) if isinstance(dims, tuple | list) else (dims,)
        size = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        self.data = SimpleNamespace(ptr=gpu.allocate(size))

    def get(self) -> np.ndarray[Any, Any]:
        """Its content."""
        raw = self.gpu.device.download(self.gpu.pointer(self.data.ptr))
        return raw.view(self.dtype).reshape(self.shape)


class _Gpu:
    def __init__(self) -> None:
        self.device = EmulatorDevice(mode="check", seed=1)
        self.sizes: dict[int, int] = {}
        self.loaded = ""

    def allocate(self, size: int) -> int:
        number = self.device.allocate(max(size, 1))
        self.sizes[number] = size
        return number + 1 << _SHIFT

    def pointer(self, address: int, size: int | None = None) -> Pointer:
        if not address:
            return Pointer(-1, 0, 0)
        number, offset = (address >> _SHIFT) - 1, address & (1 << _SHIFT) - 1
        return Pointer(number, offset, self.sizes[number] - offset if size is None else size)

    def launch(
        self, source: str, name: str, grid: Any, block: Any, given: Sequence[Any], shared: int
    ) -> None:
        if self.loaded != source:
            self.device.load(source, {})
            self.loaded = source
        addresses = [one for one in given if not isinstance(one, np.int32)]
        scalars = [int(one) for one in given if isinstance(one, np.int32)]
        assert [*given] == [*addresses, *scalars], "pointers come first"
        arguments = [PointerArgument(self.pointer(address), "update") for address in addresses]
        self.device.launch(name, grid, block, arguments, scalars, shared)


@contextmanager
def emulated_cupy() -> Iterator[_Gpu]:
    """``import cupy`` gives this one while the context lasts."""
    gpu = _Gpu()

    class RawKernel:
        max_dynamic_shared_size_bytes = 48 * 1024

        def __init__(self, source: str, name: str, options: tuple[str, ...]) -> None:
            assert "--fmad=false" in options
            self.source, self.name = source, name

        def __call__(self, grid: Any, block: Any, given: Any, *, shared_mem: int = 0) -> None:
            assert shared_mem <= self.max_dynamic_shared_size_bytes, "more has to be asked for"
            gpu.launch(self.source, self.name, grid, block, given, shared_mem)

    class Stream:
        ptr = 7

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def asarray(array: np.ndarray[Any, Any]) -> _Array:
        made = _Array(gpu, array.shape, array.dtype)
        gpu.device.upload(gpu.pointer(made.data.ptr), array)
        return made

    def memcpy(target: int, source: int, size: int, kind: int, stream: int) -> None:
        assert (kind, stream) == (3, Stream.ptr)
        # The emulator copies for a program, and a copy may come before the first function is compiled.
        gpu.device.upload(gpu.pointer(target, size), gpu.device.download(gpu.pointer(source, size)))

    def memset(target: int, value: int, size: int, stream: int) -> None:
        assert stream == Stream.ptr
        gpu.device.upload(gpu.pointer(target, size), np.full(size, value, np.uint8))

    fake: Any = ModuleType("cupy")
    fake.RawKernel, fake.asarray = RawKernel, asarray
    fake.empty = lambda dims, kind: _Array(gpu, dims, kind)
    fake.ascontiguousarray = lambda array: array
    fake.cuda = cuda = ModuleType("cupy.cuda")
    fake.cuda.get_current_stream = Stream
    fake.cuda.runtime = SimpleNamespace(
        memcpyAsync=memcpy, memsetAsync=memset, memcpyDeviceToDevice=3
    )
    before = {name: sys.modules.get(name) for name in ("cupy", "cupy.cuda")}
    sys.modules.update({"cupy": fake, "cupy.cuda": cuda})
    try:
        yield gpu
    finally:
        gpu.device.close()
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
