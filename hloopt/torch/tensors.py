"""Tensors of PyTorch as arrays and back, without copies where torch and NumPy agree on the memory."""

from __future__ import annotations

from typing import Any, Final

import torch

from hloopt.errors import UnsupportedError
from hloopt.types import DTYPES, Array, in_numpy

__all__ = ["array_of", "shape_of", "tensor_of"]

_NAMES: Final = {
    torch.bool: "pred",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.int8: "s8",
    torch.int16: "s16",
    torch.int32: "s32",
    torch.int64: "s64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e4m3fnuz: "f8e4m3fnuz",
    torch.float8_e5m2fnuz: "f8e5m2fnuz",
}
_VIEWS: Final = {1: torch.uint8, 2: torch.int16}
_OF_NUMPY: Final = {DTYPES[name].numpy: kind for kind, name in _NAMES.items()}


def shape_of(tensor: Any) -> str:
    """The shape as HLO writes it.  Raises ``UnsupportedError`` for an element type that HLO lacks."""
    name = _NAMES.get(tensor.dtype)
    if name is None:
        raise UnsupportedError(f"HLO has no element type for {tensor.dtype}", name="<torch>")
    return f"{name}[{','.join(map(str, tensor.shape))}]"


def array_of(tensor: Any) -> Array:
    """A tensor's values, in its own memory where that is the CPU's and without gaps.

    Raises ``UnsupportedError`` for an element type that HLO lacks.
    """
    shape_of(tensor)
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    kind = DTYPES[_NAMES[tensor.dtype]].numpy
    if not in_numpy(kind):  # torch gives NumPy no type that NumPy itself lacks
        plain = plain.view(_VIEWS[kind.itemsize])
    found: Array = plain.numpy()
    return found.view(kind)


def tensor_of(array: Array) -> Any:
    """A tensor in the memory of an array."""
    kind = _OF_NUMPY[array.dtype]
    if not in_numpy(array.dtype):
        plain = array.view("u1" if array.dtype.itemsize == 1 else "i2")
        return torch.from_numpy(plain).view(kind)
    return torch.from_numpy(array)
