"""Products and transforms for the libraries, on the stand-in and on a real GPU alike."""

from __future__ import annotations

import numpy as np

import hloopt
from hloopt.backends.cuda import CudaDevice
from hloopt.ir import Instruction
from hloopt.runtime.device import Pointer
from hloopt.types import ArrayShape, leaves

__all__ = [
    "DOTS",
    "FFTS",
    "dot_text",
    "drawn",
    "fft_operand",
    "fft_text",
    "on_device",
    "read",
    "root",
]

DOTS = {
    "plain": "f32[3,4]{1,0} a, f32[4,5]{1,0} b -> f32[3,5]{1,0} contract 1 0",
    "both transposed": "f32[4,3]{1,0} a, f32[5,4]{1,0} b -> f32[3,5]{1,0} contract 0 1",
    "column-major": "f32[3,4]{0,1} a, f32[4,5]{1,0} b -> f32[3,5]{0,1} contract 1 0",
    "mixed layouts": "f32[3,4]{0,1} a, f32[4,5]{0,1} b -> f32[3,5]{1,0} contract 1 0",
    "matrix and vector": "f32[3,4]{1,0} a, f32[4]{0} b -> f32[3]{0} contract 1 0",
    "vector and matrix": "f32[4]{0} a, f32[4,3]{1,0} b -> f32[3]{0} contract 0 0",
    "two vectors": "f32[7]{0} a, f32[7]{0} b -> f32[] contract 0 0",
    "outer": "f32[3]{0} a, f32[4]{0} b -> f32[3,4]{1,0} contract - -",
    "several dimensions each": "f32[2,3,4,5]{3,2,1,0} a, f32[4,5,6,7]{3,2,1,0} b -> f32[2,3,6,7]{3,2,1,0} contract 2,3 0,1",
    "batch": "f32[6,3,4]{2,1,0} a, f32[6,4,5]{2,1,0} b -> f32[6,3,5]{2,1,0} contract 2 1 batch 0 0",
    "two batch dimensions that are one": "f32[2,3,4,5]{3,2,1,0} a, f32[2,3,5,6]{3,2,1,0} b -> f32[2,3,4,6]{3,2,1,0} contract 3 2 batch 0,1 0,1",
    "batch inside (attention)": "f32[2,5,3,4]{3,2,1,0} a, f32[2,6,3,4]{3,2,1,0} b -> f32[2,3,5,6]{3,2,1,0} contract 3 3 batch 0,2 0,2",
    "rows that are two": "f32[3,4,5]{2,0,1} a, f32[5,6]{1,0} b -> f32[3,4,6]{2,1,0} contract 2 0",
    "dimensions of one": "f32[1,4,1]{2,1,0} a, f32[4,5]{1,0} b -> f32[1,1,5]{2,1,0} contract 1 0",
    "batch of one": "f32[1,3,4]{2,1,0} a, f32[1,4,5]{2,1,0} b -> f32[1,3,5]{2,1,0} contract 2 1 batch 0 0",
    "nothing to sum": "f32[3,0]{1,0} a, f32[0,5]{1,0} b -> f32[3,5]{1,0} contract 1 0",
    "no result": "f32[0,4]{1,0} a, f32[4,5]{1,0} b -> f32[0,5]{1,0} contract 1 0",
    "f64": "f64[3,4]{1,0} a, f64[4,5]{1,0} b -> f64[3,5]{1,0} contract 1 0",
    "f16": "f16[3,4]{1,0} a, f16[4,5]{1,0} b -> f16[3,5]{1,0} contract 1 0",
    "bf16 to f32": "bf16[3,4]{1,0} a, bf16[4,5]{1,0} b -> f32[3,5]{1,0} contract 1 0",
    "bf16": "bf16[3,4]{1,0} a, bf16[4,5]{1,0} b -> bf16[3,5]{1,0} contract 1 0",
    "c64": "c64[3,4]{1,0} a, c64[4,5]{1,0} b -> c64[3,5]{1,0} contract 1 0",
    "c128": "c128[3,4]{1,0} a, c128[4,5]{1,0} b -> c128[3,5]{1,0} contract 1 0",
    "s8": "s8[3,4]{1,0} a, s8[4,8]{1,0} b -> s32[3,8]{1,0} contract 1 0",
}


def dot_text(case: str, attributes: str = "") -> str:
    """A module of one dot: ``LHS a, RHS b -> RESULT contract L R [batch L R]``."""
    operands, _, rest = case.partition(" -> ")
    lhs, rhs = (operand.split()[0] for operand in operands.split(", "))
    result, *words = rest.split()
    numbers = dict(zip(("lhs_contracting", "rhs_contracting"), words[1:3], strict=True))
    if "batch" in words:
        numbers |= dict(zip(("lhs_batch", "rhs_batch"), words[4:6], strict=True))
    dims = "".join(
        f", {name}_dims={{{value if value != '-' else ''}}}" for name, value in numbers.items()
    )
    return f"""HloModule m
ENTRY e {{
  a = {lhs} parameter(0)
  b = {rhs} parameter(1)
  ROOT r = {result} dot(a, b){dims}{attributes}
}}
"""


def root(text: str) -> Instruction:
    """The instruction the entry is about."""
    return hloopt.parse(text).entry.root


def drawn(shape: ArrayShape, rng: np.random.Generator) -> np.ndarray:
    """Small whole numbers: every order of summation gives the same."""
    values = rng.integers(-4, 5, shape.dims)
    if shape.dtype.is_complex:
        values = values + 1j * rng.integers(-4, 5, shape.dims)
    return values.astype(shape.dtype.numpy)


def laid_out(array: np.ndarray, shape: ArrayShape) -> np.ndarray:
    """In the order of the layout."""
    order = (
        tuple(reversed(shape.layout.minor_to_major)) if shape.layout else tuple(range(array.ndim))
    )
    return np.ascontiguousarray(array.transpose(order))


def read(data: np.ndarray, shape: ArrayShape) -> np.ndarray:
    """From the order of the layout."""
    order = (
        tuple(reversed(shape.layout.minor_to_major)) if shape.layout else tuple(range(shape.rank))
    )
    array = data.view(shape.dtype.numpy).reshape([shape.dims[dim] for dim in order])
    return array.transpose(np.argsort(order).astype(int))


def on_device(
    device: CudaDevice,
    library: str,
    instruction: Instruction,
    arrays: list[np.ndarray],
    times: int = 1,
) -> np.ndarray:
    """The library's first result."""
    operands = []
    for operand, array in zip(instruction.operands, arrays, strict=True):
        number = device.allocate(operand.array.byte_size + 256)
        operands.append(Pointer(number, 256, operand.array.byte_size))
        device.upload(operands[-1], laid_out(array, operand.array))
    results = []
    for leaf in leaves(instruction.shape):
        assert isinstance(leaf, ArrayShape)
        results.append(Pointer(device.allocate(leaf.byte_size), 0, leaf.byte_size))
    for _ in range(times):
        device.library(library, instruction, operands, results)
    first = next(iter(leaves(instruction.shape)))
    assert isinstance(first, ArrayShape)
    return read(device.download(results[0]), first)


FFTS = {
    "FFT": ("c64[3,8]", "c64[3,8]", "8"),
    "IFFT": ("c64[3,4,8]", "c64[3,4,8]", "4,8"),
    "RFFT": ("f32[2,3,9]", "c64[2,3,5]", "9"),
    "IRFFT": ("c64[2,4,5]", "f32[2,4,8]", "4,8"),
}


def fft_text(kind: str, wide: bool) -> str:
    source, target, lengths = FFTS[kind]
    text = f"""HloModule m
ENTRY e {{
  a = {source} parameter(0)
  ROOT r = {target} fft(a), fft_type={kind}, fft_length={{{lengths}}}
}}
"""
    return text.replace("c64", "c128").replace("f32", "f64") if wide else text


def fft_operand(instruction: Instruction, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers; for an inverse transform to real numbers what a real signal has."""
    shape = instruction.operands[0].array
    if instruction.attributes["fft_type"] != "IRFFT":
        return drawn(shape, rng)
    lengths = tuple(instruction.attributes["fft_length"])
    axes = tuple(range(-len(lengths), 0))
    return np.fft.rfftn(drawn(instruction.array, rng), axes=axes).astype(shape.dtype.numpy)
