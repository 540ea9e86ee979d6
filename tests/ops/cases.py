"""Inference cases, one row each: opcode, operand shapes, attributes, called signatures, result.

``GOOD`` rows give the inferred shape, ``BAD`` rows the pinned message.  Shapes stand without blanks
inside, so that a list of them is split at blanks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hloopt.ops import OPS, InferArgs, Signature
from hloopt.text.grammar import read
from hloopt.types import (
    ConvDims,
    IotaList,
    Literal,
    PaddingDim,
    Shape,
    SliceRange,
    Text,
    Verbatim,
    Window,
    WindowDim,
    array,
)


def shape(text: str) -> Shape:
    found: Shape = read("shape", text)
    return found


def shapes(text: str) -> tuple[Shape, ...]:
    return tuple(shape(part) for part in text.split())


def signature(text: str) -> Signature:
    """``f32[] f32[] -> f32[]``."""
    parameters, result = text.split("->")
    return Signature(shapes(parameters), shape(result.strip()))


@dataclass(frozen=True)
class Case:
    opcode: str
    operands: str = ""
    result: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    declared: str = ""
    message: str = ""

    def infer(self, declared: Shape | None = None) -> Shape:
        calls = {
            name: tuple(signature(part) for part in text.split(";"))
            for name, text in self.calls.items()
        }
        if declared is None and self.declared:
            declared = shape(self.declared)
        args = InferArgs(self.opcode, shapes(self.operands), self.attributes, calls, declared)
        return OPS[self.opcode].infer(args)

    @property
    def label(self) -> str:
        extra = ",".join(f"{name}={value}" for name, value in self.attributes.items())[:60]
        return f"{self.opcode}({self.operands[:60]}){extra}"


def good(opcode: str, operands: str, result: str, declared: str = "", /, **attributes: Any) -> Case:
    calls = {name: text for name, text in attributes.items() if _is_call(text)}
    rest = {name: value for name, value in attributes.items() if name not in calls}
    return Case(opcode, operands, result, rest, calls, declared)


def bad(opcode: str, operands: str, message: str, declared: str = "", /, **attributes: Any) -> Case:
    calls = {name: text for name, text in attributes.items() if _is_call(text)}
    rest = {name: value for name, value in attributes.items() if name not in calls}
    return Case(opcode, operands, "", rest, calls, declared, f"{opcode}: {message}")


def _is_call(value: Any) -> bool:
    return isinstance(value, str) and "->" in value


def pad(*dims: tuple[int, ...]) -> tuple[PaddingDim, ...]:
    return tuple(PaddingDim(*dim) for dim in dims)


def ranges(*dims: tuple[int, ...]) -> tuple[SliceRange, ...]:
    return tuple(SliceRange(*dim) for dim in dims)


def window(*dims: WindowDim) -> Window:
    return Window(dims)


def labels(text: str) -> ConvDims:
    found: ConvDims = read("conv_dims", text)
    return found


ADD = "f32[] f32[] -> f32[]"
LESS = "f32[] f32[] -> pred[]"
GROUPS = {"replica_groups": ((0, 1), (2, 3))}
GATHER = {
    "offset_dims": (1,),
    "collapsed_slice_dims": (0,),
    "start_index_map": (0,),
    "index_vector_dim": 1,
    "slice_sizes": (1, 5),
}
SCATTER: dict[str, Any] = {
    "update_window_dims": (1,),
    "inserted_window_dims": (0,),
    "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 1,
    "to_apply": ADD,
}
MATMUL = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
SCAN = "f32[3] f32[3] -> (f32[3],f32[3])"
NORM = {"epsilon": 0.1, "feature_index": 1}

_UNARY = {
    "cbrt ceil floor round-nearest-afz round-nearest-even erf": "bf16",
    "acos acosh asin asinh atanh cosine cosh exponential exponential-minus-one log": "c64",
    "log-plus-one logistic rsqrt sine sinh sqrt tan tanh": "f64",
    "negate sign": "s4",
    "not": "pred",
    "popcnt count-leading-zeros": "u8",
    "copy": "token",
}
_BINARY = {
    "add multiply maximum minimum and or xor": "pred",
    "subtract divide power remainder shift-left shift-right-arithmetic shift-right-logical": "s32",
    "mulhi": "u64",
    "atan2": "f32",
}
_NOT_FOR = {
    "subtract divide negate sign abs": "pred",
    "maximum minimum remainder": "c64",
    "mulhi shift-left shift-right-arithmetic shift-right-logical popcnt count-leading-zeros": "f32",
    "and or xor not": "f32",
    "cbrt ceil floor round-nearest-afz round-nearest-even erf is-finite reduce-precision": "c64",
    "acos acosh asin asinh atan2 atanh cosine cosh exponential exponential-minus-one": "s32",
    "log log-plus-one logistic rsqrt sine sinh sqrt tan tanh real imag": "u8",
    "power": "pred",
}
_TAKES = {
    ("signed", "unsigned", "float", "complex"): "subtract divide negate power",
    ("signed", "float", "complex"): "sign abs",
    ("pred", "signed", "unsigned", "float"): "maximum minimum",
    ("signed", "unsigned", "float"): "remainder",
    (
        "signed",
        "unsigned",
    ): "mulhi shift-left shift-right-arithmetic shift-right-logical popcnt count-leading-zeros",
    ("pred", "signed", "unsigned"): "and or xor not",
    (
        "float",
    ): "cbrt ceil floor round-nearest-afz round-nearest-even erf is-finite reduce-precision",
}


def _kinds(opcode: str) -> str:
    for kinds, opcodes in _TAKES.items():
        if opcode in opcodes.split():
            return " or ".join(kinds)
    return "float or complex"


def _elementwise() -> list[Case]:
    rows = []
    for opcodes, element in _UNARY.items():
        for opcode in opcodes.split():
            one = f"{element}[]" if element == "token" else f"{element}[2,3]{{0,1}}"
            rows.append(good(opcode, one, one))
    for opcodes, element in _BINARY.items():
        for opcode in opcodes.split():
            both = f"{element}[2,3]{{0,1}} {element}[2,3]{{1,0}}"
            rows.append(good(opcode, both, f"{element}[2,3]{{0,1}}"))
    for opcodes, element in _NOT_FOR.items():
        for opcode in opcodes.split():
            arity = OPS[opcode].arity[0]
            message = f"operand 0 has element type {element}, the op takes {_kinds(opcode)}"
            rows.append(bad(opcode, " ".join([f"{element}[2]"] * arity), message))
    return rows


# One row a line reads as a table.
# fmt: off
GOOD_ELEMENTWISE = [
    *(case for case in _elementwise() if not case.message),
    good("add", "f32[<=4] f32[4]", "f32[<=4]"),
    good("add", "f32[2]{0} f32[2]{0}", "f32[2]{0:S(1)}", "f32[2]{0:S(1)}"),
    good("abs", "c64[2]{0}", "f32[2]{0}"),
    good("abs", "s8[2]{0}", "s8[2]{0}"),
    good("real", "c128[2]{0}", "f64[2]{0}"),
    good("real", "f32[2]{0}", "f32[2]{0}"),
    good("imag", "c64[2]{0}", "f32[2]{0}"),
    good("is-finite", "f8e5m2[2]{0}", "pred[2]{0}"),
    good("complex", "f32[2]{0} f32[2]{0}", "c64[2]{0}"),
    good("compare", "c64[2]{0} c64[2]{0}", "pred[2]{0}", direction="NE"),
    good("compare", "f32[2]{0} f32[2]{0}", "pred[2]{0}", direction="LT", type="TOTALORDER"),
    good("select", "pred[] f32[2]{0} f32[2]{0}", "f32[2]{0}"),
    good("select", "pred[2]{0} f32[2]{0} f32[2]{0}", "f32[2]{0}"),
    good("clamp", "f32[] f32[2]{0} f32[2]{0}", "f32[2]{0}"),
    good("convert", "f32[2,3]{0,1}", "s8[2,3]{0,1}", "s8[2,3]{0,1}"),
    good("reduce-precision", "f32[2]{0}", "f32[2]{0}", exponent_bits=5, mantissa_bits=10),
    good("stochastic-convert", "bf16[2]{0} u16[2]{0}", "s8[2]{0}", "s8[2]{0}"),
]

BAD_ELEMENTWISE = [
    *(case for case in _elementwise() if case.message),
    bad("add", "f32[2] f32[3]", "operand 1 has dimensions [3], operand 0 has [2]; they must be equal"),
    bad("add", "f32[2] f32[]", "operand 1 has dimensions [], operand 0 has [2]; they must be equal"),
    bad("multiply", "f32[2] bf16[2]", "operand 1 has element type bf16, operand 0 has f32; they must be equal"),
    bad("add", "(f32[2]) f32[2]", "operand 0 has shape (f32[2]), which is not an array"),
    bad("add", "token[] token[]", "operand 0 has shape token[], which is not an array"),
    bad("complex", "f16[2] f16[2]", "the parts have element type f16, not f32 or f64"),
    bad("compare", "c64[2] c64[2]", "direction=GT does not apply to c64", direction="GT"),
    bad("compare", "s32[2] s32[2]", "type=UNSIGNED does not apply to s32", direction="GT", type="UNSIGNED"),
    bad("compare", "s32[2] s32[2]", "attribute direction= is missing"),
    bad("select", "s32[] f32[2] f32[2]", "operand 0 has element type s32, not pred"),
    bad("select", "pred[3] f32[2] f32[2]", "the predicate has dimensions [3], the values [2]; they must be equal, or the predicate a scalar"),
    bad("select", "pred[2] f32[2] s32[2]", "the values have shapes f32[2] and s32[2]; they must be equal"),
    bad("clamp", "f32[3] f32[2] f32[]", "the lower bound has shape f32[3], neither a scalar nor f32[2]"),
    bad("clamp", "f32[] f32[2] s32[]", "the upper bound has element type s32, the operand f32; they must be equal"),
    bad("convert", "c64[2]", "c64 does not convert to f32; take real or imag", "f32[2]"),
    bad("convert", "f32[2]", "the result shape must be written, it cannot be inferred"),
    bad("reduce-precision", "f32[2]", "exponent_bits=0 must be at least 1", exponent_bits=0, mantissa_bits=3),
    bad("stochastic-convert", "f32[2] u16[2]", "the random operand has element type u16, not unsigned with 32 bits", "s8[2]"),
    bad("stochastic-convert", "f32[2] u32[2]", "the result has element type u8, not a signed integer", "u8[2]"),
]

GOOD_MOVEMENT = [
    good("bitcast", "f32[2,3]{0,1}", "s16[12]{0}", "s16[12]{0}"),
    good("bitcast", "s4[3]{0}", "s4[3]{0:E(4)}", "s4[3]{0:E(4)}"),
    good("bitcast-convert", "f32[2]{0}", "u8[2,4]{1,0}", "u8[2,4]{1,0}"),
    good("bitcast-convert", "u8[2,4]{1,0}", "f32[2]{0}", "f32[2]{0}"),
    good("bitcast-convert", "f32[2]{0}", "s32[2]{0}", "s32[2]{0}"),
    good("broadcast", "f32[2,3]", "f32[3,5,2]{2,1,0}", "f32[3,5,2]{2,1,0}", dimensions=(2, 0)),
    good("broadcast", "f32[]", "f32[4]{0}", "f32[4]{0}"),
    good("concatenate", "f32[2,3] f32[2,5] f32[2,0]", "f32[2,8]{1,0}", dimensions=(1,)),
    good("concatenate", "f32[<=2] f32[3]", "f32[<=5]{0}", dimensions=(0,)),
    good("dynamic-reshape", "f32[<=6] s32[] s32[]", "f32[2,<=3]{1,0}", "f32[2,<=3]{1,0}"),
    good("pad", "f32[4,3] f32[]", "f32[10,1]{1,0}", padding=pad((1, 2, 1), (-1, -1, 0))),
    good("pad", "f32[0] f32[]", "f32[3]{0}", padding=pad((1, 2, 5))),
    good("reshape", "f32[2,6]", "f32[3,4]{1,0}", "f32[3,4]{1,0}"),
    good("reverse", "f32[2,3]", "f32[2,3]{1,0}", dimensions=(1,)),
    good("transpose", "f32[2,3,4]", "f32[4,2,3]{2,1,0}", dimensions=(2, 0, 1)),
    good("transpose", "f32[2,<=3]", "f32[<=3,2]{1,0}", dimensions=(1, 0)),
]

BAD_MOVEMENT = [
    bad("bitcast", "f32[2]{0}", "operand f32[2]{0} has 8 bytes, result s16[3]{0} has 6; they must be equal", "s16[3]{0}"),
    bad("bitcast-convert", "u8[2,3]", "the last dimension of u8[2,3] must be 4 to make f32", "f32[2]"),
    bad("bitcast-convert", "f32[2]", "the result shape is (f32[2]), which is not an array", "(f32[2])"),
    bad("broadcast", "f32[2]", "operand dimension 0 has size 2, result dimension 1 has size 3; they must be equal", "f32[2,3]", dimensions=(1,)),
    bad("broadcast", "f32[2]", "dimensions={} must have one entry per dimension of operand f32[2]", "f32[2]"),
    bad("broadcast", "f32[2]", "dimensions={2}: 2 is not a dimension of rank 2", "f32[2,2]", dimensions=(2,)),
    bad("broadcast", "f32[2,2]", "dimensions={0,0} names a dimension twice", "f32[2,2]", dimensions=(0, 0)),
    bad("concatenate", "f32[2,3] f32[3,3]", "operand 1 has dimensions [3, 3], operand 0 has [2, 3]; they may differ in dimension 1 only", dimensions=(1,)),
    bad("concatenate", "f32[2] f32[2]", "dimensions={0,1} must name one dimension", dimensions=(0, 1)),
    bad("dynamic-reshape", "f32[6] s32[]", "1 sizes are given for rank 2", "f32[2,3]"),
    bad("dynamic-reshape", "f32[6] f32[]", "size 0 has shape f32[], not s32[]", "f32[6]"),
    bad("pad", "f32[2] f32[]", "padding has 2 entries for rank 1", padding=pad((0, 0), (0, 0))),
    bad("pad", "f32[2] f32[]", "padding makes dimension 0 of size 2 negative: -1", padding=pad((-3, 0))),
    bad("pad", "f32[2] f32[]", "interior padding -1 of dimension 0 is negative", padding=pad((0, 0, -1))),
    bad("pad", "f32[2] f32[1]", "the padding value has shape f32[1], not a scalar", padding=pad((0, 0))),
    bad("pad", "f32[2] s32[]", "operand 1 has element type s32, operand 0 has f32; they must be equal", padding=pad((0, 0))),
    bad("reshape", "f32[2,6]", "operand f32[2,6] has 12 elements, result f32[3] has 3; they must be equal", "f32[3]"),
    bad("reverse", "f32[2]", "dimensions={1}: 1 is not a dimension of rank 1", dimensions=(1,)),
    bad("transpose", "f32[2,3]", "dimensions={0,0} is not a permutation of rank 2", dimensions=(0, 0)),
    bad("transpose", "f32[2,3]", "attribute dimensions= is missing"),
]

GOOD_INDEXING = [
    good("slice", "f32[5,6]", "f32[2,6]{1,0}", slice=ranges((0, 4, 2), (0, 6))),
    good("slice", "f32[5]", "f32[0]{0}", slice=ranges((3, 3))),
    good("dynamic-slice", "f32[5,6] s32[] s32[]", "f32[2,6]{1,0}", dynamic_slice_sizes=(2, 6)),
    good("dynamic-slice", "f32[5,6] s32[2]", "f32[2,6]{1,0}", dynamic_slice_sizes=(2, 6)),
    good("dynamic-update-slice", "f32[5,6] f32[2,6] u8[] u8[]", "f32[5,6]{1,0}"),
    good("gather", "f32[9,5] s32[4,1]", "f32[4,5]{1,0}", **GATHER),
    good("gather", "f32[9,5] s32[4]", "f32[4,5]{1,0}", **GATHER),
    good("gather", "f32[3,9,5] s64[3,4,1]", "f32[3,4,5]{2,1,0}", offset_dims=(2,), collapsed_slice_dims=(1,), start_index_map=(1,), operand_batching_dims=(0,), start_indices_batching_dims=(0,), index_vector_dim=2, slice_sizes=(1, 1, 5)),
    good("scatter", "f32[9,5] s32[4,1] f32[4,5]", "f32[9,5]", **SCATTER),
    good("scatter", "f32[9,5] s8[9,5] s32[4,1] f32[4,5] s8[4,5]", "(f32[9,5],s8[9,5])", **{**SCATTER, "to_apply": "f32[] s8[] f32[] s8[] -> (f32[],s8[])"}),
    good("get-dimension-size", "f32[<=4]", "s32[]", dimensions=(0,)),
    good("set-dimension-size", "f32[4,3] s32[]", "f32[4,<=3]", dimensions=(1,)),
]

BAD_INDEXING = [
    bad("slice", "f32[5]", "[0:6:1] of dimension 0: the limit is above the size 5", slice=ranges((0, 6))),
    bad("slice", "f32[5]", "[4:3:1] of dimension 0: the start must be in [0, 3]", slice=ranges((4, 3))),
    bad("slice", "f32[5]", "[0:3:0] of dimension 0: the stride must be positive", slice=ranges((0, 3, 0))),
    bad("slice", "f32[5]", "slice has 0 entries for rank 1", slice=()),
    bad("dynamic-slice", "f32[5] s32[]", "dynamic_slice_sizes={6}: 6 is not in [0, 5], the size of dimension 0", dynamic_slice_sizes=(6,)),
    bad("dynamic-slice", "f32[5,5] s32[]", "1 start indices are given for rank 2", dynamic_slice_sizes=(1, 1)),
    bad("dynamic-slice", "f32[5] f32[]", "start index 0 has type f32, not an integer", dynamic_slice_sizes=(1,)),
    bad("dynamic-update-slice", "f32[5] f32[6] s32[]", "dimension 0 of the update has size 6, the operand only 5"),
    bad("dynamic-update-slice", "f32[5] s32[2] s32[]", "operand 1 has element type s32, operand 0 has f32; they must be equal"),
    bad("gather", "f32[9,5] f32[4,1]", "indices have type f32, not an integer", **GATHER),
    bad("gather", "f32[9,5] s32[4,2]", "start_index_map={0} must have 2 entries, the size of the indices' dimension 1", **GATHER),
    bad("gather", "f32[9,5] s32[4,1]", "slice size 6 of dimension 1 is not in [0, 5]", **{**GATHER, "slice_sizes": (1, 6)}),
    bad("gather", "f32[9,5] s32[4,1]", "collapsed_slice_dims={0}: dimension 0 has slice size 2, not 1", **{**GATHER, "slice_sizes": (2, 5)}),
    bad("gather", "f32[9,5] s32[4,1]", "index_vector_dim=3 is not in [0, 2]", **{**GATHER, "index_vector_dim": 3}),
    bad("gather", "f32[9,5] s32[4,1]", "offset_dims={} must have 1 entries, one for each dimension that is neither collapsed nor batching", **{**GATHER, "offset_dims": ()}),
    bad("scatter", "f32[9,5] s32[4,1]", "2 operands are not n inputs, indices, n updates", **SCATTER),
    bad("scatter", "f32[9,5] s32[4,1] f32[3,5]", "the update's scatter dimensions have sizes [3], the indices give [4]", **SCATTER),
    bad("scatter", "f32[9,5] s32[4,1] f32[4,6]", "update dimension 1 has size 6, input dimension 1 only 5", **SCATTER),
    bad("scatter", "f32[9,5] s32[4,1] s32[4,5]", "update 0 has element type s32, its input has f32; they must be equal", **SCATTER),
    bad("scatter", "f32[9,5] s32[4,1] f32[4,5]", "to_apply= takes 1 parameters, 2 are passed", **{**SCATTER, "to_apply": "f32[] -> f32[]"}),
    bad("get-dimension-size", "f32[4]", "dimensions={1}: 1 is not a dimension of rank 1", dimensions=(1,)),
    bad("set-dimension-size", "f32[4] s64[]", "the size has shape s64[], not s32[]", dimensions=(0,)),
]

W2 = window(WindowDim(2, stride=2))

GOOD_REDUCTION = [
    good("map", "f32[2,3] s32[2,3]", "pred[2,3]{1,0}", to_apply="f32[] s32[] -> pred[]", dimensions=(0, 1)),
    good("reduce", "f32[2,3,4] f32[]", "f32[3]{0}", dimensions=(0, 2), to_apply=ADD),
    good("reduce", "bf16[2,3] bf16[]", "bf16[2]{0}", dimensions=(1,), to_apply="bf16[] bf16[] -> bf16[]"),
    good("reduce", "f32[4,2] s32[4,2] f32[] s32[]", "(f32[2]{0},s32[2]{0})", dimensions=(0,), to_apply="f32[] s32[] f32[] s32[] -> (f32[],s32[])"),
    good("reduce", "f32[<=4,2] f32[]", "f32[<=4]{0}", dimensions=(1,), to_apply=ADD),
    good("scan", "f32[5,3] f32[3]", "(f32[5,3]{1,0},f32[3])", dimensions=(0,), num_carries=1, to_apply=SCAN),
    good("reduce-window", "f32[7] f32[]", "f32[3]{0}", window=W2, to_apply=ADD),
    good("reduce-window", "f32[5,7] f32[]", "f32[5,7]{1,0}", to_apply=ADD),
    good("reduce-window", "f32[4] s32[4] f32[] s32[]", "(f32[5]{0},s32[5]{0})", window=window(WindowDim(3, pad_low=1, pad_high=1, base_dilation=2, window_dilation=2)), to_apply="f32[] s32[] f32[] s32[] -> (f32[],s32[])"),
    good("select-and-scatter", "f32[6] f32[3] f32[]", "f32[6]", window=W2, select=LESS, scatter=ADD),
    good("batch-norm-training", "f32[2,3,4] f32[3] f32[3]", "(f32[2,3,4],f32[3]{0},f32[3]{0})", **NORM),
    good("batch-norm-inference", "f32[2,3,4] f32[3] f32[3] f32[3] f32[3]", "f32[2,3,4]", **NORM),
    good("batch-norm-grad", "f32[2,3,4] f32[3] f32[3] f32[3] f32[2,3,4]", "(f32[2,3,4],f32[3]{0},f32[3]{0})", **NORM),
    good("sort", "f32[2,3]", "f32[2,3]", dimensions=(1,), to_apply=LESS),
    good("sort", "f32[3] s32[3]", "(f32[3],s32[3])", dimensions=(0,), to_apply="f32[] f32[] s32[] s32[] -> pred[]"),
    good("topk", "f32[2,9]", "(f32[2,4]{1,0},s32[2,4]{1,0})", k=4, largest=True),
]

BAD_REDUCTION = [
    bad("map", "f32[2] f32[3]", "operand 1 has dimensions [3], operand 0 has [2]; they must be equal", to_apply=ADD),
    bad("map", "f32[2]", "to_apply= takes 2 parameters, 1 are passed", to_apply=ADD),
    bad("map", "f32[2,3] f32[2,3]", "dimensions={0} must list all 2 dimensions", to_apply=ADD, dimensions=(0,)),
    bad("reduce", "f32[2] f32[]", "dimensions={1}: 1 is not a dimension of rank 1", dimensions=(1,), to_apply=ADD),
    bad("reduce", "f32[2] f32[1]", "initial value 0 has shape f32[1], not a scalar", dimensions=(0,), to_apply=ADD),
    bad("reduce", "f32[2] f32[]", "to_apply=: parameter 0 has shape s32[], f32[] is passed", dimensions=(0,), to_apply="s32[] f32[] -> f32[]"),
    bad("reduce", "f32[2] f32[]", "to_apply= returns s32[], the accumulators are f32[]", dimensions=(0,), to_apply="f32[] f32[] -> s32[]"),
    bad("reduce", "f32[2] f32[]", "to_apply= returns f32[2], not scalars", dimensions=(0,), to_apply="f32[] f32[] -> f32[2]"),
    bad("reduce", "f32[2] f32[]", "attribute to_apply= must name one computation, not 0", dimensions=(0,)),
    bad("reduce", "f32[2] f32[] f32[]", "3 operands are not n inputs and n initial values", dimensions=(0,), to_apply=ADD),
    bad("scan", "f32[5,3] f32[3]", "to_apply= takes 1 parameters, 2 are passed", dimensions=(0,), num_carries=1, to_apply="f32[3] -> f32[3]"),
    bad("scan", "f32[5,3] f32[3]", "num_carries=3 is not in [0, 2]", dimensions=(0,), num_carries=3, to_apply=SCAN),
    bad("reduce-window", "f32[7] f32[]", "window has 2 dimensions, not 1", window=window(WindowDim(2), WindowDim(2)), to_apply=ADD),
    bad("reduce-window", "f32[7] f32[]", "window dimension 0: stride 0 must be positive", window=window(WindowDim(2, stride=0)), to_apply=ADD),
    bad("select-and-scatter", "f32[6] f32[4] f32[]", "the source has dimensions [4], the window gives [3]; they must be equal", window=W2, select=LESS, scatter=ADD),
    bad("select-and-scatter", "f32[6] f32[3] f32[]", "select= returns f32[], not pred[]", window=W2, select=ADD, scatter=ADD),
    bad("batch-norm-training", "f32[2,3] f32[4] f32[3]", "operand 1 has shape f32[4], not one element for each of 3", **NORM),
    bad("batch-norm-inference", "f32[2] f32[2] f32[2] f32[2] f32[2]", "feature_index=1 is not a dimension of rank 1", **NORM),
    bad("batch-norm-grad", "f32[2,3] f32[3] f32[3] f32[3] f32[3,2]", "the gradient has shape f32[3,2], the operand f32[2,3]", **NORM),
    bad("sort", "f32[3] s32[4]", "operand 1 has dimensions [4], operand 0 has [3]; they must be equal", dimensions=(0,), to_apply=LESS),
    bad("sort", "f32[3]", "to_apply= returns f32[], not pred[]", dimensions=(0,), to_apply=ADD),
    bad("sort", "f32[3]", "dimensions={0,1} must name one dimension", dimensions=(0, 1), to_apply=LESS),
    bad("topk", "f32[3]", "k=4 is not in [0, 3]", k=4, largest=True),
]

CONV = labels("b01f_01io->b01f")
CONV1 = labels("b0f_0io->b0f")

GOOD_LINEAR = [
    good("dot", "f32[2,3] f32[3,4]", "f32[2,4]{1,0}", **MATMUL),
    good("dot", "f32[5,2,3] f32[3,5,4]", "f32[5,2,4]{2,1,0}", lhs_batch_dims=(0,), rhs_batch_dims=(1,), lhs_contracting_dims=(2,), rhs_contracting_dims=(0,)),
    good("dot", "f32[2] f32[3]", "f32[2,3]{1,0}"),
    good("dot", "s8[2,3] s8[3,4]", "s32[2,4]{1,0}", "s32[2,4]{1,0}", **MATMUL),
    good("dot", "bf16[2,3] f32[3,4]", "f32[2,4]{1,0}", **MATMUL),
    good("ragged-dot", "f32[8,3] f32[2,3,4] s32[2]", "f32[8,4]{1,0}", lhs_contracting_dims=(1,), rhs_contracting_dims=(1,), lhs_ragged_dims=(0,), rhs_group_dims=(0,)),
    good("ragged-dot", "f32[8,3] f32[3,4] s32[2]", "f32[2,8,4]{2,1,0}", lhs_ragged_dims=(1,), **MATMUL),
    good("scaled-dot", "f32[2,64] bf16[4,64] f32[2,2] bf16[]", "f32[2,4]{1,0}", lhs_contracting_dims=(1,), rhs_contracting_dims=(1,)),
    good("convolution", "f32[2,8,9,3] f32[3,3,3,16]", "f32[2,4,7,16]{3,2,1,0}", dim_labels=CONV, window=window(WindowDim(3, stride=2, pad_low=1, pad_high=1), WindowDim(3))),
    good("convolution", "f32[4,6,8] f32[1,2,12]", "f32[4,6,12]{2,1,0}", dim_labels=CONV1, feature_group_count=4),
    good("convolution", "f32[4,6,8] f32[1,8,12]", "f32[2,6,12]{2,1,0}", dim_labels=CONV1, batch_group_count=2),
    good("fft", "c64[2,8]", "c64[2,8]{1,0}", fft_type="FFT", fft_length=(8,)),
    good("fft", "c64[2,8]", "c64[2,8]{1,0}", fft_type="IFFT", fft_length=(16,)),
    good("fft", "f32[2,8]", "c64[2,5]{1,0}", fft_type="RFFT", fft_length=(2, 8)),
    good("fft", "c128[5]", "f64[9]{0}", fft_type="IRFFT", fft_length=(9,)),
    good("fft", "f32[4,0]", "c64[4,0]{1,0}", fft_type="RFFT", fft_length=(0,)),
    good("fft", "c64[4,0]", "f32[4,0]{1,0}", fft_type="IRFFT", fft_length=(0,)),
    good("fft", "c64[3,1]", "f32[3,0]{1,0}", fft_type="IRFFT", fft_length=(3, 0)),
    good("cholesky", "f32[4,3,3]", "f32[4,3,3]"),
    good("triangular-solve", "f32[3,3] f32[3,5]", "f32[3,5]", left_side=True, transpose_a="NO_TRANSPOSE"),
    good("triangular-solve", "c64[2,3,3] c64[2,5,3]", "c64[2,5,3]", transpose_a="ADJOINT"),
]

BAD_LINEAR = [
    bad("dot", "f32[2,3] f32[4,4]", "contracting dimensions lhs 1 and rhs 0 have sizes 3 and 4; they must be equal", **MATMUL),
    bad("dot", "f32[2,3] f32[3,4]", "lhs_contracting_dims={1} and rhs_contracting_dims={} must be of equal length", lhs_contracting_dims=(1,)),
    bad("dot", "f32[2,3] f32[3,4]", "rhs_contracting_dims={5}: 5 is not a dimension of rank 2", lhs_contracting_dims=(1,), rhs_contracting_dims=(5,)),
    bad("dot", "f32[2,3] f32[3,4]", "lhs dimensions {1} are both batch and contracting", lhs_batch_dims=(1,), rhs_batch_dims=(0,), **MATMUL),
    bad("dot", "f32[2,3] s32[3,4]", "operands f32[2,3] and s32[3,4] have no common element type; the result shape must be written", **MATMUL),
    bad("ragged-dot", "f32[8,3] f32[2,3,4] s32[3]", "rhs dimension 0 has size 2, there are 3 groups", lhs_contracting_dims=(1,), rhs_contracting_dims=(1,), lhs_ragged_dims=(0,), rhs_group_dims=(0,)),
    bad("ragged-dot", "f32[8,3] f32[3,4] f32[3]", "the group sizes have shape f32[3], not an array of integers", lhs_ragged_dims=(0,), **MATMUL),
    bad("scaled-dot", "f32[2,64] f32[4,64] f32[2,3] f32[4,2]", "scale f32[2,3] does not divide f32[2,64] into blocks", lhs_contracting_dims=(1,), rhs_contracting_dims=(1,)),
    bad("convolution", "f32[4,6,8] f32[1,3,12]", "the input has 8 features, the kernel takes 3 in each of 1 groups", dim_labels=CONV1),
    bad("convolution", "f32[4,6,8] f32[3,8,12]", "window size 2 of spatial dimension 0 is not the kernel's 3", dim_labels=CONV1, window=window(WindowDim(2))),
    bad("convolution", "f32[4,6,8] f32[1,8,12]", "feature_group_count and batch_group_count cannot both be above 1", dim_labels=CONV1, feature_group_count=2, batch_group_count=2),
    bad("convolution", "f32[3,6,8] f32[1,8,12]", "a batch of 3 does not divide into 2 groups", dim_labels=CONV1, batch_group_count=2),
    bad("convolution", "f32[4,6] f32[1,8,12]", "dim_labels do not fit the input f32[4,6]", dim_labels=CONV1),
    bad("fft", "f32[8]", "FFT takes c64 or c128, not f32", fft_type="FFT", fft_length=(8,)),
    bad("fft", "c64[4,2]", "IRFFT with fft_length={0} takes innermost dimensions [0], not [2]", fft_type="IRFFT", fft_length=(0,)),
    bad("fft", "c64[4,0]", "IRFFT with fft_length={1} takes innermost dimensions [1], not [0]", fft_type="IRFFT", fft_length=(1,)),
    bad("fft", "f32[4,1]", "RFFT with fft_length={0} takes innermost dimensions [0], not [1]", fft_type="RFFT", fft_length=(0,)),
    bad("fft", "f32[8]", "RFFT with fft_length={9} takes innermost dimensions [9], not [8]", fft_type="RFFT", fft_length=(9,)),
    bad("fft", "c64[8]", "fft_length={8,8} does not fit rank 1", fft_type="FFT", fft_length=(8, 8)),
    bad("cholesky", "f32[3,4]", "operand 0 has shape f32[3,4], its last two dimensions must be equal"),
    bad("cholesky", "s32[3,3]", "operand 0 has element type s32, not float or complex"),
    bad("triangular-solve", "f32[3,3] f32[4,5]", "dimension 0 of f32[4,5] must have the size 3 of the matrix", left_side=True, transpose_a="TRANSPOSE"),
    bad("triangular-solve", "f32[2,3,3] f32[3,5]", "operands f32[2,3,3] and f32[3,5] must have the same batch dimensions"),
]

STATE = "((f32[2]),f32[3],u32[])"

GOOD_CONTROL = [
    good("call", "f32[2]", "s32[3]", to_apply="f32[2] -> s32[3]"),
    good("fusion", "f32[2]", "(s32[3],f32[])", calls="f32[2] -> (s32[3],f32[])", kind="kLoop"),
    good("while", "(s32[],f32[2])", "(s32[],f32[2])", condition="(s32[],f32[2]) -> pred[]", body="(s32[],f32[2]) -> (s32[],f32[2])"),
    good("while", "f32[2]{0:S(1)}", "f32[2]{0:S(1)}", condition="f32[2] -> pred[]{:T(512)}", body="f32[2] -> f32[2]"),
    good("conditional", "pred[] f32[2] s32[]", "f32[]", true_computation="f32[2] -> f32[]", false_computation="s32[] -> f32[]"),
    good("conditional", "s32[] f32[2] s32[]", "f32[]", branch_computations="f32[2] -> f32[];s32[] -> f32[]"),
    good("after-all", "token[] token[]", "token[]"),
    good("after-all", "", "token[]"),
    good("add-dependency", "f32[2] token[]", "f32[2]"),
    good("opt-barrier", "(f32[2],s32[])", "(f32[2],s32[])"),
    good("domain", "f32[2]", "f32[2]", domain=Verbatim("{}")),
    good("tuple", "f32[2]{0} s32[]", "(f32[2]{0},s32[])"),
    good("tuple", "", "()"),
    good("get-tuple-element", "(f32[2]{0},(s32[],pred[]))", "(s32[],pred[])", index=1),
    good("async-start", "f32[2]", STATE, STATE, calls="f32[2] -> f32[3]"),
    good("async-update", STATE, STATE),
    good("async-update", "((f32[2]),f32[3]) s32[]", "((f32[2],s32[]),f32[3])"),
    good("async-done", STATE, "f32[3]"),
    good("copy-start", "f32[2]{0}", "(f32[2]{0},f32[2]{0},u32[])"),
    good("copy-done", "(f32[2],f32[2],u32[])", "f32[2]"),
]

BAD_CONTROL = [
    bad("call", "f32[2]", "to_apply=: parameter 0 has shape f32[3], f32[2] is passed", to_apply="f32[3] -> f32[]"),
    bad("call", "f32[2]", "to_apply= takes 2 parameters, 1 are passed", to_apply=ADD),
    bad("fusion", "f32[2]", "calls=: parameter 0 has shape s32[2], f32[2] is passed", calls="s32[2] -> f32[2]"),
    bad("while", "s32[]", "condition= returns s32[], not pred[]", condition="s32[] -> s32[]", body="s32[] -> s32[]"),
    bad("while", "s32[]", "body= returns f32[], the state is s32[]", condition="s32[] -> pred[]", body="s32[] -> f32[]"),
    bad("while", "s32[]", "body=: parameter 0 has shape f32[], s32[] is passed", condition="s32[] -> pred[]", body="f32[] -> s32[]"),
    bad("conditional", "f32[] f32[]", "operand 0 has shape f32[], not pred[] or s32[]"),
    bad("conditional", "pred[] f32[]", "a pred operand takes true_computation= and false_computation=", branch_computations="f32[] -> f32[]"),
    bad("conditional", "s32[] f32[] f32[]", "an s32 operand takes branch_computations="),
    bad("conditional", "s32[] f32[]", "2 branches need as many operands, not 1", branch_computations="f32[] -> f32[];f32[] -> f32[]"),
    bad("conditional", "s32[] f32[] f32[]", "branch 1 returns s32[], branch 0 returns f32[]", branch_computations="f32[] -> f32[];f32[] -> s32[]"),
    bad("add-dependency", "f32[] f32[]", "operand 1 has shape f32[], not token[]"),
    bad("get-tuple-element", "(f32[])", "index=1 is not in a tuple of 1", index=1),
    bad("get-tuple-element", "f32[]", "operand 0 has shape f32[], which is not a tuple", index=0),
    bad("async-start", "f32[2]", "the state's result is f32[3], calls= returns f32[4]", STATE, calls="f32[2] -> f32[4]"),
    bad("async-start", "f32[9]", "the state's operands are (f32[2]), given (f32[9])", STATE, calls="f32[2] -> f32[3]"),
    bad("async-update", "f32[2]", "operand 0 has shape f32[2], which is not a tuple"),
    bad("async-update", "(f32[2],f32[3])", "(f32[2], f32[3]) is not a state ((operands), result, ...)"),
    bad("async-done", "(f32[2],f32[3])", "(f32[2], f32[3]) is not a state ((operands), result, ...)"),
    bad("copy-done", "(f32[2],f32[2])", "operand 0 has shape (f32[2], f32[2]), not (copy, operand, context)"),
]

BITS = "(u64[2],u32[5])"

GOOD_WORLD = [
    good("rng", "f32[] f32[]", "f32[3]{0}", "f32[3]{0}", distribution="rng_normal"),
    good("rng-bit-generator", "u64[2]", BITS, BITS, algorithm="rng_philox"),
    good("rng-get-and-update-state", "", "u64[2]{0}", "u64[2]{0}", delta=1),
    good("all-gather", "f32[2,3]", "f32[4,3]{1,0}", "f32[4,3]{1,0}", dimensions=(0,), **GROUPS),
    good("all-gather", "f32[2]", "f32[8]{0}", "f32[8]{0}", dimensions=(0,), replica_groups=IotaList((2, 4), (8,))),
    good("all-gather", "f32[2]", "f32[16]{0}", "f32[16]{0}", dimensions=(0,), channel_id=1, **GROUPS),
    good("all-gather-start", "f32[2]", "(f32[2],f32[4])", "(f32[2],f32[4])", dimensions=(0,), **GROUPS),
    good("all-gather-done", "(f32[2],f32[4])", "f32[4]"),
    good("all-reduce", "f32[2]", "f32[2]", to_apply=ADD),
    good("all-reduce", "f32[2] f32[3]", "(f32[2],f32[3])", to_apply=ADD),
    good("all-reduce", "bf16[2]", "bf16[2]", to_apply=ADD),
    good("all-reduce-start", "f32[2]", "f32[2]", to_apply=ADD),
    good("all-reduce-done", "f32[2]", "f32[2]"),
    good("all-to-all", "f32[4]", "f32[4]", dimensions=(0,), **GROUPS),
    good("all-to-all", "f32[4] f32[4]", "(f32[4],f32[4])", **GROUPS),
    good("collective-broadcast", "f32[4]", "f32[4]", **GROUPS),
    good("collective-permute", "f32[4]", "f32[4]", source_target_pairs=((0, 1),)),
    good("collective-permute", "f32[4] f32[9] s32[] s32[]", "f32[9]", source_target_pairs=((0, 1),), slice_sizes=((4,),)),
    good("collective-permute-start", "f32[4]", "(f32[4],f32[4])", "(f32[4],f32[4])", source_target_pairs=((0, 1),)),
    good("collective-permute-done", "(f32[4],f32[4],u32[])", "f32[4]"),
    good("ragged-all-to-all", "f32[4,2] f32[9,2] s32[2] s32[2] s32[2] s32[2]", "f32[9,2]"),
    good("reduce-scatter", "f32[4,3]", "f32[2,3]{1,0}", "f32[2,3]{1,0}", dimensions=(0,), to_apply=ADD, **GROUPS),
    good("partition-id", "", "u32[]"),
    good("replica-id", "", "u32[]"),
    good("infeed", "token[]", "(f32[2],token[])", "(f32[2],token[])"),
    good("outfeed", "f32[2] token[]", "token[]"),
    good("send", "f32[2] token[]", "(f32[2],u32[],token[])"),
    good("send-done", "(f32[2],u32[],token[])", "token[]"),
    good("recv", "token[]", "(f32[2],u32[],token[])", "(f32[2],u32[],token[])"),
    good("recv-done", "(f32[2],u32[],token[])", "(f32[2],token[])"),
    good("custom-call", "f32[2]", "(f32[3],s8[])", "(f32[3],s8[])", custom_call_target=Text("f")),
    good("constant", "", "f32[2]{0}", literal=Literal(array("f32", (2,)), np.zeros(2, np.float32))),
    good("iota", "", "s32[3]{0}", "s32[3]{0}", iota_dimension=0),
    good("parameter", "", "f32[3]{0}", "f32[3]{0}", parameter_number=0),
]

BAD_WORLD = [
    bad("rng", "f32[]", "1 operands are given, the distribution has 2 parameters", "f32[3]"),
    bad("rng", "s32[] f32[]", "operand 0 has shape s32[], not f32[]", "f32[3]"),
    bad("rng", "s32[] s32[]", "rng_normal has no values of type s32", "s32[3]", distribution="rng_normal"),
    bad("rng-bit-generator", "u64[2]", "the new state is u64[3], the state u64[2]", "(u64[3],u32[5])"),
    bad("rng-bit-generator", "u64[2]", "the bits have shape token[], which is not an array", "token[]"),
    bad("rng-get-and-update-state", "", "the result is u32[2], not u64[2]", "u32[2]"),
    bad("all-gather", "f32[2]", "dimension 0 is 2 in operand 0 and 6 in the result; groups of 2 do not make that", "f32[6]", dimensions=(0,), **GROUPS),
    bad("all-gather", "f32[2]", "dimension 0 is 2 in operand 0 and 5 in the result; one must divide the other", "f32[5]", dimensions=(0,)),
    bad("all-gather", "f32[2,3]", "operand 0 has shape f32[2,3], the result f32[4,4]; only dimension 0 may differ", "f32[4,4]", dimensions=(0,)),
    bad("all-gather-start", "f32[2]", "the result is f32[4], not (operands, results)", "f32[4]", dimensions=(0,)),
    bad("all-gather-done", "f32[2]", "operand 0 has shape f32[2], which is not a tuple"),
    bad("all-reduce", "f32[2]", "to_apply= takes 1 parameters, 2 are passed", to_apply="f32[] -> pred[]"),
    bad("all-reduce-start", "(f32[2])", "operand 0 has shape (f32[2]), which is not an array", to_apply=ADD),
    bad("all-to-all", "f32[3]", "dimension 0 of f32[3] does not divide into groups of 2", dimensions=(0,), **GROUPS),
    bad("collective-broadcast", "token[]", "operand 0 has shape token[], which is not an array"),
    bad("collective-permute", "token[]", "operand 0 has shape token[], which is not an array"),
    bad("collective-permute-start", "f32[4]", "operand f32[4] and result f32[5] must be equal", "(f32[4],f32[5])"),
    bad("collective-permute-done", "(f32[4])", "operand 0 has shape (f32[4]), not (operands, results)"),
    bad("ragged-all-to-all", "f32[4,2] f32[9,3] s32[2] s32[2] s32[2] s32[2]", "input f32[4,2] and output f32[9,3] may differ in their first dimension only"),
    bad("reduce-scatter", "f32[4]", "dimension 0 is 4 in operand 0 and 4 in the result; groups of 2 do not make that", "f32[4]", dimensions=(0,), to_apply=ADD, **GROUPS),
    bad("infeed", "token[]", "the result is f32[2], not (data, token[])", "f32[2]"),
    bad("outfeed", "f32[2] f32[]", "operand 1 has shape f32[], not token[]"),
    bad("send", "f32[2] token[]", "the result holds f32[3], operand 0 is f32[2]", "(f32[3],u32[],token[])"),
    bad("send-done", "f32[2]", "operand 0 has shape f32[2], which is not a tuple"),
    bad("recv", "token[]", "the context in the result is s32[], not u32[]", "(f32[2],s32[],token[])"),
    bad("recv", "token[]", "the result is f32[2], not (data, context, token[])", "f32[2]"),
    bad("recv-done", "(f32[2],f32[])", "operand 0 has shape (f32[2], f32[]), not (data, context, token[])"),
    bad("custom-call", "", "the result shape must be written, it cannot be inferred"),
    bad("constant", "", "the literal has shape f32[2]{0}, the result f32[3]", "f32[3]", literal=Literal(array("f32", (2,)), np.zeros(2, np.float32))),
    bad("iota", "", "iota_dimension=1 is not a dimension of rank 1", "s32[3]", iota_dimension=1),
    bad("iota", "", "the element type pred cannot count", "pred[3]", iota_dimension=0),
    bad("parameter", "", "the result shape must be written, it cannot be inferred"),
]

GOOD = [
    *GOOD_ELEMENTWISE,
    *GOOD_MOVEMENT,
    *GOOD_INDEXING,
    *GOOD_REDUCTION,
    *GOOD_LINEAR,
    *GOOD_CONTROL,
    *GOOD_WORLD,
]
BAD = [
    *BAD_ELEMENTWISE,
    *BAD_MOVEMENT,
    *BAD_INDEXING,
    *BAD_REDUCTION,
    *BAD_LINEAR,
    *BAD_CONTROL,
    *BAD_WORLD,
]
