"""CUDA C read as tokens, and rewritten for the host's compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hloopt.backends.emulator.source import translate
from hloopt.backends.emulator.tokens import find_functions, join, synchronizing, tokenize
from hloopt.errors import DeviceError, EvaluationError

SOURCE = r"""
// not a function: f(x) { }
#define UNUSED(x) {x}
struct f16 { unsigned short bits; __device__ bool operator<(f16 o) const { return bits < o.bits; } };
/* void g() { */
template <class T, int N> __device__ T load(const T* p, int i = 0) { return p[i]; }
__device__ __forceinline__ float exchange(float v) { return __shfl_xor_sync(0xffffffffu, v, 1); }
__device__ float through(float v) { const char* s = "}{"; return exchange(v) + (s[0] == '}'); }
extern "C" __global__ void __launch_bounds__(64) plain(
    const float* __restrict__ in,  // the operand
    float* __restrict__ out, int n) {
  if (n >= 1 && n << 2 > 3) out[threadIdx.x] = in[0] * 1.5e+3f;
}
extern "C" __global__ void __launch_bounds__(32 * 2) swaps(const float* in, float* out) {
  out[threadIdx.x] = through(in[threadIdx.x]);
}
"""


def test_tokens_are_the_text() -> None:
    """Nothing of a text is lost, and lines are counted."""
    tokens = tokenize(SOURCE)
    assert join(tokens) == SOURCE
    where = {token.text: token.line for token in tokens}
    assert where["f16"] == 4
    assert where["swaps"] == 14
    assert "1.5e+3f" in where
    assert '"}{"' in where


def test_functions() -> None:
    """Functions of the top level with what is said of them; members of structs are none."""
    functions = {function.name: function for function in find_functions(tokenize(SOURCE))}
    assert list(functions) == ["load", "exchange", "through", "plain", "swaps"]
    assert [f.name for f in functions.values() if f.is_kernel] == ["plain", "swaps"]
    assert functions["plain"].most_threads == 64
    assert functions["swaps"].most_threads is None
    plain = [(p.name, p.is_pointer) for p in functions["plain"].parameters]
    assert plain == [("in", True), ("out", True), ("n", False)]
    assert [p.name for p in functions["load"].parameters] == ["p", "i"]


def test_who_synchronizes() -> None:
    """A function synchronises if one it calls does, however far down; others are plain loops."""
    assert synchronizing(find_functions(tokenize(SOURCE))) == {"exchange", "through", "swaps"}
    kernels = translate(SOURCE, is_checked=False).kernels
    assert [(k.name, k.synchronizes, k.parameters) for k in kernels] == [
        ("plain", False, ("in", "out", "n")),
        ("swaps", True, ("in", "out")),
    ]


def test_fast_text_is_the_given_one() -> None:
    """Without checks only linkage and shared arrays are rewritten."""
    text = translate(SOURCE, is_checked=False).text
    inside = text.rpartition('#line 1 "program.cu"\n')[2]
    assert inside.startswith(SOURCE.replace('extern "C"', " ").rstrip())
    assert "HLOOPT_KERNEL(plain, false, " in text
    assert "HLOOPT_KERNEL(swaps, true, " in text


# An access, and what check mode makes of it; p is an int*, c a const int*, s and t are shared arrays.
REWRITTEN = {
    "p[i] = c[i];": "p.slot(i) = c.load(i);",
    "p[i] += p[c[i] + 1];": "p.slot(i) += p.load(c.load(i) + 1);",
    "p[i] >>= 1;": "p.slot(i) >>= 1;",
    "++p[i]; p[i]--;": "++p.slot(i); p.slot(i)--;",
    "if (p[i] == 1) return;": "if (p.load(i) == 1) return;",
    "atomicAdd(&p[i], 1);": "atomicAdd((p + (i)), 1);",
    "int x = a & p[i];": "int x = a & p.load(i);",
    "int x = (a) & p[i] && p[1];": "int x = (a) & p.load(i) && p.load(1);",
    "f(p + i, -p[i]);": "f(p + i, -p.load(i));",
    "z[i].re = z[i].im;": "z.member(i, [&](auto& whole) -> auto& { return whole.re; }) = z.load(i).im;",
    "s[i][j] = t;": 's.slot("s", {{(int64_t)(i), (int64_t)(j)}}) = t.load("t", {{(int64_t)(0)}});',
    "x = s[p[0]][s[0][1]];": 'x = s.load("s", {{(int64_t)(p.load(0)), '
    '(int64_t)(s.load("s", {{(int64_t)(0), (int64_t)(1)}}))}});',
    "atomicMax(&s[0][i], 1);": 'atomicMax(s.pointer("s", {{(int64_t)(0), (int64_t)(i)}}), 1);',
    "const int* __restrict__ q = p + 4; x = q[0];": (
        "hloopt::Checked<const int> q = p + 4; x = q.load(0);"
    ),
    "unsigned long long * u = f(); u[0] = 1;": (
        "hloopt::Checked<unsigned long long> u = f(); u.slot(0) = 1;"
    ),
    "v.p[i] = q->p[1];": "v.p[i] = q->p[1];",
    "x = exchange(1.0f);": "x = hloopt_at(__LINE__)->exchange(1.0f);",
}


@pytest.mark.parametrize(("access", "want"), REWRITTEN.items(), ids=REWRITTEN)
def test_accesses_that_are_checked(access: str, want: str) -> None:
    """Reads, writes, updates and addresses of pointers and shared arrays."""
    source = (
        "struct c64 { float re, im; };\n"
        "__device__ float exchange(float v) { return __shfl_sync(~0u, v, 0); }\n"
        "__global__ void k(int* p, const int* __restrict__ c, c64* z) {\n"
        f"  __shared__ int s[4][8], t;\n  {access}\n}}\n"
    )
    text = translate(source, is_checked=True).text
    body = text.partition("void k(")[2].partition("\n}\n")[0]
    assert body.startswith(
        "hloopt::Checked<int> p, hloopt::Checked<const int> c, hloopt::Checked<c64> z) {"
    )
    assert "static hloopt::SharedArray<int, 4, 8> s; " in body
    assert "static hloopt::SharedArray<int, 1> t; " in body
    assert body.splitlines()[-1].strip() == want


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("__global__ void k() {\n  f(1;\n}", r"cannot be read: line 2: '\(' is not closed"),
        ("__global__ void k() { }\n__global__ void k() { }", "two kernels called k"),
        (
            "__global__ void k() {\n  extern __shared__ float s[];\n  s[0] = 1; }",
            "line 2 of the generated code has a shared array of no size",
        ),
        (
            "__device__ void f() {\n  __shared__ float s[4];\n}\n__global__ void k() { f(); }",
            "line 2 of the generated code has __shared__ outside a kernel",
        ),
    ],
)
def test_what_is_refused(source: str, message: str) -> None:
    """Code that breaks the conventions is refused with its line."""
    with pytest.raises(DeviceError, match=message):
        translate(source, is_checked=False)


def test_shared_array_without_its_indices() -> None:
    """Check mode wants every index of a shared array."""
    source = "__global__ void k() {\n  __shared__ float s[4][4];\n  f(s[0]);\n}"
    with pytest.raises(
        DeviceError, match=r"line 3 .* uses the shared array s without all of its 2 indices"
    ):
        translate(source, is_checked=True)


def test_compiler_errors_name_the_line(bench: Callable[..., Any]) -> None:
    """What the compiler says is about the given text, in both modes."""
    source = "__global__ void k(int* p) {\n  p[0] = 1;\n  p[1] = nothing;\n}\n"
    for mode in ("fast", "check"):
        with pytest.raises(DeviceError) as caught:
            bench(source, mode=mode)
        assert "refuses the generated code:\nprogram.cu:3:" in str(caught.value)
        assert "nothing" in str(caught.value)


def test_too_much_shared_memory(bench: Callable[..., Any]) -> None:
    """More than 48 KiB of shared memory is refused, counted over all arrays."""
    source = """__global__ void k(int* p) {
  __shared__ int a[8192];
  __shared__ double b[2048], c;
  a[0] = 1; b[0] = 1; c = 1; p[0] = a[0];
}"""
    for mode in ("fast", "check"):
        with pytest.raises(DeviceError, match="k: more than 48 KiB of shared memory"):
            bench(source, mode=mode)


GIVEN = """__global__ void k(int* p) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  float (&a)[12000] = *(float (*)[12000])(dynamic_shared + 0);
  int (&b)[64] = *(int (*)[64])(dynamic_shared + 48000);
  __shared__ int c[1];
  a[11999] = 2; b[63] = 5; c[0] = 1;
  p[0] = (int)a[11999] + b[63] + c[0];
}"""


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_shared_memory_of_the_launch(bench: Callable[..., Any], mode: str) -> None:
    """Arrays in what a launch gives lie beside those that are declared, and beyond 48 KiB."""
    on = bench(GIVEN, mode=mode)
    out = on.blank(4)
    on.device.launch("k", (1, 1, 1), (1, 1, 1), [out], shared=48256)
    assert on.read(out, "i4")[0] == 8


def test_too_little_shared_memory_of_the_launch(bench: Callable[..., Any]) -> None:
    """A launch gives all that the arrays take, and no more than a GPU has."""
    on = bench(GIVEN, mode="fast")
    out = on.blank(4)
    for shared in (0, 48255, 1 << 20):
        with pytest.raises(EvaluationError, match=f"gives {shared} bytes.*; it needs 48256, and"):
            on.device.launch("k", (1, 1, 1), (1, 1, 1), [out], shared=shared)


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_aligned_shared_arrays(bench: Callable[..., Any], mode: str) -> None:
    """A shared array may ask for the alignment that all of them have."""
    source = """__global__ void k(int* p) {
  __shared__ char a[3];
  __shared__ __align__(16) int b[2][4];
  a[0] = 1; b[1][3] = 7; p[0] = a[0] + b[1][3];
}"""
    made = bench(source, mode=mode)
    out = made.blank(4)
    made.launch("k", 1, 1, [out])
    assert made.read(out, "i4")[0] == 8


def test_preprocessor(bench: Callable[..., Any]) -> None:
    """Branches for the emulator are taken, those for CUDA's compilers are not."""
    source = """
#ifdef HLOOPT_EMULATOR
__device__ int chosen(const int* p) { return p[0]; }
#else
__device__ int chosen(const int* p) { asm("trap;"); return 0; }
#endif
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#error not here
#endif
__global__ void k(const int* in, int* out) { out[0] = chosen(in); }
"""
    for mode in ("fast", "check"):
        made = bench(source, mode=mode)
        out = made.blank(4)
        made.launch("k", 1, 1, [made.buffer(np.array([5], "i4")), out])
        assert made.read(out, "i4")[0] == 5
