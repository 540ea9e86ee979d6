"""Kernels of every kind give NumPy's results, in every mode and order, and check mode finds nothing wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hloopt.backends.nvrtc import compile_cuda, nvrtc_for
from hloopt.errors import DeviceError

# In the style of generated code; compiled once for each mode.
SOURCE = r"""
// vectors, exchange between lanes
template <class T, int N> struct alignas(N * sizeof(T)) Vector { T lane[N]; };
template <int N, class T>
__device__ Vector<T, N> load_vector(const T* p) { return *reinterpret_cast<const Vector<T, N>*>(p); }
template <class T, int N>
__device__ void store_vector(T* p, Vector<T, N> v) { *reinterpret_cast<Vector<T, N>*>(p) = v; }
template <class T> __device__ __forceinline__ T shuffle_down(T value, int distance) {
  unsigned words[(sizeof(T) + 3) / 4] = {};
  memcpy(words, &value, sizeof(T));
  for (unsigned& word : words) word = __shfl_down_sync(0xffffffffu, word, distance);
  memcpy(&value, words, sizeof(T));
  return value;
}
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct c64 {
  float re, im;
  __device__ c64 operator+(c64 other) const { return {re + other.re, im + other.im}; }
};
__device__ float widen(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ __noinline__ bf16 narrow(float x) {
  const unsigned bits = __float_as_uint(x);
  if (x != x) return {0x7fc0};
  return {(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
// A device function that is handed a pointer.
__device__ int nibble(const unsigned char* p, int i) { return p[i / 2] >> (i % 2 * 4) & 15; }
template <class T> __device__ T twice(const T* p, int i) { return p[i] + p[i]; }

extern "C" __global__ void __launch_bounds__(256) elementwise(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int n) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) out[i] = fmaxf(a[i] * b[i] + 1.5f, 0.0f);
}
extern "C" __global__ void strided(const float* __restrict__ a, float* __restrict__ out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    out[i] = a[i] > 0 ? twice(a, i) : -a[i];
}
extern "C" __global__ void vectors(const float* __restrict__ a, float* __restrict__ out, int n) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i < n) {
    Vector<float, 4> v = load_vector<4>(a + i);
    for (float& x : v.lane) x *= 2;
    store_vector(out + i, v);
  }
}
extern "C" __global__ void transpose(const float* __restrict__ a, float* __restrict__ out, int n) {
  __shared__ float tile[32][33];
  const int x = blockIdx.x * 32, y = blockIdx.y * 32;
  for (int j = threadIdx.y; j < 32; j += 8) tile[j][threadIdx.x] = a[(y + j) * n + x + threadIdx.x];
  __syncthreads();
  for (int j = threadIdx.y; j < 32; j += 8) out[(x + j) * n + y + threadIdx.x] = tile[threadIdx.x][j];
}
extern "C" __global__ void __launch_bounds__(256) row_sum(
    const float* __restrict__ a, float* __restrict__ out, int n) {
  __shared__ float partial[8];
  const float* row = a + (long long)blockIdx.x * n;
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 256) sum += row[i];
  for (int d = 16; d; d >>= 1) sum += shuffle_down(sum, d);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < 8 ? partial[threadIdx.x] : 0.0f;
    for (int d = 4; d; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
  }
}
extern "C" __global__ void __launch_bounds__(128) argmax(
    const long long* __restrict__ a, long long* __restrict__ value, int* __restrict__ index, int n) {
  struct Best { long long value; int index; };
  __shared__ Best best[128];
  Best mine = {a[0], 0};
  for (int i = threadIdx.x; i < n; i += 128) if (a[i] > mine.value) mine = {a[i], i};
  best[threadIdx.x] = mine;
  __syncthreads();
  for (int half = 64; half; half /= 2) {
    if (threadIdx.x < half) {
      const Best other = best[threadIdx.x + half];
      const Best own = best[threadIdx.x];
      if (other.value > own.value || (other.value == own.value && other.index < own.index))
        best[threadIdx.x] = other;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) { value[0] = best[0].value; index[0] = best[0].index; }
}
extern "C" __global__ void atomics(
    const int* __restrict__ a, int* __restrict__ counts, float* __restrict__ sums,
    unsigned long long* __restrict__ most, double* __restrict__ total,
    unsigned long long* __restrict__ product, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    atomicAdd(&counts[a[i] & 15], 1);
    atomicAdd(&sums[a[i] & 15], 1.0f);
    atomicMax(&most[0], (unsigned long long)a[i]);
    atomicAdd(&total[0], 0.5);
    unsigned long long seen = product[0], before;
    do {
      before = seen;
      seen = atomicCAS(&product[0], before, before * 3);
    } while (seen != before);
  }
}
extern "C" __global__ void histogram(const int* __restrict__ a, int* __restrict__ counts, int n) {
  __shared__ int own[16];
  if (threadIdx.x < 16) own[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&own[a[i] & 15], 1);
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
}
extern "C" __global__ void bits(const bf16* __restrict__ a, bf16* __restrict__ out, f16* __restrict__ halves, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = narrow(widen(a[i]) * 1.0078125f);
    halves[i].bits = (unsigned short)(a[i].bits ^ 0x8000);
  }
}
extern "C" __global__ void complexes(const c64* __restrict__ a, c64* __restrict__ out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    const c64 z = a[i];
    out[i] = z + z;
    out[i].im = -a[i].im;
    out[i].re += 1;
  }
}
extern "C" __global__ void products(
    const c64* __restrict__ a, const c64* __restrict__ b, c64* __restrict__ out, int n) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) {
    const c64 x = a[i], y = b[i];
    out[i] = {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
  }
}
extern "C" __global__ void packed(const unsigned char* __restrict__ a, unsigned char* __restrict__ out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (2 * i < n) {
    const int low = nibble(a, 2 * i) + 1, high = 2 * i + 1 < n ? nibble(a, 2 * i + 1) + 1 : 0;
    out[i] = (unsigned char)((low & 15) | (high & 15) << 4);
  }
}
extern "C" __global__ void in_place(int* __restrict__ a, const int* __restrict__ index, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { a[index[i]] += i; ++a[index[i]]; a[index[i]]--; }
}
extern "C" __global__ void votes(const int* __restrict__ a, unsigned* __restrict__ out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  const unsigned ballot = __ballot_sync(0xffffffffu, a[i] > 0);
  const int any = __any_sync(0xffffffffu, a[i] == 3), all = __all_sync(0xffffffffu, a[i] < 100);
  const int count = __syncthreads_count(a[i] > 0);
  const int some = __syncthreads_or(a[i] == 99) | __syncthreads_and(a[i] < 100) << 1;
  const unsigned up = __shfl_up_sync(0xffffffffu, (unsigned)a[i], 1, 8);
  const unsigned from = __shfl_sync(0xffffffffu, (unsigned)a[i], (lane + 5) % 32);
  unsigned* row = out + i * 8;
  row[0] = ballot; row[1] = any | all << 1; row[2] = count; row[3] = some;
  row[4] = up; row[5] = from;
  row[6] = __match_any_sync(0xffffffffu, a[i]);
  __syncwarp();
  row[7] = __reduce_max_sync(0xffffffffu, (unsigned)lane);
}
// Warps that go different ways, each with all of its lanes; part of a warp by its mask.
extern "C" __global__ void apart(const int* __restrict__ a, int* __restrict__ out) {
  int x = a[threadIdx.x];
  if (threadIdx.x / 32 == 1) {
    for (int d = 1; d < 32; d *= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  } else if (threadIdx.x % 32 < 8) {
    x = __shfl_sync(0x000000ffu, x, 7 - (int)threadIdx.x % 32);
  }
  out[threadIdx.x] = x;
}
// Two phases in shared memory within one warp, ordered by __syncwarp.
extern "C" __global__ void within_warp(const int* __restrict__ a, int* __restrict__ out) {
  __shared__ int s[64];
  s[threadIdx.x] = a[threadIdx.x];
  __syncwarp();
  const int other = s[threadIdx.x ^ 1];
  __syncwarp();
  s[threadIdx.x] = other;
  __syncwarp();
  out[threadIdx.x] = s[threadIdx.x ^ 2];
}
extern "C" __global__ void three_dimensions(int* __restrict__ out) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  const int z = blockIdx.z * blockDim.z + threadIdx.z;
  out[(z * (gridDim.y * blockDim.y) + y) * (gridDim.x * blockDim.x) + x] = x + 100 * y + 10000 * z;
}
// A barrier after which whole blocks have nothing to do; a value all threads write.
extern "C" __global__ void same_value(int* __restrict__ out, int n) {
  if (blockIdx.x >= n) return;
  __shared__ int flag;
  flag = 7;
  __syncthreads();
  out[0] = flag;
}
"""

MODES = [
    {"mode": "fast"},
    {"mode": "fast", "seed": 3, "threads": 2},
    {"mode": "check"},
    {"mode": "check", "seed": 5},
]


@pytest.fixture(params=MODES, ids=["fast", "fast-shuffled", "check", "check-shuffled"])
def kernels(request: pytest.FixtureRequest, bench: Callable[..., Any]) -> Any:
    return bench(SOURCE, **request.param)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(np.float32)


def test_elementwise(kernels: Any, rng: np.random.Generator) -> None:
    """A guarded kernel of one element a thread."""
    a, b = floats(rng, 1000), floats(rng, 1000)
    out = kernels.blank(a.nbytes)
    kernels.launch("elementwise", 4, 256, [kernels.buffer(a), kernels.buffer(b), out], 1000)
    np.testing.assert_array_equal(kernels.read(out, "f4"), np.maximum(a * b + np.float32(1.5), 0))


def test_grid_stride(kernels: Any, rng: np.random.Generator) -> None:
    """A loop over more elements than there are threads, through a function template of a pointer."""
    a = floats(rng, 20_001)
    out = kernels.blank(a.nbytes)
    kernels.launch("strided", 40, 256, [kernels.buffer(a), out], a.size)
    np.testing.assert_array_equal(kernels.read(out, "f4"), np.where(a > 0, 2 * a, -a))


def test_vectors(kernels: Any, rng: np.random.Generator) -> None:
    """Four elements at once."""
    a = floats(rng, 4096)
    out = kernels.blank(a.nbytes)
    kernels.launch("vectors", 8, 128, [kernels.buffer(a), out], a.size)
    np.testing.assert_array_equal(kernels.read(out, "f4"), a * 2)


def test_transpose(kernels: Any, rng: np.random.Generator) -> None:
    """Tiles through shared memory of two dimensions."""
    a = floats(rng, 96, 96)
    out = kernels.blank(a.nbytes)
    kernels.launch("transpose", (3, 3, 1), (32, 8, 1), [kernels.buffer(a), out], 96)
    np.testing.assert_array_equal(kernels.read(out, "f4").reshape(96, 96), a.T)


def test_row_reduction(kernels: Any, rng: np.random.Generator) -> None:
    """Shuffles, shared memory and a pointer to a row."""
    a = floats(rng, 50, 700)
    out = kernels.blank(50 * 4)
    kernels.launch("row_sum", 50, 256, [kernels.buffer(a), out], 700)
    np.testing.assert_allclose(kernels.read(out, "f4"), a.sum(1), rtol=1e-4, atol=1e-4)


def test_block_reduction_of_structs(kernels: Any, rng: np.random.Generator) -> None:
    """Shared elements that are structs, 64-bit values, members that are read."""
    a = rng.integers(-(2**62), 2**62, 5000)
    value, index = kernels.blank(8), kernels.blank(4)
    kernels.launch("argmax", 1, 128, [kernels.buffer(a), value, index], a.size)
    assert kernels.read(value, "i8")[0] == a.max()
    assert kernels.read(index, "i4")[0] == a.argmax()


def test_atomics_of_shared_memory(kernels: Any, rng: np.random.Generator) -> None:
    """Atomics on elements of shared arrays and of buffers."""
    a = rng.integers(0, 1 << 20, 5000).astype(np.int32)
    counts = kernels.buffer(np.zeros(16, np.int32), "update")
    kernels.launch("histogram", 5, 128, [kernels.buffer(a), counts], a.size)
    np.testing.assert_array_equal(kernels.read(counts, "i4"), np.bincount(a & 15, minlength=16))


def test_atomics(kernels: Any, rng: np.random.Generator) -> None:
    """Atomics of integers and floats, and a loop around compare-and-swap that begins with a plain read."""
    a = rng.integers(0, 1 << 20, 3000).astype(np.int32)
    counts, sums = (kernels.buffer(np.zeros(16, kind), "update") for kind in ("i4", "f4"))
    most, product = (kernels.buffer(np.full(1, one, "u8"), "update") for one in (0, 1))
    total = kernels.buffer(np.zeros(1), "update")
    arguments = [kernels.buffer(a), counts, sums, most, total, product]
    kernels.launch("atomics", 12, 256, arguments, a.size)
    want = np.bincount(a & 15, minlength=16)
    np.testing.assert_array_equal(kernels.read(counts, "i4"), want)
    np.testing.assert_array_equal(kernels.read(sums, "f4"), want)
    assert kernels.read(most, "u8")[0] == a.max()
    assert kernels.read(total, "f8")[0] == 1500
    assert int(kernels.read(product, "u8")[0]) == pow(3, 3000, 1 << 64)


def test_sixteen_bits(kernels: Any) -> None:
    """Half types move as bits in structs, whose members are written one by one."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    a = patterns.view(ml_dtypes.bfloat16)
    out, halves = kernels.blank(a.nbytes), kernels.blank(a.nbytes)
    kernels.launch("bits", 256, 256, [kernels.buffer(a), out, halves], a.size)
    with np.errstate(all="ignore"):
        want = (a.astype(np.float32) * np.float32(1.0078125)).astype(ml_dtypes.bfloat16)
    got = kernels.read(out, ml_dtypes.bfloat16)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(got.view(np.uint16)[numbers], want.view(np.uint16)[numbers])
    assert np.isnan(got[~numbers]).all()
    np.testing.assert_array_equal(kernels.read(halves, "u2"), patterns ^ 0x8000)


def test_complex_numbers(kernels: Any, rng: np.random.Generator) -> None:
    """Structs with operators; a member assigned and updated in place."""
    a = (floats(rng, 300) + 1j * floats(rng, 300)).astype(np.complex64)
    out = kernels.blank(a.nbytes)
    kernels.launch("complexes", 3, 128, [kernels.buffer(a), out], a.size)
    want = (2 * a.real + 1 - 1j * a.imag).astype(np.complex64)
    np.testing.assert_array_equal(kernels.read(out, np.complex64), want)


def test_products_are_not_contracted(kernels: Any, rng: np.random.Generator) -> None:
    """Every product is rounded before it is added, in vectorised code as well."""
    x, y = (floats(rng, 4096, 2) for _ in range(2))
    out = kernels.blank(x.nbytes)
    kernels.launch("products", 16, 256, [kernels.buffer(x), kernels.buffer(y), out], 4096)
    (a, b), (c, d) = x.T, y.T
    want = np.stack([a * c - b * d, a * d + b * c], 1)
    np.testing.assert_array_equal(kernels.read(out, "f4").reshape(-1, 2), want)


def test_packed_elements(kernels: Any, rng: np.random.Generator) -> None:
    """Elements narrower than a byte, read by a device function of a pointer."""
    nibbles = rng.integers(0, 16, 501)
    padded = np.append(nibbles, 0).reshape(-1, 2)
    a = (padded[:, 0] | padded[:, 1] << 4).astype(np.uint8)
    out = kernels.blank(a.nbytes)
    kernels.launch("packed", 2, 128, [kernels.buffer(a), out], nibbles.size)
    got = kernels.read(out, "u1")
    unpacked = np.stack([got & 15, got >> 4], 1).reshape(-1)[:501]
    np.testing.assert_array_equal(unpacked, (nibbles + 1) & 15)


def test_update_in_place(kernels: Any, rng: np.random.Generator) -> None:
    """Compound assignments through an index, each element by one thread."""
    a = rng.integers(0, 1000, 256).astype(np.int32)
    index = rng.permutation(256).astype(np.int32)
    updated = kernels.buffer(a, "update")
    kernels.launch("in_place", 2, 128, [updated, kernels.buffer(index)], 256)
    want = a.copy()
    want[index] += np.arange(256, dtype=np.int32)
    np.testing.assert_array_equal(kernels.read(updated, "i4"), want)


def test_votes_and_shuffles(kernels: Any, rng: np.random.Generator) -> None:
    """Ballots, counts of a block, shuffles within segments, matches."""
    a = rng.integers(-5, 10, 128).astype(np.int32)
    out = kernels.blank(a.size * 32)
    kernels.launch("votes", 2, 64, [kernels.buffer(a), out])
    got = kernels.read(out, "u4").reshape(2, 2, 32, 8)
    warps = a.reshape(2, 2, 32)
    ballots = ((warps > 0).astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(-1)
    np.testing.assert_array_equal(got[..., 0], np.broadcast_to(ballots[..., None], (2, 2, 32)))
    assert (got[..., 1] == ((warps == 3).any(-1) | 2)[..., None]).all()
    assert (got[..., 2] == (warps > 0).sum((1, 2))[:, None, None]).all()
    assert (got[..., 3] == 2).all()
    lanes = np.arange(32)
    up = warps[..., np.where(lanes % 8 < 1, lanes, lanes - 1)]
    np.testing.assert_array_equal(got[..., 4].view(np.int32), up)
    np.testing.assert_array_equal(got[..., 5].view(np.int32), warps[..., (lanes + 5) % 32])
    same = (warps[..., :, None] == warps[..., None, :]).astype(np.uint64)
    matches = (same << np.arange(32, dtype=np.uint64)).sum(-1)
    np.testing.assert_array_equal(got[..., 6], matches)
    assert (got[..., 7] == 31).all()


def test_warps_that_part(kernels: Any) -> None:
    """Warps may take different branches; a mask names part of a warp."""
    a = np.arange(64, dtype=np.int32)
    out = kernels.blank(a.nbytes)
    kernels.launch("apart", 1, 64, [kernels.buffer(a), out])
    want = a.copy()
    want[32:] = a[32:].sum()
    want[:8] = a[7::-1]
    np.testing.assert_array_equal(kernels.read(out, "i4"), want)


def test_order_within_a_warp(kernels: Any) -> None:
    """``__syncwarp`` orders what lanes of a warp do with shared memory."""
    a = np.arange(64, dtype=np.int32)
    out = kernels.blank(a.nbytes)
    kernels.launch("within_warp", 1, 64, [kernels.buffer(a), out])
    np.testing.assert_array_equal(kernels.read(out, "i4"), a[a ^ 3])


def test_three_dimensions(kernels: Any) -> None:
    """Blocks and grids of three dimensions."""
    out = kernels.blank(4 * 6 * 6 * 8)
    kernels.launch("three_dimensions", (2, 3, 2), (4, 2, 3), [out])
    z, y, x = np.meshgrid(np.arange(6), np.arange(6), np.arange(8), indexing="ij")
    np.testing.assert_array_equal(kernels.read(out, "i4").reshape(6, 6, 8), x + 100 * y + 10000 * z)


def test_same_value_by_all(kernels: Any) -> None:
    """Threads may write the same value to one place; blocks may have nothing to do."""
    out = kernels.blank(4)
    kernels.launch("same_value", 4, 64, [out], 2)
    assert kernels.read(out, "i4")[0] == 7


def test_cuda_reads_the_same_source() -> None:
    """The kernels of these tests are CUDA C."""
    try:
        nvrtc_for("sm_80")
    except DeviceError as error:
        pytest.skip(str(error))
    compiled = compile_cuda(SOURCE, "sm_80")
    assert "row_sum" in compiled.resources
