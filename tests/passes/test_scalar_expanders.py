"""Expanders of elementwise ops and of bits: logistic, total order, bitcasts, stochastic rounding, starts."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.ir import Module
from hloopt.passes.expand.bitcast_dtypes_expander import BitcastDtypesExpander
from hloopt.passes.expand.comparison_expander import ComparisonExpander
from hloopt.passes.expand.dynamic_index_splitter import DynamicIndexSplitter
from hloopt.passes.expand.logistic_expander import LogisticExpander
from hloopt.passes.expand.stochastic_convert_expander import StochasticConvertExpander
from hloopt.rewrite import Pass, PassLog
from hloopt.types import DTYPES
from tests.passes.proof import check

FLOATS = [name for name, kind in DTYPES.items() if kind.is_float]


def opcodes(module: Module) -> set[str]:
    return {instruction.opcode for instruction in module.instructions()}


def reasons(text: str, entry: Pass) -> list[str]:
    log = PassLog(kinds=frozenset({"missed"}))
    assert not entry.run(hloopt.parse(text, "text"), log)
    return [remark.reason for remark in log.remarks]


def every_code(name: str) -> np.ndarray[object, np.dtype[np.generic]]:
    """All values of a type of at most 16 bits, and all exponents and signs of a wider one."""
    kind = DTYPES[name]
    if kind.bits <= 16:
        codes = np.arange(1 << kind.bits, dtype=f"u{max(kind.bits, 8) // 8}")
        return codes.view(kind.numpy)
    mantissa = {32: 23, 64: 52}[kind.bits]
    word = np.dtype(f"u{kind.bits // 8}")
    upper = np.arange(1 << (kind.bits - mantissa), dtype=word) << word.type(mantissa)
    tails = [0, 1, (1 << mantissa) - 1, 1 << (mantissa - 1)]
    return np.concatenate([upper | word.type(tail) for tail in tails]).view(kind.numpy)


def unary(opcode: str, shape: str) -> str:
    return f"""HloModule unary
ENTRY main {{
  x = {shape} parameter(0)
  ROOT y = {shape} {opcode}(x)
}}
"""


@pytest.mark.parametrize(
    ("name", "rtol"),
    [("f32", 1e-6), ("f64", 1e-14), ("f16", 1e-3), ("bf16", 8e-3), ("f8e4m3fn", 0.13),
     ("f8e5m2", 0.26), ("c64", 1e-5), ("c128", 1e-13)],
)  # fmt: skip
def test_logistic_is_one_over_one_plus_the_exponential(name: str, rtol: float) -> None:
    """The three ops agree with the function within rounding, for every type that has one."""
    rng, kind = np.random.default_rng(3), DTYPES[name]
    x = rng.normal(0, 4, 200) + (1j * rng.normal(0, 1, 200) if kind.is_complex else 0)
    edges = [0, -0.0, 60, -60] if kind.is_complex else [0, -0.0, 60, -60, np.inf, -np.inf, np.nan]
    with np.errstate(all="ignore"):
        array = np.concatenate([x, edges]).astype(kind.numpy)
    text = unary("logistic", f"{name}[{array.size}]{{0}}")
    module, log = check(text, LogisticExpander(), rtol=rtol, given=[[array]])
    assert log.hits == {"expand logistic": 1}
    assert "logistic" not in opcodes(module)


def test_logistic_of_f16_keeps_its_tail() -> None:
    """Where exp(-x) is beyond f16 the result is not: it is computed in f32."""
    array = np.array([-12, -14, -16], np.float16)
    module, _ = check(unary("logistic", "f16[3]{0}"), LogisticExpander(), given=[[array]])
    (got,) = hloopt.evaluate(module, [array])
    assert np.all(got > 0)


def test_a_logistic_with_an_accuracy_stays() -> None:
    """Whoever asks for an accuracy gets it of the op itself."""
    text = unary("logistic", "f32[3]{0}").replace("(x)", "(x), result_accuracy={mode=highest}")
    assert reasons(text, LogisticExpander()) == ["it sets its accuracy with result_accuracy"]


@pytest.mark.parametrize("name", FLOATS)
def test_the_total_order_by_integers(name: str) -> None:
    """Every pair of a type's codes compares as it did, NaNs and zeros of both signs included."""
    codes = every_code(name)[:: 97 if DTYPES[name].bits == 16 else 1]
    codes = codes[:: max(1, codes.size // 300)]
    x, y = (
        np.ascontiguousarray(side.reshape(-1))
        for side in np.broadcast_arrays(codes[:, None], codes)
    )
    shape = f"{name}[{x.size}]{{0}}"
    for direction in ("EQ", "NE", "GE", "GT", "LE", "LT"):
        text = f"""HloModule order
ENTRY main {{
  x = {shape} parameter(0)
  y = {shape} parameter(1)
  ROOT r = pred[{x.size}]{{0}} compare(x, y), direction={direction}, type=TOTALORDER
}}
"""
        module, _ = check(text, ComparisonExpander(), given=[[x, y]])
        (compare,) = (
            one for one in module.instructions() if one.opcode == "compare" and one.is_root
        )
        assert compare.operands[0].array.dtype.kind == "signed"


def test_other_comparisons_stay() -> None:
    """Comparisons of floats by value, where NaN is unordered, are none of it."""
    text = """HloModule order
ENTRY main {
  x = f32[8]{0} parameter(0)
  ROOT r = pred[8]{0} compare(x, x), direction=EQ
}
"""
    check(text, ComparisonExpander(), changes=False)


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("f32[3,2]{1,0}", "u8[3,2,4]{2,1,0}"),
        ("f32[3,2]{0,1}", "u16[3,2,2]{0,1,2}"),
        ("u64[]", "bf16[4]{0}"),
        ("s16[5]{0}", "s4[5,4]{1,0}"),
        ("u8[3]{0}", "u1[3,8]{1,0}"),
        ("f64[0,2]{1,0}", "s32[0,2,2]{2,1,0}"),
        ("u32[2]{0}", "pred[2,4]{1,0}"),
        ("u8[3,2,4]{2,1,0}", "f32[3,2]{1,0}"),
        ("u16[3,2,2]{0,1,2}", "f32[3,2]{0,1}"),
        ("u32[2]{0}", "f64[]"),
        ("s4[5,4]{1,0}", "f16[5]{0}"),
        ("f4e2m1fn[5,2]{1,0}", "f8e4m3fn[5]{0}"),
        ("pred[2,4]{1,0}", "s32[2]{0}"),
        ("s2[0,4]{1,0}", "s8[0]{0}"),
    ],
)
def test_bits_of_another_width_by_shifts(source: str, result: str) -> None:
    """Words come apart and together with the lowest bits first, for every width and layout."""
    text = f"""HloModule bits
ENTRY main {{
  x = {source} parameter(0)
  ROOT y = {result} bitcast-convert(x)
}}
"""
    module, log = check(text, BitcastDtypesExpander())
    assert log.hits == {"expand bitcast-convert": 1}
    for one in module.instructions():
        if one.opcode == "bitcast-convert":
            assert one.array.dtype.bits == one.operands[0].array.dtype.bits


def test_bits_of_the_same_width_stay() -> None:
    """Equal widths need no shifts."""
    text = """HloModule bits
ENTRY main {
  x = f32[4]{0} parameter(0)
  ROOT y = s32[4]{0} bitcast-convert(x)
}
"""
    check(text, BitcastDtypesExpander(), changes=False)


def test_bits_of_complex_numbers_stay() -> None:
    """No unsigned integer has the bits of c128."""
    text = """HloModule bits
ENTRY main {
  x = c128[4]{0} parameter(0)
  ROOT y = c64[4,2]{1,0} bitcast-convert(x)
}
"""
    assert reasons(text, BitcastDtypesExpander()) == ["no unsigned integer has the bits of c128"]


@pytest.mark.every_value
@pytest.mark.parametrize("name", [name for name in FLOATS if f"u{DTYPES[name].bits}" in DTYPES])
@pytest.mark.parametrize("result", ["s4", "s8", "s16", "s32", "s64"])
def test_stochastic_rounding_to_the_same_integers(name: str, result: str) -> None:
    """The rounding is that of the op for every value and random number, beyond the range too."""
    rng, kind = np.random.default_rng(5), DTYPES[name]
    word = DTYPES[f"u{kind.bits}"]
    with np.errstate(all="ignore"):
        x = np.concatenate(
            [
                rng.normal(0, 10.0 ** rng.integers(-2, 20, 600)),
                [
                    127.5,
                    -127.5,
                    -128.5,
                    0.5,
                    -0.5,
                    0.0,
                    -0.0,
                    np.inf,
                    -np.inf,
                    np.nan,
                    2.0**31,
                    2.0**63,
                    -(2.0**63),
                    7.5,
                    -8.5,
                ],
            ]
        )
        x = x.astype(kind.numpy)
    random = (
        rng.integers(0, 1 << word.bits, x.size, np.uint64, endpoint=False)
        if word.bits < 64
        else (rng.integers(0, (1 << 64) - 1, x.size, np.uint64, endpoint=True))
    )
    text = f"""HloModule rounding
ENTRY main {{
  x = {name}[{x.size}]{{0}} parameter(0)
  random = {word.name}[{x.size}]{{0}} parameter(1)
  ROOT y = {result}[{x.size}]{{0}} stochastic-convert(x, random)
}}
"""
    given = [[x, random.astype(word.numpy)], [x, np.zeros(x.size, word.numpy)]]
    module, _ = check(text, StochasticConvertExpander(), given=given)
    assert "stochastic-convert" not in opcodes(module)


def test_starts_become_scalars() -> None:
    """A vector of starts is taken apart, in slices and in updates, clamping as before."""
    text = """HloModule vector
ENTRY main {
  x = f32[4,8]{1,0} parameter(0)
  at = s32[2]{0} parameter(1)
  y = f32[1,8]{1,0} dynamic-slice(x, at), dynamic_slice_sizes={1,8}
  ROOT r = f32[4,8]{1,0} dynamic-update-slice(x, y, at)
}
"""
    module, log = check(text, DynamicIndexSplitter())
    assert log.hits == {"expand dynamic-slice": 1, "expand dynamic-update-slice": 1}
    assert len(module.entry.by_name["y"].operands) == 3
    assert len(module.entry.root.operands) == 4


def test_no_start_for_an_array_without_dimensions() -> None:
    """A slice of a scalar is the scalar, an update of a scalar the update."""
    text = """HloModule vector
ENTRY main {
  x = f32[] parameter(0)
  z = f32[] parameter(1)
  at = s32[0]{0} constant({})
  y = f32[] dynamic-slice(x, at), dynamic_slice_sizes={}
  ROOT r = f32[] dynamic-update-slice(y, z, at)
}
"""
    module, _ = check(text, DynamicIndexSplitter())
    assert opcodes(module) == {"parameter", "constant", "copy"}


def test_scalar_starts_stay() -> None:
    """One start for a vector is a scalar, and left alone."""
    text = """HloModule vector
ENTRY main {
  x = f32[4]{0} parameter(0)
  at = s32[] parameter(1)
  ROOT y = f32[1]{0} dynamic-slice(x, at), dynamic_slice_sizes={1}
}
"""
    check(text, DynamicIndexSplitter(), changes=False)
