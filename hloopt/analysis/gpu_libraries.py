"""The calls of cuBLAS and cuFFT that compute an instruction, or why there are none.

Pure functions: kernel selection calls ``refusal``, the device makes the calls of ``product_of`` and
``transform_of``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Literal

from hloopt.analysis.gemm import Gemm, gemm_of
from hloopt.dataclass import dataclass
from hloopt.interpret.library_calls import config, dot_dims, result_shape
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, DotDims, TupleShape

__all__ = ["LibraryProduct", "Transform", "product_of", "refusal", "transform_of"]

Arithmetic = Literal["f32", "tf32", "f64", "s32"]

_INT_MAX = (1 << 31) - 1
_ALIGNED = 4  # bytes of rows and batches of 8-bit integers

# Operands, result: in what the products are summed.
_ARITHMETIC: Mapping[tuple[str, str], Arithmetic] = {
    ("f16", "f16"): "f32",
    ("f16", "f32"): "f32",
    ("bf16", "bf16"): "f32",
    ("bf16", "f32"): "f32",
    ("f32", "f32"): "f32",
    ("f64", "f64"): "f64",
    ("c64", "c64"): "f32",
    ("c128", "c128"): "f64",
    ("s8", "s32"): "s32",
}
# The algorithms that can be requested, with the types they take as they are.
_ALGORITHMS: Mapping[str, tuple[frozenset[str], Arithmetic]] = {
    "dot_f16_f16_f32": (frozenset({"f16"}), "f32"),
    "dot_bf16_bf16_f32": (frozenset({"bf16"}), "f32"),
    "dot_tf32_tf32_f32": (frozenset({"f32"}), "tf32"),
    "dot_f32_f32_f32": (frozenset({"f32", "c64"}), "f32"),
    "dot_f64_f64_f64": (frozenset({"f64", "c128"}), "f64"),
}


@dataclass(frozen=True, slots=True)
class LibraryProduct:
    """alpha A B, and beta times the third operand where ``beta`` is not 0.

    ``gemm`` is None where there is nothing to sum: the result is empty, or all zeros.
    ``arithmetic`` is what products are summed in; f32 operands are rounded to TF32 only where the
    instruction's algorithm requests it.
    """

    gemm: Gemm | None
    operand: str
    result: str
    arithmetic: Arithmetic
    alpha: complex = 1.0
    beta: float = 0.0


@dataclass(frozen=True, slots=True)
class Transform:
    """``batch`` transforms over ``lengths``; distances between them in elements of input and result.

    kind     as HLO has it: ``FFT``, ``IFFT``, ``RFFT`` or ``IRFFT``
    is_wide  of f64 and c128
    scale    what the library leaves to the caller: 1 over the product of the lengths for inverse transforms
    reals    real numbers in the result, for scaling
    """

    kind: str
    lengths: tuple[int, ...]
    batch: int
    in_distance: int
    out_distance: int
    is_wide: bool
    scale: float
    reals: int


def refusal(library: str, instruction: Instruction) -> str | None:
    """Why a library (``cublas``, ``cufft``) cannot run an instruction, or None."""
    found = _DESCRIBE[library](instruction)
    return found if isinstance(found, str) else None


def product_of(instruction: Instruction) -> LibraryProduct | str:
    """Of a ``dot``, or of cuBLAS's own ``__cublas$gemm`` without an epilogue."""
    if instruction.opcode == "dot":
        lhs, rhs = (operand.array for operand in instruction.operands[:2])
        if len(instruction.operands) > 2:
            return "a sparse dot"
        dims = DotDims.of(instruction.attributes)
        requested = str(instruction.attributes.get("algorithm", "dot_unset"))
        return _product(lhs, rhs, instruction.array, dims, requested, {})
    if instruction.custom_call_target == "__cublas$gemm":
        return _gemm_call(instruction)
    return f"{instruction.opcode} is not a matrix product"


def _gemm_call(instruction: Instruction) -> LibraryProduct | str:
    settings = config(instruction, "gemm_backend_config")
    if (epilogue := str(settings.get("epilogue", "DEFAULT"))) != "DEFAULT":
        return f"the epilogue {epilogue} is one of cublasLt"
    shapes = [operand.array for operand in instruction.operands]
    if isinstance(instruction.shape, TupleShape) and len(instruction.shape.elements) > 2:
        return "more results than a product and scratch space"
    if settings.get("beta") and (len(shapes) != 3 or shapes[2] != result_shape(instruction)):
        return "what is added to the product has another shape or layout"
    algorithm = str(settings.get("precision_config", {}).get("algorithm", "ALG_UNSET"))
    requested = algorithm.lower().replace("alg_", "dot_")
    dims = dot_dims(settings["dot_dimension_numbers"])
    return _product(shapes[0], shapes[1], result_shape(instruction), dims, requested, settings)


def _product(
    lhs: ArrayShape,
    rhs: ArrayShape,
    out: ArrayShape,
    dims: DotDims,
    algorithm: str,
    settings: Mapping[str, Any],
) -> LibraryProduct | str:
    if any(shape.is_dynamic for shape in (lhs, rhs, out)):
        return "sizes known at run time only"
    if lhs.dtype is not rhs.dtype or (lhs.dtype.name, out.dtype.name) not in _ARITHMETIC:
        return f"no product of {lhs.dtype.name} and {rhs.dtype.name} to {out.dtype.name}"
    arithmetic = _ARITHMETIC[lhs.dtype.name, out.dtype.name]
    if algorithm != "dot_unset":
        takes, requested = _ALGORITHMS.get(algorithm, (frozenset(), arithmetic))
        if lhs.dtype.name not in takes:
            return f"the algorithm {algorithm} for {lhs.dtype.name} and {out.dtype.name}"
        arithmetic = requested
    gemm = None
    if settings.get("beta") and not (lhs.elements and rhs.elements):
        return "something is added to an empty product"
    if lhs.elements and rhs.elements:
        found = gemm_of(lhs, rhs, out, dims)
        if isinstance(found, str):
            return found
        if arithmetic == "s32" and _unaligned(found):
            return f"rows of 8-bit integers that do not begin at multiples of {_ALIGNED} bytes"
        gemm = found
    alpha = complex(float(settings.get("alpha_real", 1)), float(settings.get("alpha_imag", 0)))
    beta = float(settings.get("beta", 0))
    return LibraryProduct(gemm, lhs.dtype.name, out.dtype.name, arithmetic, alpha, beta)


def _unaligned(gemm: Gemm) -> bool:
    factors = (gemm.left, gemm.right)
    steps = [step for matrix in factors for step in (matrix.leading, matrix.batch)]
    steps += [offset for left, right, _ in gemm.offsets for offset in (left, right)]
    return any(step % _ALIGNED for step in steps)


def transform_of(instruction: Instruction) -> Transform | str:
    """Of an ``fft``; dense, in row-major layout, of as many elements as its lengths say."""
    if instruction.opcode != "fft":
        return f"{instruction.opcode} is not a Fourier transform"
    source, target = instruction.operands[0].array, instruction.array
    lengths = tuple(instruction.attributes["fft_length"])
    kind = str(instruction.attributes["fft_type"])
    for shape in (source, target):
        if shape.is_dynamic:
            return "sizes known at run time only"
        if shape.layout is not None and not shape.layout.is_descending:
            return "a layout that is not row-major"
    inner = len(lengths)
    halved = (*lengths[:-1], lengths[-1] // 2 + 1)
    given = source.dims[source.rank - inner :]
    made = target.dims[target.rank - inner :]
    wanted = (halved if kind == "IRFFT" else lengths, halved if kind == "RFFT" else lengths)
    if (given, made) != wanted:
        return f"a transform of length {list(lengths)} of dimensions {list(given)}"
    reals = target.elements * (2 if target.dtype.is_complex else 1)
    if max(reals, source.elements) > _INT_MAX:
        return "2^31 elements or more"
    scale = 1 / prod(lengths) if kind in ("IFFT", "IRFFT") and prod(lengths) else 1.0
    batch = prod(source.dims[: source.rank - inner])
    is_wide = source.dtype.name in ("f64", "c128")
    return Transform(kind, lengths, batch, prod(given), prod(made), is_wide, scale, reals)


_DESCRIBE: Mapping[str, Callable[[Instruction], LibraryProduct | Transform | str]] = {
    "cublas": product_of,
    "cufft": transform_of,
}
