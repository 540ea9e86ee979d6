"""CUDA's own functions, each held against its definition in Python."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hloopt.backends.nvrtc import compile_cuda, nvrtc_for
from hloopt.errors import DeviceError

MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1


def signed(x: int, bits: int = 32) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def byte_perm(x: int, y: int, selector: int) -> int:
    every = (y << 32 | x).to_bytes(8, "little")
    picks = [selector >> (4 * i) & 15 for i in range(4)]
    chosen = [every[p & 7] if p < 8 else 255 * (every[p & 7] >> 7) for p in picks]
    return int.from_bytes(bytes(chosen), "little")


# Expression of x, y, z (unsigned) and its definition.
WORDS: dict[str, Callable[[int, int, int], int]] = {
    "__popc(x)": lambda x, y, z: x.bit_count(),
    "__clz((int)x)": lambda x, y, z: 32 - x.bit_length(),
    "__ffs((int)x)": lambda x, y, z: (x & -x).bit_length(),
    "__brev(x)": lambda x, y, z: int(f"{x:032b}"[::-1], 2),
    "__mulhi((int)x, (int)y)": lambda x, y, z: signed(x) * signed(y) >> 32,
    "__umulhi(x, y)": lambda x, y, z: x * y >> 32,
    "__mul24((int)x, (int)y)": lambda x, y, z: signed(x, 24) * signed(y, 24),
    "__umul24(x, y)": lambda x, y, z: (x & 0xFFFFFF) * (y & 0xFFFFFF),
    "__hadd((int)x, (int)y)": lambda x, y, z: signed(x) + signed(y) >> 1,
    "__rhadd((int)x, (int)y)": lambda x, y, z: signed(x) + signed(y) + 1 >> 1,
    "__sad((int)x, (int)y, z)": lambda x, y, z: abs(signed(x) - signed(y)) + z,
    "__byte_perm(x, y, z & 0x7777u)": lambda x, y, z: byte_perm(x, y, z & 0x7777),
    "__funnelshift_l(x, y, z)": lambda x, y, z: (y << 32 | x) << (z & 31) >> 32,
    "__funnelshift_r(x, y, z)": lambda x, y, z: (y << 32 | x) >> (z & 31),
    "__funnelshift_lc(x, y, z & 63)": lambda x, y, z: (y << 32 | x) << min(z & 63, 32) >> 32,
    "__funnelshift_rc(x, y, z & 63)": lambda x, y, z: (y << 32 | x) >> min(z & 63, 32),
    "__dp4a(x, y, z)": lambda x, y, z: (
        sum((x >> s & 255) * (y >> s & 255) for s in (0, 8, 16, 24)) + z
    ),
    "__dp4a((int)x, (int)y, (int)z)": lambda x, y, z: (
        sum(signed(x >> s, 8) * signed(y >> s, 8) for s in (0, 8, 16, 24)) + z
    ),
    "min(x, y)": lambda x, y, z: min(x, y),
    "max((int)x, (int)y)": lambda x, y, z: max(signed(x), signed(y)),
    "max((int)x, y)": lambda x, y, z: max(x, y),
    "umin(x, y)": lambda x, y, z: min(x, y),
    "(unsigned)abs((int)x)": lambda x, y, z: abs(signed(x)),
    "__float_as_uint(__uint_as_float(x))": lambda x, y, z: x,
    "(unsigned)__float_as_int(__int_as_float((int)x))": lambda x, y, z: x,
}

# Expression of x, y (unsigned long long) and its definition.
LONG_WORDS: dict[str, Callable[[int, int], int]] = {
    "__popcll(x)": lambda x, y: x.bit_count(),
    "__clzll((long long)x)": lambda x, y: 64 - x.bit_length(),
    "__ffsll((long long)x)": lambda x, y: (x & -x).bit_length(),
    "__brevll(x)": lambda x, y: int(f"{x:064b}"[::-1], 2),
    "__mul64hi((long long)x, (long long)y)": lambda x, y: signed(x, 64) * signed(y, 64) >> 64,
    "__umul64hi(x, y)": lambda x, y: x * y >> 64,
    "min((long long)x, (long long)y)": lambda x, y: min(signed(x, 64), signed(y, 64)),
    "max(x, y)": max,
    "(unsigned long long)__double_as_longlong(__longlong_as_double((long long)x))": lambda x, y: x,
    "(unsigned long long)__double_as_longlong(__hiloint2double((int)y, (int)x))": lambda x, y: (
        (y & MASK32) << 32 | (x & MASK32)
    ),
    "(unsigned)__double2hiint(__longlong_as_double((long long)x))": lambda x, y: x >> 32,
}


def float32(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def ordered(a: float, b: float, *, larger: bool) -> float:
    """IEEE's maximumNumber and minimumNumber."""
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    key = (a, math.copysign(1, a)) > (b, math.copysign(1, b))
    return a if key is larger else b


def saturated(x: float, bits: int, *, is_signed: bool, wide: bool, mode: str) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    if math.isnan(x):
        return (1 << bits - 1) if bits == 64 or wide else 0
    if math.isinf(x):
        return high if x > 0 else low
    rounded = {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}[mode](x)
    return min(max(rounded, low), high)


CONVERSIONS = [
    (target, mode, bits, is_signed)
    for target, bits, is_signed in (("int", 32, True), ("uint", 32, False), ("ll", 64, True))
    for mode in ("rn", "rz", "rd", "ru")
]

# Function of a double and its definition, good to a few units in the last place.
FUNCTIONS: dict[str, Callable[[float], float]] = {
    "rsqrt": lambda x: 1 / math.sqrt(abs(x)),
    "rcbrt": lambda x: math.copysign(abs(x) ** (-1 / 3), x),
    "sinpi": lambda x: math.sin(math.pi * math.remainder(x, 2)),
    "cospi": lambda x: math.cos(math.pi * math.remainder(x, 2)),
    "normcdf": lambda x: math.erfc(-x * math.sqrt(0.5)) / 2,
    "exp10": lambda x: 10**x,
    "erf": math.erf,
    "expm1": math.expm1,
    "log1p": lambda x: math.log1p(abs(x)),
}


def lines(expressions: Any, wrap: str) -> str:
    return "\n".join(
        f"  out[{row} * n + i] = {wrap.format(text)};" for row, text in enumerate(expressions)
    )


SOURCE = f"""
extern "C" __global__ void words(const unsigned* __restrict__ a, unsigned* __restrict__ out, int n) {{
  const int i = threadIdx.x;
  const unsigned x = a[3 * i], y = a[3 * i + 1], z = a[3 * i + 2];
{lines(WORDS, "(unsigned)({})")}
}}
extern "C" __global__ void long_words(const unsigned long long* __restrict__ a, unsigned long long* __restrict__ out, int n) {{
  const int i = threadIdx.x;
  const unsigned long long x = a[2 * i], y = a[2 * i + 1];
{lines(LONG_WORDS, "(unsigned long long)({})")}
}}
extern "C" __global__ void extrema(const float* __restrict__ a, float* __restrict__ out, int n) {{
  const int i = threadIdx.x;
  const float x = a[i / 12], y = a[i % 12];
{
    lines(
        [
            "fmaxf(x, y)",
            "fminf(x, y)",
            "max(x, y)",
            "min(x, y)",
            "(float)fmax((double)x, (double)y)",
            "(float)fmin((double)x, (double)y)",
        ],
        "{}",
    )
}
}}
extern "C" __global__ void from_float(const float* __restrict__ a, long long* __restrict__ out, int n) {{
  const int i = threadIdx.x;
  const float x = a[i];
{lines([f"__float2{target}_{mode}" for target, mode, *_ in CONVERSIONS], "(long long){}(x)")}
}}
extern "C" __global__ void from_double(const double* __restrict__ a, long long* __restrict__ out, int n) {{
  const int i = threadIdx.x;
  const double x = a[i];
{lines([f"__double2{target}_{mode}" for target, mode, *_ in CONVERSIONS], "(long long){}(x)")}
}}
extern "C" __global__ void functions(const double* __restrict__ a, double* __restrict__ out, int n) {{
  const int i = blockIdx.x * 128 + threadIdx.x;
  const double x = a[i];
{lines([f"{f}({'fabs(x)' if f in ('rsqrt', 'log1p') else 'x'})" for f in FUNCTIONS], "{}")}
}}
extern "C" __global__ void single(const float* __restrict__ a, float* __restrict__ out, int n) {{
  const int i = blockIdx.x * 128 + threadIdx.x;
  const float x = a[i];
  float s, c, sp, cp, fs, fc;
  sincosf(x, &s, &c);
  sincospif(x, &sp, &cp);
  __sincosf(x, &fs, &fc);
{
    lines(
        [
            "expf(x)",
            "log1pf(fabsf(x))",
            "erff(x)",
            "erfcf(x)",
            "tanhf(x)",
            "powf(fabsf(x), 1.5f)",
            "fmodf(x, 0.75f)",
            "rsqrtf(fabsf(x))",
            "s",
            "c",
            "sp",
            "cp",
            "erfinvf(x / 8.0f)",
            "__expf(x)",
            "__logf(fabsf(x))",
            "__powf(fabsf(x), 0.5f)",
            "exp10f(x)",
            "atan2f(x, 2.0f)",
            "cbrtf(x)",
            "log2f(fabsf(x))",
            "roundf(x)",
            "rintf(x)",
            "copysignf(2.0f, x)",
            "fmaf(x, x, 1.0f)",
            "__fdividef(x, 3.0f)",
            "__saturatef(x)",
            "fs",
            "fc",
        ],
        "{}",
    )
}
}}
extern "C" __global__ void special(int* __restrict__ out) {{
  out[0] = isnan(__int_as_float(0x7fffffff)) && isinf(__int_as_float(0x7f800000)) && !isfinite(log(0.0));
  out[1] = signbit(-0.0f) != 0;
  out[2] = warpSize;
  out[3] = __float2int_rn(__int2float_rn(3)) + (int)__ll2double_rn(4ll) + (int)__uint2float_rn(5u);
  dim3 d(7);
  out[4] = (int)d.x + (int)d.y;
}}
template <class T> __device__ void update_all(T* p, T by) {{
  atomicAdd(&p[0], by);
  atomicMin(&p[1], by);
  atomicMax(&p[2], by);
  atomicAnd(&p[3], by);
  atomicOr(&p[4], by);
  atomicXor(&p[5], by);
  atomicExch(&p[6], by);
  atomicCAS(&p[7], (T)9, by);
}}
extern "C" __global__ void update_int(int* __restrict__ p) {{ update_all(p, -5); }}
extern "C" __global__ void update_unsigned(unsigned* __restrict__ p) {{ update_all(p, 5u); }}
extern "C" __global__ void update_unsigned_long(unsigned long long* __restrict__ p) {{ update_all(p, 5ull); }}
extern "C" __global__ void update_long(long long* __restrict__ p) {{
  atomicMin(&p[0], -5ll);
  atomicMax(&p[1], -5ll);
  atomicAnd(&p[2], -5ll);
  atomicOr(&p[3], 5ll);
  atomicXor(&p[4], 5ll);
}}
extern "C" __global__ void update_short(unsigned short* __restrict__ p) {{
  atomicCAS(&p[threadIdx.x], (unsigned short)threadIdx.x, (unsigned short)(threadIdx.x + 100));
}}
extern "C" __global__ void update_floats(float* __restrict__ p, double* __restrict__ q) {{
  atomicAdd(&p[0], 0.5f);
  atomicExch(&p[1], 2.5f);
  atomicAdd(&q[0], 0.25);
}}
"""


@pytest.fixture(params=["fast", "check"])
def made(request: pytest.FixtureRequest, bench: Callable[..., Any]) -> Any:
    return bench(SOURCE, mode=request.param)


SPECIAL = [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x01234567, 0x00FF00FF]


def test_integers(made: Any, rng: np.random.Generator) -> None:
    """Counts, products, shifts, permutations of 32 bits."""
    a = rng.integers(0, 1 << 32, (120, 3), dtype=np.uint32)
    a[:64, 0], a[:64, 1] = np.repeat(SPECIAL, 8), np.tile(SPECIAL, 8)
    out = made.blank(len(WORDS) * len(a) * 4)
    made.launch("words", 1, len(a), [made.buffer(a), out], len(a))
    rows = made.read(out, "u4").reshape(len(WORDS), -1)
    for (text, define), row in zip(WORDS.items(), rows, strict=True):
        want = [define(*map(int, one)) & MASK32 for one in a]
        assert row.tolist() == want, text


def test_long_integers(made: Any, rng: np.random.Generator) -> None:
    """Counts and products of 64 bits."""
    a = rng.integers(0, 1 << 64, (64, 2), dtype=np.uint64)
    a[:5, 0] = [0, 1, MASK64, 1 << 63, (1 << 63) - 1]
    out = made.blank(len(LONG_WORDS) * len(a) * 8)
    made.launch("long_words", 1, len(a), [made.buffer(a), out], len(a))
    rows = made.read(out, "u8").reshape(len(LONG_WORDS), -1)
    for (text, define), row in zip(LONG_WORDS.items(), rows, strict=True):
        assert row.tolist() == [define(*map(int, one)) & MASK64 for one in a], text


def test_extrema(made: Any) -> None:
    """A NaN loses against a number, and -0 is less than +0."""
    a = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 3e38, 1e-45, -1e-45, 2.5, -2.5], "f4")
    out = made.blank(6 * 144 * 4)
    made.launch("extrema", 1, 144, [made.buffer(a), out], 144)
    rows = made.read(out, "f4").reshape(6, 144)
    for number, row in enumerate(rows):
        for i, got in enumerate(row.tolist()):
            want = ordered(float(a[i // 12]), float(a[i % 12]), larger=number % 2 == 0)
            same = math.isnan(want) and math.isnan(got)
            assert same or struct.pack("d", got) == struct.pack("d", want), (number, i)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_conversions(made: Any, kind: str) -> None:
    """Floats become integers with the rounding named, and saturate."""
    dtype = {"float": "f4", "double": "f8"}[kind]
    values = [0.5, 1.5, -0.5, -1.5, 2.4999, -7.7, 3e9, -3e9, 1e19, -1e19, 1e30, np.inf, -np.inf]
    a = np.array([*values, np.nan, 4294967295.0, 2147483647.0], dtype)
    out = made.blank(len(CONVERSIONS) * a.size * 8)
    made.launch(f"from_{kind}", 1, a.size, [made.buffer(a), out], a.size)
    rows = made.read(out, "i8").reshape(len(CONVERSIONS), -1)
    for (target, mode, bits, is_signed), row in zip(CONVERSIONS, rows, strict=True):
        for x, got in zip(a.tolist(), row.tolist(), strict=True):
            wide = kind == "double"
            want = saturated(x, bits, is_signed=is_signed, wide=wide, mode=mode)
            assert got & ((1 << bits) - 1) == want & ((1 << bits) - 1), (target, mode, x)


def test_functions_of_doubles(made: Any, rng: np.random.Generator) -> None:
    """What CUDA has and the C library has not, and some of what both have."""
    a = np.concatenate([rng.uniform(-6, 6, 112), np.arange(16) / 4 - 2.0625])
    out = made.blank(len(FUNCTIONS) * a.nbytes)
    made.launch("functions", 1, 128, [made.buffer(a), out], 128)
    rows = made.read(out, "f8").reshape(len(FUNCTIONS), -1)
    for (name, define), row in zip(FUNCTIONS.items(), rows, strict=True):
        want = [define(x) for x in a.tolist()]
        np.testing.assert_allclose(row, want, rtol=4e-15, atol=1e-15, err_msg=name)


def test_functions_of_floats(made: Any, rng: np.random.Generator) -> None:
    """Single precision, the fast approximations included."""
    a = np.concatenate([rng.uniform(-7, 7, 120), [0, -0.0, 0.5, -0.5, 1, -1, 2, 1.5]]).astype("f4")
    out = made.blank(28 * a.nbytes)
    made.launch("single", 1, 128, [made.buffer(a), out], 128)
    got = made.read(out, "f4").reshape(28, -1)
    x = a.astype("f8")
    m = np.abs(x)
    erf, erfc = np.vectorize(math.erf), np.vectorize(math.erfc)
    with np.errstate(divide="ignore"):
        want = [np.exp(x), np.log1p(m), erf(x), erfc(x), np.tanh(x), m**1.5]
        want += [np.fmod(x, 0.75), 1 / np.sqrt(m), np.sin(x), np.cos(x)]
        want += [np.sin(np.pi * x), np.cos(np.pi * x), None, np.exp(x), np.log(m), np.sqrt(m)]
        want += [10.0**x, np.arctan2(x, 2), np.cbrt(x), np.log2(m)]
        want += [np.copysign(np.floor(m + 0.5), x), np.rint(x), np.copysign(2, x), x * x + 1]
        want += [x / 3, np.clip(x, 0, 1), np.sin(x), np.cos(x)]
    for number, row in enumerate(got):
        if want[number] is not None:
            np.testing.assert_allclose(row, want[number], rtol=5e-7, atol=2e-7, err_msg=str(number))
    np.testing.assert_allclose(erf(got[12].astype("f8")), x / 8, rtol=3e-7)


def test_special_values(made: Any) -> None:
    """Classification, constants, casts, dim3."""
    out = made.blank(20)
    made.launch("special", 1, 1, [out])
    assert made.read(out, "i4").tolist() == [1, 1, 32, 12, 8]


@pytest.mark.parametrize(
    ("name", "dtype", "by"),
    [
        ("update_int", "i4", -5),
        ("update_unsigned", "u4", 5),
        ("update_unsigned_long", "u8", 5),
    ],
)
def test_atomics(made: Any, name: str, dtype: str, by: int) -> None:
    """Every atomic of each integer type."""
    start = [7, 7, 7, 6, 8, 6, 7, 9]
    p = made.buffer(np.array(start, dtype), "update")
    made.launch(name, 1, 1, [p])
    a, b, c, d, e, f, _, _ = start
    want = [a + by, min(b, by), max(c, by), d & by, e | by, f ^ by, by, by]
    assert made.read(p, dtype).tolist() == want


def test_other_atomics(made: Any) -> None:
    """Signed 64-bit atomics, floats, and compare-and-swap of 16 bits."""
    long = made.buffer(np.array([7, -9, 6, 8, 6]), "update")
    made.launch("update_long", 1, 1, [long])
    assert made.read(long, "i8").tolist() == [-5, -5, 6 & -5, 8 | 5, 6 ^ 5]
    p, q = made.buffer(np.ones(2, "f4"), "update"), made.buffer(np.ones(1), "update")
    made.launch("update_floats", 1, 1, [p, q])
    assert made.read(p, "f4").tolist() == [1.5, 2.5]
    assert made.read(q, "f8").tolist() == [1.25]
    short = made.buffer(np.array([0, 1, 9, 3], "u2"), "update")
    made.launch("update_short", 1, 4, [short])
    assert made.read(short, "u2").tolist() == [100, 101, 9, 103]


def test_cuda_has_the_same_functions() -> None:
    """Each of these is CUDA's, with these parameters."""
    try:
        nvrtc_for("sm_80")
    except DeviceError as error:
        pytest.skip(str(error))
    assert "words" in compile_cuda(SOURCE, "sm_80").resources
