"""A stand-in for CuPy without a GPU: NOT the real one.  Device memory is the host's.

It has the calls that ``hloopt.backends.cuda`` makes, with the signatures and argument types of CuPy 14's
sources, writes down each, and does what CUDA would: copies bytes, keeps a stream's order, holds work back while a
graph is captured, multiplies as BLAS does column by column, transforms as cuFFT does without scaling.
Kernels do nothing unless a test gives ``FakeCupy.kernels`` a Python function of their name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

import ml_dtypes
import numpy as np

DATA_TYPES = {
    0: np.float32,
    1: np.float64,
    2: np.float16,
    3: np.int8,
    4: np.complex64,
    5: np.complex128,
    10: np.int32,
    14: ml_dtypes.bfloat16,
}
COMPUTE_TYPES = {68: np.float32, 77: np.float32, 70: np.float64, 72: np.int32}


# cudaDeviceProp as CuPy gives it, of an H200.
PROPERTIES: dict[str, Any] = {
    "name": b"NVIDIA H200",
    "major": 9,
    "minor": 0,
    "multiProcessorCount": 132,
    "totalGlobalMem": 150_109_880_320,
    "clockRate": 1_980_000,
    "memoryClockRate": 3_201_000,
    "memoryBusWidth": 6144,
    "l2CacheSize": 62_914_560,
    "warpSize": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiProcessor": 2048,
    "regsPerMultiprocessor": 65536,
    "regsPerBlock": 65536,
    "sharedMemPerBlock": 49152,
    "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472,
    "maxGridSize": (2**31 - 1, 65535, 65535),
    "maxThreadsDim": (1024, 1024, 64),
    "maxBlocksPerMultiProcessor": 32,
    "reservedSharedMemPerBlock": 1024,
}


class CUDARuntimeError(RuntimeError):
    """As CuPy's: with the number of cudaError_t."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text or f"cudaError{status}")
        self.status = status


class Pointer:
    """cupy.cuda.MemoryPointer."""

    def __init__(self, buffer: np.ndarray, offset: int = 0) -> None:
        self.buffer, self.offset = buffer, offset
        self.ptr = buffer.ctypes.data + offset

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.buffer, self.offset + offset)


def view(address: int, dtype: Any, count: int) -> np.ndarray:
    """Memory at an address as an array."""
    size = np.dtype(dtype).itemsize * count
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype)


class FakeCupy:
    """What ``import cupy`` gives; ``calls`` are names and arguments in order."""

    def __init__(self, capability: tuple[int, int] = (9, 0), driver: int = 13000) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.kernels: dict[str, Callable[..., None]] = {}
        self.error_on_wait: Exception | None = None
        self.memory_left = 1 << 40
        self.clock = 0.0
        self.captured: list[Callable[[], None]] | None = None
        self.streams: list[int] = []  # that copies, kernels and graphs were put into
        self.current: Any = None
        fake = self

        class ndarray:  # noqa: N801 - CuPy's name
            def __init__(
                self, shape: tuple[int, ...], dtype: Any = float, memptr: Pointer | None = None
            ) -> None:
                self.size = int(np.prod(shape))
                self.dtype = np.dtype(dtype)
                self.data = memptr or fake._alloc(self.size * self.dtype.itemsize)

        self.ndarray = ndarray
        self.runtime = self._runtime(capability, driver)
        self.cuda = SimpleNamespace(
            runtime=self.runtime,
            alloc=self._alloc,
            Stream=lambda non_blocking: Stream(self, non_blocking=non_blocking),
            ExternalStream=lambda ptr, device_id: ExternalStream(self, ptr, device_id),
            UnownedMemory=UnownedMemory,
            MemoryPointer=MemoryPointer,
            get_current_stream=lambda: self.current,
            Event=lambda: Event(self),
            get_elapsed_time=lambda start, end: end.time - start.time,
            function=SimpleNamespace(Module=lambda: Module(self)),
            driver=SimpleNamespace(
                funcSetAttribute=lambda *given: self.calls.append(("funcSetAttribute", *given))
            ),
            cublas=Blas(self),
            cufft=SimpleNamespace(PlanNd=lambda *arguments: PlanNd(self, *arguments)),
        )

    def get_default_memory_pool(self) -> Any:
        return SimpleNamespace(free_all_blocks=lambda: self.calls.append(("free_all_blocks",)))

    def names(self) -> list[str]:
        """The calls' names."""
        return [call[0] for call in self.calls]

    def work(self, action: Callable[[], None]) -> None:
        """Do it now, or when the graph that is being captured runs."""
        if self.captured is None:
            action()
        else:
            self.captured.append(action)

    def _alloc(self, size: int) -> Pointer:
        assert self.captured is None, "memory allocated while a graph is captured"
        if size > self.memory_left:
            raise MemoryError("out of memory")
        self.calls.append(("alloc", size))
        # What nobody has written is not zero; of large memory only what is touched is there at all.
        made = np.empty(max(size, 1), np.uint8)
        made[: 1 << 16] = 0xAB
        return Pointer(made)

    def _runtime(self, capability: tuple[int, int], driver: int) -> Any:
        def memcpy(target: int, source: int, size: int, kind: int, stream: int) -> None:
            self.calls.append(("memcpyAsync", size, kind))
            if self.captured is None:
                self.streams.append(stream)
            self.work(lambda: ctypes.memmove(target, source, size))

        def memset(target: int, value: int, size: int, stream: int) -> None:
            self.calls.append(("memsetAsync", value, size))
            self.work(lambda: ctypes.memset(target, value, size))

        return SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            is_hip=False,
            getDeviceCount=lambda: 1,
            setDevice=lambda number: self.calls.append(("setDevice", number)),
            driverGetVersion=lambda: driver,
            runtimeGetVersion=lambda: 13020,
            getDeviceProperties=lambda number: {
                "name": b"Fake GPU",
                "major": capability[0],
                "minor": capability[1],
                "l2CacheSize": 1 << 20,
            },
            memGetInfo=lambda: (1000, 2000),
            memcpyAsync=memcpy,
            memsetAsync=memset,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
        )


class Stream:
    """cupy.cuda.Stream."""

    def __init__(self, fake: FakeCupy, *, non_blocking: bool) -> None:
        self.fake, self.ptr, self.before = fake, 7, None
        assert non_blocking, (
            "a capture on a blocking stream forbids the default stream to everybody"
        )

    def __enter__(self) -> Self:
        self.before, self.fake.current = self.fake.current, self
        return self

    def __exit__(self, *error: object) -> None:
        self.fake.current = self.before

    def record(self) -> Event:
        event = Event(self.fake)
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        self.fake.calls.append(("wait_event", event.stream.ptr, self.ptr))

    def synchronize(self) -> None:
        assert self.fake.captured is None, "waited while a graph is captured"
        self.fake.calls.append(("synchronize",))
        if self.fake.error_on_wait is not None:
            raise self.fake.error_on_wait

    def begin_capture(self) -> None:
        self.fake.calls.append(("begin_capture",))
        self.fake.captured = []

    def end_capture(self) -> Graph:
        self.fake.calls.append(("end_capture",))
        actions, self.fake.captured = self.fake.captured, None
        assert actions is not None
        return Graph(self.fake, actions)


class ExternalStream(Stream):
    """cupy.cuda.ExternalStream: others work in it, too, so that it may not be captured."""

    def __init__(self, fake: FakeCupy, ptr: int, device_id: int) -> None:
        super().__init__(fake, non_blocking=True)
        assert device_id == 0
        self.ptr = ptr

    def begin_capture(self) -> None:
        raise AssertionError("others' work would be captured")


class UnownedMemory:
    """cupy.cuda.UnownedMemory."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        assert owner is not None
        assert device_id == 0
        self.ptr, self.size = ptr, size


class MemoryPointer:
    """cupy.cuda.MemoryPointer."""

    def __init__(self, mem: UnownedMemory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)


class Graph:
    """cupy.cuda.Graph."""

    def __init__(self, fake: FakeCupy, actions: list[Callable[[], None]]) -> None:
        self.fake, self.actions = fake, actions

    def launch(self, stream: Stream) -> None:
        self.fake.calls.append(("graph", len(self.actions)))
        self.fake.streams.append(stream.ptr)
        for action in self.actions:
            action()


class Event:
    """cupy.cuda.Event; the clock moves by what tests make kernels add to it, in milliseconds."""

    def __init__(self, fake: FakeCupy) -> None:
        self.fake, self.time = fake, 0.0

    def record(self, stream: Stream) -> None:
        self.stream = stream
        self.time = self.fake.clock

    def synchronize(self) -> None:
        self.fake.calls.append(("wait for event",))
        if self.fake.error_on_wait is not None:
            raise self.fake.error_on_wait


class Module:
    """cupy.cuda.function.Module."""

    def __init__(self, fake: FakeCupy) -> None:
        self.fake = fake

    def load(self, cubin: bytes) -> None:
        assert type(cubin) is bytes
        assert cubin.startswith(b"\x7fELF") or cubin.endswith(b"\0"), "neither ELF nor C's string"
        self.fake.calls.append(("load", len(cubin)))

    def get_function(self, name: str) -> Callable[..., None]:
        self.fake.calls.append(("get_function", name))

        def function(
            grid: tuple,
            block: tuple,
            args: tuple,
            shared_mem: int = 0,
            stream: Stream | None = None,
        ) -> None:
            assert stream is not None
            assert type(args) is tuple
            for value in args:
                assert type(value) in (np.uint64, np.int32), "CuPy would pass another size"
            self.fake.calls.append(("launch", name, grid, block, args))
            if self.fake.captured is None:
                self.fake.streams.append(stream.ptr)
            if shared_mem:
                self.fake.calls.append(("shared", name, shared_mem))
            if name in self.fake.kernels:
                self.fake.work(lambda: self.fake.kernels[name](grid, block, *args))

        function.ptr = hash(name)  # type: ignore[attr-defined]
        return function


class Blas:
    """cupy.cuda.cublas, computed with NumPy."""

    def __init__(self, fake: FakeCupy) -> None:
        self.fake = fake
        self.pointer_mode = self.math_mode = None

    def create(self) -> int:
        assert self.fake.captured is None, "a handle made while a graph is captured"
        self.fake.calls.append(("cublas.create",))
        return 99

    def destroy(self, handle: int) -> None:
        self.fake.calls.append(("cublas.destroy", handle))

    def setPointerMode(self, handle: int, mode: int) -> None:  # noqa: N802 - CuPy's name
        self.pointer_mode = mode

    def setMathMode(self, handle: int, mode: int) -> None:  # noqa: N802
        self.math_mode = mode

    def gemmEx(self, *arguments: int) -> None:  # noqa: N802
        handle, *sizes, alpha, a, atype, lda, b, btype, ldb, beta, c, ctype, ldc, compute, algo = (
            arguments
        )
        matrices = ((a, atype, lda, 0), (b, btype, ldb, 0), (c, ctype, ldc, 0))
        self._gemm("gemmEx", handle, sizes, (alpha, beta), matrices, 1, (compute, algo))

    def gemmStridedBatchedEx(self, *arguments: int) -> None:  # noqa: N802
        handle, transa, transb, m, n, k, alpha, *rest = arguments
        left, right, beta, out = rest[:4], rest[4:8], rest[8], rest[9:13]
        batch, compute, algo = rest[13:]
        sizes, matrices = (transa, transb, m, n, k), (left, right, out)
        scalars, how = (alpha, beta), (compute, algo)
        self._gemm("gemmStridedBatchedEx", handle, sizes, scalars, matrices, batch, how)

    def sscal(self, handle: int, n: int, alpha: int, x: int, incx: int) -> None:
        self._scale(np.float32, n, alpha, x, incx)

    def dscal(self, handle: int, n: int, alpha: int, x: int, incx: int) -> None:
        self._scale(np.float64, n, alpha, x, incx)

    def _scale(self, dtype: Any, n: int, alpha: int, x: int, incx: int) -> None:
        assert incx == 1
        self._checked(99)
        factor = view(alpha, dtype, 1)[0]
        self.fake.calls.append(("scal", n, float(factor)))

        def run() -> None:
            view(x, dtype, n)[:] *= factor

        self.fake.work(run)

    def _checked(self, handle: int) -> None:
        # 16: parts of narrow products may not be rounded before they are added up.
        assert (handle, self.pointer_mode, self.math_mode) == (99, 0, 16)
        assert self.fake.current is not None, "called outside our stream"

    def _gemm(
        self,
        name: str,
        handle: int,
        sizes: Any,
        scalars: tuple[int, int],
        matrices: Any,
        batch: int,
        how: tuple[int, int],
    ) -> None:
        self._checked(handle)
        compute, algo = how
        assert algo == -1
        transa, transb, m, n, k = sizes
        a, b, c = matrices
        sums = np.dtype(COMPUTE_TYPES[compute])
        if np.dtype(DATA_TYPES[a[1]]).kind == "c":
            sums = np.result_type(sums, np.complex64)
        factor, keep = (view(scalar, sums, 1)[0] for scalar in scalars)
        self.fake.calls.append((name, *sizes, batch, compute))

        def run() -> None:
            for number in range(batch):
                left = self._matrix(a, (k, m) if transa else (m, k), number)
                right = self._matrix(b, (n, k) if transb else (k, n), number)
                out = self._matrix(c, (m, n), number)
                left, right = (left.T if transa else left), (right.T if transb else right)
                total = factor * (left.astype(sums) @ right.astype(sums))
                out[:] = (total + (keep * out.astype(sums) if keep else 0)).astype(out.dtype)

        self.fake.work(run)

    @staticmethod
    def _matrix(matrix: tuple, shape: tuple[int, int], number: int) -> np.ndarray:
        address, kind, leading, step = matrix
        assert leading >= max(1, shape[0]), (
            "BLAS refuses a leading dimension below the number of rows"
        )
        dtype = np.dtype(DATA_TYPES[kind])
        flat = view(
            address + number * step * dtype.itemsize, dtype, leading * (shape[1] - 1) + shape[0]
        )
        return np.lib.stride_tricks.as_strided(
            flat, shape, (dtype.itemsize, leading * dtype.itemsize)
        )


class PlanNd:
    """cupy.cuda.cufft.PlanNd: packed arrays only."""

    def __init__(
        self,
        fake: FakeCupy,
        shape: tuple,
        inembed: None,
        istride: int,
        idist: int,
        onembed: None,
        ostride: int,
        odist: int,
        kind: int,
        batch: int,
        order: str,
        last_axis: int,
        last_size: None,
    ) -> None:
        assert fake.captured is None, "a plan made while a graph is captured"
        assert (inembed, istride, onembed, ostride, order) == (None, 1, None, 1, "C")
        self.fake, self.shape, self.kind, self.batch = fake, tuple(shape), kind, batch
        half = (*self.shape[:-1], self.shape[-1] // 2 + 1)
        self.given = half if kind in (0x2C, 0x6C) else self.shape
        self.made = half if kind in (0x2A, 0x6A) else self.shape
        assert (idist, odist) == (np.prod(self.given), np.prod(self.made))
        fake.calls.append(("plan", self.shape, kind, batch))

    def fft(self, a: Any, out: Any, direction: int) -> None:
        assert self.fake.current is not None
        wide = self.kind >= 0x60
        reals, complexes = (np.float64, np.complex128) if wide else (np.float32, np.complex64)
        axes = tuple(range(1, 1 + len(self.shape)))
        before = reals if self.kind in (0x2A, 0x6A) else complexes
        after = reals if self.kind in (0x2C, 0x6C) else complexes

        def run() -> None:
            source = view(a.data.ptr, before, self.batch * int(np.prod(self.given))).reshape(
                self.batch, *self.given
            )
            target = view(out.data.ptr, after, self.batch * int(np.prod(self.made))).reshape(
                self.batch, *self.made
            )
            if after is reals:
                target[:] = np.fft.irfftn(source, s=self.shape, axes=axes, norm="forward")
                source[:] = np.nan  # cuFFT overwrites it
            elif before is reals:
                target[:] = np.fft.rfftn(source, axes=axes)
            elif direction == -1:
                target[:] = np.fft.fftn(source, axes=axes)
            else:
                target[:] = np.fft.ifftn(source, axes=axes, norm="forward")

        self.fake.work(run)
