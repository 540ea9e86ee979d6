"""Library calls: cuBLAS for products of matrices, cuFFT for Fourier transforms.

CuPy's bindings are called with addresses: they allocate, compile and copy nothing, so that
calls can be captured in graphs.  What else a call needs (handles, plans, scratch memory) is made by
``prepare``, once, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hloopt.analysis.gemm import Gemm, Matrix
from hloopt.analysis.gpu_libraries import (
    LibraryProduct,
    Transform,
    product_of,
    transform_of,
)
from hloopt.backends.nvrtc import INSTALL
from hloopt.errors import DeviceError, UnsupportedError
from hloopt.ir import Instruction

__all__ = ["Libraries"]

# cublasOperation_t, cublasPointerMode_t, cublasMath_t, cublasGemmAlgo_t
_AS_IT_IS, _TRANSPOSED = 0, 1
# By default partial sums of narrow products may be rounded to the type of the result: HLO's are not.
_HOST, _WIDE_SUMS, _DEFAULT_ALGORITHM = 0, 16, -1
# cublasComputeType_t, by Product.arithmetic
_COMPUTE: Mapping[str, int] = {"f32": 68, "tf32": 77, "f64": 70, "s32": 72}
# cudaDataType
_DATA: Mapping[str, int] = {
    "f32": 0,
    "f64": 1,
    "f16": 2,
    "s8": 3,
    "c64": 4,
    "c128": 5,
    "s32": 10,
    "bf16": 14,
}
_SIZES: Mapping[str, int] = {
    "s8": 1,
    "f16": 2,
    "bf16": 2,
    "f32": 4,
    "s32": 4,
    "f64": 8,
    "c64": 8,
    "c128": 16,
}
# cufftType, by Transform.kind: in single precision, in double
_TRANSFORMS: Mapping[str, tuple[int, int]] = {
    "FFT": (0x29, 0x69),
    "IFFT": (0x29, 0x69),
    "RFFT": (0x2A, 0x6A),
    "IRFFT": (0x2C, 0x6C),
}
_FORWARD, _INVERSE = -1, 1


class Libraries:
    """The libraries of one GPU; calls go to CuPy's current stream."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._handle: int | None = None
        self._plans: dict[Transform, Any] = {}
        self._scratch: dict[Transform, Any] = {}

    def require(self, libraries: Sequence[str]) -> None:
        """Raise ``DeviceError`` for a library that is not installed; unknown names are a ``KeyError``."""
        for library in libraries:
            module = {"cublas": "cublas", "cufft": "cufft"}[library]
            try:
                getattr(self._cupy.cuda, module)
            except (ImportError, RuntimeError) as error:
                raise DeviceError(
                    f"{module}, which a program's library calls need, cannot be loaded: {INSTALL}"
                ) from error

    def prepare(self, library: str, instruction: Instruction) -> None:
        """Make what the call of an instruction needs; before a capture, which must not allocate.

        Raises ``DeviceError`` as ``require``, ``UnsupportedError`` as ``call``.
        """
        self.require([library])
        found = self._described(library, instruction)
        if isinstance(found, LibraryProduct):
            self._blas()
        else:
            self._plan(found)

    def call(
        self, library: str, instruction: Instruction, operands: list[Any], results: list[Any]
    ) -> None:
        """Compute an instruction: ``operands`` and ``results`` are its leaves as flat u8 arrays of CuPy.

        Raises ``UnsupportedError`` where ``gpu_libraries.refusal`` has a reason.
        """
        found = self._described(library, instruction)
        if isinstance(found, LibraryProduct):
            self._multiply(found, operands, results[0])
        else:
            self._transform(found, operands[0], results[0])

    def close(self) -> None:
        """Free handles and plans."""
        self._plans.clear()
        self._scratch.clear()
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._cupy.cuda.cublas.destroy(handle)

    def _described(self, library: str, instruction: Instruction) -> LibraryProduct | Transform:
        describe: Mapping[str, Callable[[Instruction], LibraryProduct | Transform | str]]
        describe = {"cublas": product_of, "cufft": transform_of}
        found = describe[library](instruction)
        if isinstance(found, str):
            raise UnsupportedError(f"{instruction.name}: {library} has no call for {found}")
        return found

    def _blas(self) -> int:
        if self._handle is None:
            blas = self._cupy.cuda.cublas
            self._handle = handle = int(blas.create())
            blas.setPointerMode(handle, _HOST)
            blas.setMathMode(handle, _WIDE_SUMS)
        return self._handle

    def _multiply(self, product: LibraryProduct, operands: list[Any], result: Any) -> None:
        runtime = self._cupy.cuda.runtime
        stream = self._cupy.cuda.get_current_stream().ptr
        gemm = product.gemm
        if gemm is None:
            if result.size:
                runtime.memsetAsync(result.data.ptr, 0, result.size, stream)
            return
        if product.beta:
            runtime.memcpyAsync(
                result.data.ptr,
                operands[2].data.ptr,
                result.size,
                runtime.memcpyDeviceToDevice,
                stream,
            )
        lhs, rhs = (operand.data.ptr for operand in operands[:2])
        left, right = (rhs, lhs) if gemm.swapped else (lhs, rhs)
        for offsets in gemm.offsets:
            self._gemm(product, gemm, (left, right, result.data.ptr), offsets)

    def _gemm(
        self,
        product: LibraryProduct,
        gemm: Gemm,
        addresses: tuple[int, int, int],
        offsets: tuple[int, int, int],
    ) -> None:
        sizes = (_SIZES[product.operand], _SIZES[product.operand], _SIZES[product.result])
        left, right, out = (
            address + offset * size
            for address, offset, size in zip(addresses, offsets, sizes, strict=True)
        )
        data, made = _DATA[product.operand], _DATA[product.result]
        # Read by the host before the call returns: they need to live no longer.
        alpha = np.array(_scalar(product, product.alpha))
        beta = np.array(_scalar(product, product.beta))
        batched = gemm.batch > 1

        def matrix(address: int, kind: int, matrix: Matrix) -> list[int]:
            step = [matrix.batch] if batched else []
            return [address, kind, matrix.leading, *step]

        blas = self._cupy.cuda.cublas
        (blas.gemmStridedBatchedEx if batched else blas.gemmEx)(
            self._blas(),
            _TRANSPOSED if gemm.left.transposed else _AS_IT_IS,
            _TRANSPOSED if gemm.right.transposed else _AS_IT_IS,
            *(gemm.rows, gemm.columns, gemm.depth),
            alpha.ctypes.data,
            *matrix(left, data, gemm.left),
            *matrix(right, data, gemm.right),
            beta.ctypes.data,
            *matrix(out, made, gemm.out),
            *([gemm.batch] if batched else []),
            _COMPUTE[product.arithmetic],
            _DEFAULT_ALGORITHM,
        )

    def _plan(self, transform: Transform) -> Any:
        found = self._plans.get(transform)
        if found is None:
            narrow, wide = _TRANSFORMS[transform.kind]
            found = self._plans[transform] = self._cupy.cuda.cufft.PlanNd(
                transform.lengths,
                None,
                1,
                transform.in_distance,
                None,
                1,
                transform.out_distance,
                wide if transform.is_wide else narrow,
                transform.batch,
                "C",
                -1,
                None,
            )
            if transform.kind == "IRFFT":
                # cuFFT overwrites the input of transforms from complex to real.
                size = transform.batch * transform.in_distance * (16 if transform.is_wide else 8)
                self._scratch[transform] = self._cupy.ndarray((size,), np.uint8)
            if transform.scale != 1:
                self._blas()
        return found

    def _transform(self, transform: Transform, operand: Any, result: Any) -> None:
        if not result.size:
            return
        runtime = self._cupy.cuda.runtime
        plan = self._plan(transform)
        if transform.kind == "IRFFT":
            scratch = self._scratch[transform]
            runtime.memcpyAsync(
                scratch.data.ptr,
                operand.data.ptr,
                operand.size,
                runtime.memcpyDeviceToDevice,
                self._cupy.cuda.get_current_stream().ptr,
            )
            operand = scratch
        plan.fft(operand, result, _FORWARD if transform.kind in ("FFT", "RFFT") else _INVERSE)
        if transform.scale != 1:
            blas = self._cupy.cuda.cublas
            scale = np.array(transform.scale, np.float64 if transform.is_wide else np.float32)
            scaled = blas.dscal if transform.is_wide else blas.sscal
            scaled(self._blas(), transform.reals, scale.ctypes.data, result.data.ptr, 1)


def _scalar(product: LibraryProduct, value: complex) -> Any:
    """In the type that cuBLAS reads alpha and beta in, which is that of the sums."""
    if product.arithmetic == "s32":
        return np.int32(int(value.real))
    is_wide = product.arithmetic == "f64"
    if product.operand.startswith("c"):
        return np.complex128(value) if is_wide else np.complex64(value)
    real = value.real
    return np.float64(real) if is_wide else np.float32(real)
