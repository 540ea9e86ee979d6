"""Check mode finds each kind of bug and says where it is; fast mode finds what would hang a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hloopt.backends.host_compiler import find_compiler
from hloopt.errors import EvaluationError

# One kernel for each kind of bug, none of which is wrong in any other way.
SOURCE = r"""
template <class T, int N> struct alignas(N * sizeof(T)) Vector { T lane[N]; };
template <int N, class T>
__device__ Vector<T, N> load_vector(const T* p) { return *reinterpret_cast<const Vector<T, N>*>(p); }
template <class T, int N>
__device__ void store_vector(T* p, Vector<T, N> v) { *reinterpret_cast<Vector<T, N>*>(p) = v; }
template <class T> __device__ T shuffle_down(T value, int distance) {
  return __shfl_down_sync(0xffffffffu, value, distance);
}

extern "C" __global__ void past_the_end(const int* __restrict__ in, int* __restrict__ out) {
  out[threadIdx.x] = in[threadIdx.x + 1];
}
extern "C" __global__ void before_the_beginning(const int* __restrict__ in, int* __restrict__ out) {
  out[threadIdx.x] = (in + threadIdx.x)[-1];
}
extern "C" __global__ void write_past_the_end(const int* __restrict__ in, int* __restrict__ out) {
  const int t = threadIdx.x;
  out[t * 2] = in[t];
}
extern "C" __global__ void write_before_the_beginning(const int* __restrict__ in, int* __restrict__ out) {
  out[(int)threadIdx.x - 3] = in[threadIdx.x];
}
extern "C" __global__ void write_to_input(int* __restrict__ in, int* __restrict__ out) {
  out[threadIdx.x] = 1;
  in[threadIdx.x] = 2;
}
extern "C" __global__ void read_of_output(const int* __restrict__ in, int* __restrict__ out) {
  out[threadIdx.x] += in[threadIdx.x];
}
extern "C" __global__ void unwritten(const int* __restrict__ in, int* __restrict__ out) {
  if (threadIdx.x % 32 > 2) out[threadIdx.x] = in[threadIdx.x];
}
extern "C" __global__ void vector_past_the_end(const int* __restrict__ in, int* __restrict__ out) {
  out[threadIdx.x] = load_vector<4>(in + threadIdx.x * 4).lane[0];
}
extern "C" __global__ void vector_misaligned(const int* __restrict__ in, int* __restrict__ out) {
  out[threadIdx.x] = load_vector<2>(in + threadIdx.x / 2).lane[0];
}
extern "C" __global__ void vector_store_misaligned(const int* __restrict__ in, int* __restrict__ out) {
  store_vector(out + 1, load_vector<4>(in));
}
extern "C" __global__ void atomic_past_the_end(const int* __restrict__ in, int* __restrict__ out) {
  atomicAdd(&out[in[threadIdx.x]], 1);
}
extern "C" __global__ void writes_collide(const int* __restrict__ in, int* __restrict__ out) {
  out[threadIdx.x / 2] = in[threadIdx.x];
}
extern "C" __global__ void blocks_collide(const int* __restrict__ in, int* __restrict__ out) {
  out[threadIdx.x] = in[threadIdx.x] + blockIdx.x;
}
extern "C" __global__ void reads_neighbour(const int* __restrict__ in, int* __restrict__ out) {
  out[threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x > 0) out[threadIdx.x] = out[threadIdx.x - 1];
}
extern "C" __global__ void reads_other_block(int* __restrict__ out, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  out[i] = i;
  __syncthreads();
  if (blockIdx.x > 0 && threadIdx.x == 0) out[i] = out[i - n] + 1;
}
extern "C" __global__ void overwrites_what_others_read(const int* __restrict__ in, int* __restrict__ out) {
  const int left = out[(threadIdx.x + 63) % 64];
  out[threadIdx.x] = left + in[threadIdx.x];
}
extern "C" __global__ void atomics_and_writes(const int* __restrict__ in, int* __restrict__ out) {
  if (threadIdx.x == 5) out[0] = 0;
  atomicAdd(&out[0], in[threadIdx.x]);
}
extern "C" __global__ void shared_out_of_bounds(const int* __restrict__ in, int* __restrict__ out) {
  __shared__ int s[8][8];
  s[threadIdx.x / 8][threadIdx.x % 8] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x / 8][threadIdx.x % 8 + 1];
}
extern "C" __global__ void shared_unwritten(const int* __restrict__ in, int* __restrict__ out) {
  __shared__ int s[64];
  if (threadIdx.x != 40) s[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void no_barrier(const int* __restrict__ in, int* __restrict__ out) {
  __shared__ int s[64];
  s[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = s[threadIdx.x / 2] + __syncthreads_or(0);
}
extern "C" __global__ void one_barrier_too_few(const int* __restrict__ in, int* __restrict__ out) {
  __shared__ int s[64];
  int sum = 0;
  for (int k = 0; k < 2; k++) {
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    sum += s[(threadIdx.x + 1) % 64];
  }
  out[threadIdx.x] = sum;
}
extern "C" __global__ void shared_writes_collide(const int* __restrict__ in, int* __restrict__ out) {
  __shared__ int s[64];
  s[threadIdx.x & ~1] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x & ~1];
}
extern "C" __global__ void warp_without_syncwarp(const int* __restrict__ in, int* __restrict__ out) {
  __shared__ int s[32];
  s[threadIdx.x % 32] = in[threadIdx.x];
  const int first = shuffle_down(in[threadIdx.x], 1);
  out[threadIdx.x] = s[threadIdx.x ^ 1] + first;
}
extern "C" __global__ void syncwarp_for_a_block(const int* __restrict__ in, int* __restrict__ out) {
  __shared__ int s[64];
  s[threadIdx.x] = in[threadIdx.x];
  __syncwarp();
  out[threadIdx.x] = s[threadIdx.x / 2];
}
extern "C" __global__ void barrier_in_a_branch(const int* __restrict__ in, int* __restrict__ out) {
  out[threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x < 40) __syncthreads();
}
extern "C" __global__ void different_barriers(const int* __restrict__ in, int* __restrict__ out) {
  out[threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
extern "C" __global__ void shuffle_in_a_branch(const int* __restrict__ in, int* __restrict__ out) {
  int v = in[threadIdx.x];
  if (threadIdx.x % 32 < 16) v += shuffle_down(v, 8);
  __syncthreads();
  out[threadIdx.x] = v;
}
extern "C" __global__ void different_shuffles(const int* __restrict__ in, int* __restrict__ out) {
  int v = in[threadIdx.x];
  if (threadIdx.x % 32 < 16) {
    v += shuffle_down(v, 8);
  } else {
    v += shuffle_down(v, 4);
  }
  out[threadIdx.x] = v;
}
extern "C" __global__ void shuffle_from_the_dead(const int* __restrict__ in, int* __restrict__ out) {
  int v = in[threadIdx.x];
  out[threadIdx.x] = v;
  if (threadIdx.x == 31) return;
  v += shuffle_down(v, 1);
  out[threadIdx.x] = v;
}
extern "C" __global__ void not_in_its_mask(const int* __restrict__ in, int* __restrict__ out) {
  out[threadIdx.x] = __shfl_sync(0x0000ffffu, in[threadIdx.x], 0);
}
extern "C" __global__ void own_array_out_of_bounds(const int* __restrict__ in, int* __restrict__ out) {
  int own[2][3] = {};
  own[0][in[threadIdx.x] % 4] += 1;
  out[threadIdx.x] = own[0][0] + own[1][0];
}
extern "C" __global__ void lane_out_of_bounds(const int* __restrict__ in, int* __restrict__ out) {
  Vector<int, 2> v = load_vector<2>(in);
  out[threadIdx.x] = v.lane[in[threadIdx.x] / 20];
}
extern "C" __global__ void trapped(const int* __restrict__ in, int* __restrict__ out) {
  if (in[threadIdx.x] == 7) __trap();
  out[threadIdx.x] = 0;
}
"""

# kernel, bytes of its output, blocks, and how the message goes on
FINDINGS: list[tuple[str, int, int, str]] = [
    (
        "past_the_end",
        256,
        1,
        (
            r"thread (63, 0, 0) of block (0, 0, 0) reads bytes 256 to 259 of 'in', which has 256 bytes "
            r"(line 12: out[threadIdx.x] = in[threadIdx.x + 1];)"
        ),
    ),
    (
        "before_the_beginning",
        256,
        1,
        "thread (0, 0, 0) of block (0, 0, 0) reads bytes -4 to -1 of 'in', which has 256 bytes",
    ),
    (
        "write_past_the_end",
        256,
        1,
        (
            "thread (32, 0, 0) of block (0, 0, 0) writes bytes 256 to 259 of 'out', which has 256 bytes "
            "(line 19: out[t * 2] = in[t];)"
        ),
    ),
    (
        "write_before_the_beginning",
        256,
        1,
        "thread (0, 0, 0) of block (0, 0, 0) writes bytes -12 to -9 of 'out', which has 256 bytes",
    ),
    (
        "write_to_input",
        256,
        1,
        "thread (0, 0, 0) of block (0, 0, 0) writes bytes 0 to 3 of 'in', which is an input",
    ),
    (
        "read_of_output",
        256,
        1,
        "thread (0, 0, 0) of block (0, 0, 0) reads bytes 0 to 3 of 'out', which were never written",
    ),
    (
        "unwritten",
        256,
        1,
        "leaves 24 of the 256 bytes of 'out' unwritten, the first at byte 0",
    ),
    (
        "vector_past_the_end",
        256,
        1,
        "thread (16, 0, 0) of block (0, 0, 0) reads bytes 256 to 271 of 'in', which has 256 bytes",
    ),
    (
        "vector_misaligned",
        256,
        1,
        (
            "thread (2, 0, 0) of block (0, 0, 0) reads 8 bytes at byte 4 of 'in', "
            "which is not aligned to 8 bytes"
        ),
    ),
    (
        "vector_store_misaligned",
        256,
        1,
        (
            "thread (0, 0, 0) of block (0, 0, 0) writes 16 bytes at byte 4 of 'out', "
            "which is not aligned to 16 bytes"
        ),
    ),
    (
        "atomic_past_the_end",
        -128,
        1,
        "thread (32, 0, 0) of block (0, 0, 0) updates bytes 128 to 131 of 'out', which has 128 bytes",
    ),
    (
        "writes_collide",
        128,
        1,
        (
            "thread (1, 0, 0) of block (0, 0, 0) writes bytes 0 to 3 of 'out', "
            "which thread (0, 0, 0) writes with another value with no barrier between"
        ),
    ),
    (
        "blocks_collide",
        256,
        2,
        (
            "thread (0, 0, 0) of block (1, 0, 0) writes bytes 0 to 3 of 'out', "
            "which thread (0, 0, 0) of block (0, 0, 0) writes with another value in the same launch"
        ),
    ),
    (
        "reads_neighbour",
        256,
        1,
        (
            "thread (1, 0, 0) of block (0, 0, 0) reads bytes 0 to 3 of 'out', "
            "which thread (0, 0, 0) writes with no barrier between"
        ),
    ),
    (
        "overwrites_what_others_read",
        -256,
        1,
        (
            "thread (1, 0, 0) of block (0, 0, 0) reads bytes 0 to 3 of 'out', "
            "which thread (0, 0, 0) writes with no barrier between"
        ),
    ),
    (
        "atomics_and_writes",
        -256,
        1,
        (
            "thread (5, 0, 0) of block (0, 0, 0) writes bytes 0 to 3 of 'out', "
            "which thread (4, 0, 0) updates atomically with no barrier between"
        ),
    ),
    (
        "shared_out_of_bounds",
        256,
        1,
        (
            "thread (63, 0, 0) of block (0, 0, 0) accesses index 8 of dimension 1 of the shared array 's', "
            "which has 8 elements there"
        ),
    ),
    (
        "shared_unwritten",
        256,
        1,
        (
            "thread (23, 0, 0) of block (0, 0, 0) reads element 40 of the shared array 's', "
            "which no thread has written yet"
        ),
    ),
    (
        "no_barrier",
        256,
        1,
        (
            "thread (1, 0, 0) of block (0, 0, 0) reads element 0 of the shared array 's', "
            "which thread (0, 0, 0) writes with no barrier between"
        ),
    ),
    (
        "one_barrier_too_few",
        256,
        1,
        (
            "thread (33, 0, 0) of block (0, 0, 0) writes element 33 of the shared array 's', "
            "which thread (32, 0, 0) reads with no barrier between"
        ),
    ),
    (
        "shared_writes_collide",
        256,
        1,
        (
            "thread (1, 0, 0) of block (0, 0, 0) writes element 0 of the shared array 's', "
            "which thread (0, 0, 0) writes with another value with no barrier between"
        ),
    ),
    (
        "warp_without_syncwarp",
        256,
        1,
        (
            "thread (31, 0, 0) of block (0, 0, 0) reads element 30 of the shared array 's', "
            "which thread (30, 0, 0) writes with no barrier between"
        ),
    ),
    (
        "syncwarp_for_a_block",
        256,
        1,
        (
            "thread (63, 0, 0) of block (0, 0, 0) reads element 31 of the shared array 's', "
            "which thread (31, 0, 0) writes with no barrier between"
        ),
    ),
    (
        "barrier_in_a_branch",
        256,
        1,
        (
            "thread (40, 0, 0) of block (0, 0, 0) returned without reaching a barrier "
            "that other threads of its block wait at"
        ),
    ),
    (
        "different_barriers",
        256,
        1,
        "thread (32, 0, 0) of block (0, 0, 0) waits at another barrier than threads of its block do",
    ),
    (
        "shuffle_in_a_branch",
        256,
        1,
        (
            "thread (0, 0, 0) of block (0, 0, 0) waits at a shuffle that lane 16 of its warp does not reach: "
            "it waits at the barrier of line"
        ),
    ),
    (
        "different_shuffles",
        256,
        1,
        (
            "thread (16, 0, 0) of block (0, 0, 0) is at a shuffle with mask 0xffffffff while lane 0 "
            "of its warp is at a shuffle with mask 0xffffffff in line"
        ),
    ),
    (
        "shuffle_from_the_dead",
        256,
        1,
        "thread (30, 0, 0) of block (0, 0, 0) shuffles from lane 31, which takes no part",
    ),
    (
        "not_in_its_mask",
        256,
        1,
        "thread (16, 0, 0) of block (0, 0, 0) is at a shuffle whose mask 0xffff does not name its lane",
    ),
    (
        "own_array_out_of_bounds",
        256,
        1,
        "an index is outside of an array of the thread's own",
    ),
    ("lane_out_of_bounds", 256, 1, "an index is outside of an array of the thread's own"),
    ("trapped", 256, 1, "thread (7, 0, 0) of block (0, 0, 0) executes __trap()"),
]

DESCRIBE = {name: f"%{name}.1 = s32[64] custom" for name, *_ in FINDINGS}


def failure(bench: Callable[..., Any], name: str, out: int, blocks: int, **options: Any) -> str:
    """What a kernel fails with; a negative size is an output that holds zeros."""
    made = bench(SOURCE, DESCRIBE, **options)
    given = made.buffer(np.arange(64, dtype=np.int32))
    zeros = np.zeros(abs(out) // 4, np.int32)
    result = made.buffer(zeros, "update") if out < 0 else made.blank(out)
    made.launch(name, blocks, 64, [given, result])
    with pytest.raises(EvaluationError) as caught:
        made.read(result, "i4")
    return str(caught.value)


@pytest.mark.parametrize(("name", "out", "blocks", "text"), FINDINGS, ids=[f[0] for f in FINDINGS])
def test_finding(bench: Callable[..., Any], name: str, out: int, blocks: int, text: str) -> None:
    """Each kind of bug is named with kernel, instruction, block, thread and what was accessed."""
    message = failure(bench, name, out, blocks, mode="check")
    assert message.startswith(f"kernel {name} ({DESCRIBE[name]})")
    assert text in message


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("name", "out", "blocks"), [f[:3] for f in FINDINGS], ids=DESCRIBE)
def test_finding_in_any_order(
    bench: Callable[..., Any], name: str, out: int, blocks: int, seed: int
) -> None:
    """No bug depends on the order of threads to be found."""
    assert failure(bench, name, out, blocks, mode="check", seed=seed).startswith(f"kernel {name} ")


@pytest.mark.parametrize("name", ["shuffle_in_a_branch", "not_in_its_mask", "trapped"])
def test_finding_in_fast_mode(bench: Callable[..., Any], name: str) -> None:
    """What would hang or stop a GPU is found without checks, too."""
    assert failure(bench, name, 256, 1, mode="fast").startswith(f"kernel {name} ")


def test_race_between_blocks(bench: Callable[..., Any]) -> None:
    """A read of what another block writes is a race, whatever barriers there are."""
    made = bench(SOURCE, mode="check")
    out = made.blank(2 * 64 * 4)
    made.launch("reads_other_block", 2, 64, [out], 64)
    message = (
        "kernel reads_other_block: thread (0, 0, 0) of block (1, 0, 0) reads bytes 0 to 3 of 'out', "
        "which thread (0, 0, 0) of block (0, 0, 0) writes in the same launch"
    )
    with pytest.raises(EvaluationError, match=re.escape(message)):
        made.read(out, "i4")


def test_input_nobody_wrote(bench: Callable[..., Any]) -> None:
    """Bytes nobody wrote are not to be read; copies of them are as little written."""
    made = bench(SOURCE, mode="check")
    given, copied, out = made.blank(256, "in"), made.blank(256, "in"), made.blank(256)
    made.device.copy(copied.pointer, given.pointer)
    made.launch("writes_collide", 1, 1, [copied, out])
    with pytest.raises(
        EvaluationError, match=r"reads bytes 0 to 3 of 'in', which were never written"
    ):
        made.read(out, "i4")


def test_download_of_what_nobody_wrote(bench: Callable[..., Any]) -> None:
    """What only some launches of several should have written is asked for when it is read."""
    made = bench(SOURCE, mode="check")
    given = made.buffer(np.arange(64, dtype=np.int32))
    out = made.blank(256, partial=True)
    made.launch("unwritten", 1, 64, [given, out])
    with pytest.raises(
        EvaluationError, match=r"byte 0 of the 256 to be downloaded was never written"
    ):
        made.read(out, "i4")


def test_several_launches_write_one_output(bench: Callable[..., Any]) -> None:
    """An output that is partial may be written by several launches."""
    made = bench(SOURCE, mode="check")
    given = made.buffer(np.arange(64, dtype=np.int32))
    out = made.blank(256, partial=True)
    made.launch("unwritten", 1, 64, [given, out])
    made.launch("writes_collide", 1, 1, [given, out])
    made.launch("vector_past_the_end", 1, 3, [given, out])
    made.device.fill(type(out.pointer)(out.pointer.allocation, 128, 128), 0)
    assert made.read(out, "i4")[:4].tolist() == [0, 4, 8, 3]


def test_an_output_is_fresh_in_each_launch(bench: Callable[..., Any]) -> None:
    """What an output held before the launch is not to be read."""
    made = bench(SOURCE, mode="check")
    given = made.buffer(np.arange(64, dtype=np.int32))
    out = made.buffer(np.zeros(64, np.int32), "out")
    made.launch("read_of_output", 1, 64, [given, out])
    with pytest.raises(EvaluationError, match="'out', which were never written"):
        made.read(out, "i4")


def test_an_output_in_an_operands_place(bench: Callable[..., Any]) -> None:
    """An output that lies in an operand's buffer may be read by way of the operand."""
    made = bench(SOURCE, mode="check")
    given = made.buffer(np.arange(64, dtype=np.int32))
    out = type(given)(given.pointer, "out")
    made.launch("atomic_past_the_end", 1, 1, [given, made.buffer(np.zeros(4, "i4"), "update")])
    made.launch("reads_neighbour", 1, 1, [given, type(out)(_first(given.pointer, 4), "out")])
    assert made.read(given, "i4")[0] == 0
    made.launch("unwritten", 1, 64, [given, out])
    with pytest.raises(EvaluationError, match="leaves 24 of the 256 bytes of 'out' unwritten"):
        made.read(out, "i4")


def test_race_between_an_operand_and_an_output(bench: Callable[..., Any]) -> None:
    """In one buffer, a thread must not read by one name what another writes by the other."""
    source = (
        "__global__ void k(const int* in, int* out) { out[threadIdx.x] = in[63 - threadIdx.x]; }"
    )
    made = bench(source, mode="check")
    given, elsewhere = made.buffer(np.arange(64, dtype=np.int32)), made.blank(256)
    made.launch("k", 1, 64, [given, elsewhere])
    assert made.read(elsewhere, "i4")[0] == 63
    made.launch("k", 1, 64, [given, type(given)(given.pointer, "out")])
    message = r"reads bytes 124 to 127 of 'in', which thread \(31, 0, 0\) writes with no barrier"
    with pytest.raises(EvaluationError, match=message):
        made.read(given, "i4")


def _first(pointer: Any, byte_size: int) -> Any:
    return type(pointer)(pointer.allocation, pointer.offset, byte_size)


def test_more_blocks_than_are_told_apart(
    bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the numbers of blocks begin anew, what was known of older ones is no finding, new bugs are."""
    monkeypatch.setenv(
        "CXX", " ".join([*find_compiler("the emulator").command, "-DHLOOPT_MOST_BLOCKS=10"])
    )
    source = """
__global__ void swap(int* out, int distance) {
  __shared__ int s[64];
  s[threadIdx.x] = out[threadIdx.x + blockIdx.x * distance];
  __syncthreads();
  out[threadIdx.x + blockIdx.x * distance] = s[63 - threadIdx.x] + blockIdx.x;
}"""
    made = bench(source, mode="check")
    out = made.buffer(np.arange(192, dtype=np.int32), "update")
    for _ in range(40):
        made.launch("swap", 3, 64, [out], 64)
    assert made.read(out, "i4")[::64].tolist() == [0, 64 + 40, 128 + 80]
    made.launch("swap", 3, 64, [out], 0)
    with pytest.raises(EvaluationError, match=r"'out', which .* in the same launch"):
        made.read(out, "i4")
    made.launch("swap", 11, 64, [out], 0)
    with pytest.raises(EvaluationError, match="has more blocks than check mode can count"):
        made.read(out, "i4")


def test_argument_off_its_elements(bench: Callable[..., Any]) -> None:
    """A buffer must begin at a multiple of its elements' size."""
    made = bench(SOURCE, mode="check")
    given, out = made.buffer(np.arange(65, dtype=np.int32)), made.blank(256)
    shifted = type(given)(type(given.pointer)(given.pointer.allocation, 2, 256), "in")
    made.launch("trapped", 1, 64, [shifted, out])
    with pytest.raises(
        EvaluationError, match=r"is handed 'in' at byte 2, which is not a multiple of its elements"
    ):
        made.read(out, "i4")
