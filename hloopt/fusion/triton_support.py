"""Which ops XLA's Triton emitter has, for which element types.

Sources: OpenXLA, xla/backends/gpu/codegen/triton/support.cc (Apache-2.0); what jaxlib 0.10.2 takes and refuses.
"""

from __future__ import annotations

from typing import Final

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.layout import is_effective_scalar
from hloopt.ir import Instruction
from hloopt.ops.traits import (
    BITWISE,
    CONTRACTING,
    EXTREMA,
    FOLDING,
    INDEXING,
    INTEGRAL,
    SIZES,
    TRANSCENDENTAL,
    VIEWS,
)
from hloopt.targets import Target
from hloopt.types import ArrayShape, Shape

__all__ = ["unsupported_by_triton", "unsupported_target"]

_NEVER: Final = (
    FOLDING - CONTRACTING - {"reduce"}
    | SIZES - {"get-dimension-size"}
    | INDEXING - {"dynamic-slice"}
    | {"ragged-dot", "scatter"}
)
_MOVES: Final = VIEWS - {"reverse"}

_F8: Final = frozenset({"f8e5m2", "f8e4m3fn"})
_FLOATS: Final = frozenset({"bf16", "f16", "f32", "f64"})
_SIGNED: Final = frozenset({"s8", "s16", "s32", "s64"})
_TYPES: Final = frozenset({"pred", "s4"}) | _SIGNED | _FLOATS | _F8

_ANY_FLOAT: Final = (
    TRANSCENDENTAL - {"logistic"}
    | INTEGRAL - {"round-nearest-afz", "sign"}
    | {"divide", "reduce-precision", "remainder"}
)
_BITWISE: Final = BITWISE - {"not"}
_ORDERED: Final = EXTREMA | {"add", "compare", "multiply"}
_ALL_TYPES: Final = frozenset({"abs", "copy"})
_TERNARY: Final = frozenset({"select", "clamp"})


def unsupported_by_triton(node: Instruction, target: Target) -> str:
    """What Triton kernels do not have of an op or of a fusion's body, in words; empty where they have it all.

    Words are to follow "Triton kernels have no".
    """
    if node.opcode == "fusion":
        return next((words for entry in node.calls if (words := _op(entry, target))), "")
    return _op(node, target)


def unsupported_target(target: Target) -> str:
    """Why a device runs no Triton kernels, in words; empty where it does."""
    if target.kind == "cuda":
        return "" if target.capability >= (8, 0) else f"code for {target.title}"
    return "" if target.kind == "rocm" else f"code for {target.title}"


def _op(node: Instruction, target: Target) -> str:
    opcode = node.opcode
    if opcode in _NEVER:
        return opcode
    if opcode == "convert":
        return _conversion(node, target)
    for shape in (node.shape, *(operand.shape for operand in node.operands)):
        if not _has_type(shape, target):
            return f"{opcode} with {shape}"
    dtype = node.array.dtype.name
    if opcode == "constant":
        fits = is_effective_scalar(node.shape) and dtype != "s4"
        return "" if fits else f"constants like {node.shape}"
    if opcode == "iota":
        return f"iota of {dtype}" if dtype in _F8 or dtype == "s4" else ""
    if opcode == "parameter":
        return ""
    if opcode == "reduce":
        return _reduce(node, target)
    if opcode in _MOVES:
        return _move(node)
    if is_elementwise(node):
        # The last operand is what compare and select are about.
        about = node.operands[-1].array.dtype.name
        return "" if opcode in _elementwise(about) else f"{opcode} of {about}"
    return opcode


def _has_type(shape: Shape, target: Target) -> bool:
    if not isinstance(shape, ArrayShape):
        return False
    return shape.dtype.name in _TYPES and (shape.dtype.name not in _F8 or target.kind == "cuda")


def _conversion(node: Instruction, target: Target) -> str:
    source, result = node.operands[0].shape, node.shape
    shown = f"conversion from {source} to {result}"
    if not (_has_type(source, target) and _has_type(result, target)):
        return shown
    before, after = node.operands[0].array.dtype.name, node.array.dtype.name
    pair = {before, after}
    if before == after:
        return shown if after == "s4" else ""
    is_old = target.kind == "cuda" and target.capability < (9, 0)
    narrow = pair & _F8
    if "f8e4m3fn" in pair and is_old:
        return shown
    if narrow and narrow != pair and not pair & {"f16", "bf16", "f32"}:
        return shown
    if before == "s4" and after not in {"s8", *_FLOATS}:
        return shown
    return shown if after == "s4" else ""


def _reduce(node: Instruction, target: Target) -> str:
    if node.array.dtype.name in _F8:
        return f"reduce of {node.array.dtype.name}"
    reducer = node.to_apply
    missing = next((words for entry in reducer if (words := _op(entry, target))), "")
    if missing:
        return f"reduce with {missing}"
    if len(node.dimensions) != 1:
        return "reduce of several dimensions"
    return "" if len(node.operands) == 2 else "reduce of several operands"


def _move(node: Instruction) -> str:
    if node.array.dtype.name == "s4":
        return f"{node.opcode} of s4"
    is_other = node.opcode == "bitcast" and node.array.elements != node.operands[0].array.elements
    return "bitcast to another number of elements" if is_other else ""


def _elementwise(dtype: str) -> frozenset[str]:
    """The elementwise ops there are for an element type."""
    if dtype == "pred":
        return frozenset({"not", "copy"}) | _ORDERED | _BITWISE | _TERNARY
    if dtype == "s4":
        return frozenset()
    if dtype in _F8:
        return _ALL_TYPES | {"reduce-precision", "select"}
    found = _ALL_TYPES | {"negate", "subtract"} | _ORDERED | _TERNARY
    if dtype in _SIGNED:
        return found | _BITWISE | {"not", "divide", "remainder"}
    return found | _ANY_FLOAT
