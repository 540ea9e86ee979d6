"""Kernels that crash or hang end the process they run in, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hloopt.backends.emulator import EmulatorDevice
from hloopt.errors import DeviceError, EvaluationError
from hloopt.runtime.device import Pointer, PointerArgument

SOURCE = r"""
extern "C" __global__ void __launch_bounds__(64) fine(const int* __restrict__ in, int* __restrict__ out, int add) {
  out[threadIdx.x] = in[threadIdx.x] + add;
}
extern "C" __global__ void crashes(const int* __restrict__ in, int* __restrict__ out) {
  const int value = *(const volatile int*)(long long)in[threadIdx.x];
  out[threadIdx.x] = value;
}
extern "C" __global__ void crashes_in_step(const int* __restrict__ in, int* __restrict__ out) {
  __syncthreads();
  const int value = *(const volatile int*)(long long)in[threadIdx.x];
  out[threadIdx.x] = value;
}
extern "C" __global__ void strays(int* __restrict__ out, int n) {
  for (long long i = 0; i < n; i++) out[i * 1000000000ll] = 1;
}
extern "C" __global__ void fills_its_stack(const int* __restrict__ in, int* __restrict__ out, int n) {
  __syncthreads();
  int large[65536];
  for (int i = 0; i < n; i++) large[i] = in[i % 64] + (i ? large[i - 1] : 0);
  __syncthreads();
  out[threadIdx.x] = large[n - 1 - threadIdx.x];
}
extern "C" __global__ void never_ends(const int* __restrict__ in, int* __restrict__ out, int n) {
  for (int i = 0; in[0] != n; i++) out[i & 63] = i;
}
extern "C" __global__ void fails_an_assertion(const int* __restrict__ in, int* __restrict__ out) {
  assert(in[threadIdx.x] < 64);
  out[threadIdx.x] = 0;
}
"""

DESCRIBE = {"never_ends": "%while.3 = s32[64] fusion", "crashes": "%call.1 = s32[64] custom-call"}


@pytest.fixture
def made(bench: Callable[..., Any]) -> Any:
    return bench(SOURCE, DESCRIBE, time_limit=0.5)


@pytest.fixture
def given(made: Any) -> Any:
    return made.buffer(np.arange(64, dtype=np.int32))


@pytest.fixture
def out(made: Any) -> Any:
    return made.blank(256)


def test_launches_in_order(made: Any, given: Any, out: Any) -> None:
    """Launches, copies, fills and uploads happen in the order of the calls."""
    other = made.blank(256)
    for add in range(2000):
        made.launch("fine", 1, 64, [given if add % 2 else out, out if add % 2 else other], add)
    made.device.copy(given.pointer, other.pointer)
    made.device.fill(Pointer(out.pointer.allocation, 4, 8), 255)
    assert made.read(given, "i4").tolist() == [i + 1997 + 1998 for i in range(64)]
    assert made.read(out, "i4")[:4].tolist() == [1999, -1, -1, 2002]
    made.device.upload(given.pointer, np.zeros(64, np.int32))
    made.launch("fine", 1, 64, [given, out], 5)
    made.device.upload(given.pointer, np.ones(64, np.int32))
    assert (made.read(out, "i4") == 5).all()


def test_allocations_may_come_at_any_time(made: Any, given: Any, out: Any) -> None:
    """Memory may be allocated between launches, more of it than one segment holds, or none."""
    made.launch("fine", 1, 64, [given, out], 1)
    large = made.blank(100 << 20)
    assert made.read(made.blank(0), "u1").size == 0
    made.launch("fine", 1, 64, [out, PointerArgument(_part(large, (100 << 20) - 256), "out")], 1)
    assert made.read(large, "i4")[-64:].tolist() == list(range(2, 66))


def _part(argument: Any, offset: int) -> Pointer:
    return Pointer(argument.pointer.allocation, offset, 256)


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_crash(bench: Callable[..., Any], mode: str) -> None:
    """A crash names kernel, instruction, block and signal; memory survives it and the device goes on."""
    made = bench(SOURCE, DESCRIBE, mode=mode)
    given, out = made.buffer(np.arange(64, dtype=np.int32)), made.blank(256)
    made.launch("fine", 1, 64, [given, out], 1)
    made.launch("crashes", 1, 64, [given, out])
    made.launch("fine", 1, 64, [given, out], 2)
    with pytest.raises(EvaluationError) as caught:
        made.read(out, "i4")
    place = "thread (0, 0, 0) of block (0, 0, 0)" if mode == "check" else "block (0, 0, 0)"
    assert str(caught.value) == (
        f"kernel crashes (%call.1 = s32[64] custom-call): {place} crashed with SIGSEGV"
    )
    assert made.read(given, "i4").tolist() == list(range(64))
    made.launch("fine", 1, 64, [given, out], 3)
    assert made.read(out, "i4")[0] == 3


def test_crash_among_threads_in_step(made: Any, given: Any, out: Any) -> None:
    """Of a kernel that synchronises the thread is known without checks."""
    made.launch("crashes_in_step", 1, 64, [given, out])
    with pytest.raises(
        EvaluationError, match=r"thread \(63, 0, 0\) of block \(0, 0, 0\) crashed with SIGSEGV"
    ):
        made.read(out, "i4")


def test_memory_that_is_not_there(made: Any, out: Any) -> None:
    """Without checks a wild access is a crash of the child."""
    made.launch("strays", 1, 1, [out], 1 << 20)
    with pytest.raises(
        EvaluationError, match=r"kernel strays: block .* crashed with SIG(SEGV|BUS)"
    ):
        made.read(out, "i4")


def test_stack_that_is_full(made: Any, given: Any, out: Any) -> None:
    """A fiber's stack ends at a guard."""
    made.launch("fills_its_stack", 1, 64, [given, out], 65536)
    with pytest.raises(EvaluationError, match="crashed with SIGSEGV: its stack is full"):
        made.read(out, "i4")


def test_assertion(made: Any, out: Any) -> None:
    """``assert`` of device code tells its condition and line."""
    given = made.buffer(np.full(64, 64, np.int32))
    made.launch("fails_an_assertion", 1, 64, [given, out])
    with pytest.raises(
        EvaluationError, match=r"fails the assertion in\[threadIdx.x\] < 64 \(line 28: assert"
    ):
        made.read(out, "i4")


def test_endless_loop(made: Any, given: Any, out: Any) -> None:
    """A launch that takes longer than the limit is ended and named, with those before and after it."""
    made.launch("fine", 1, 64, [given, out], 1)
    made.launch("never_ends", 1, 1, [given, out], 5)
    made.launch("fine", 1, 64, [given, out], 2)
    begun = time.monotonic()
    with pytest.raises(EvaluationError) as caught:
        made.read(out, "i4")
    assert str(caught.value) == (
        "kernel never_ends (%while.3 = s32[64] fusion) did not end within 0.5 s"
    )
    assert time.monotonic() - begun < 10
    made.launch("fine", 1, 64, [given, out], 3)
    assert made.read(out, "i4")[0] == 3


def test_many_launches_behind_an_endless_one(made: Any, given: Any, out: Any) -> None:
    """More commands than a pipe holds do not make the parent wait for a child that hangs."""
    made.launch("never_ends", 1, 1, [given, out], 5)
    with pytest.raises(EvaluationError, match=r"never_ends .* did not end"):
        _launch_often(made, 5000, [given, out])


def _launch_often(made: Any, times: int, arguments: Any) -> None:
    for _ in range(times):
        made.launch("fine", 1, 64, arguments, 1)


def test_limit_is_for_each_launch(made: Any, given: Any, out: Any) -> None:
    """Many launches together may take longer than the limit of one."""
    begun = time.monotonic()
    while time.monotonic() - begun < 1.2:
        for _ in range(100):
            made.launch("fine", 64, 64, [given, out], 1)
    assert made.read(out, "i4")[0] == 1


def test_child_that_is_killed(made: Any, given: Any, out: Any) -> None:
    """A child that somebody kills is an error once; the next launch has a new one."""
    made.launch("fine", 1, 64, [given, out], 1)
    made.read(out, "i4")
    os.kill(made.device._child.pid, signal.SIGKILL)
    made.launch("fine", 1, 64, [given, out], 2)
    with pytest.raises(EvaluationError, match="crashed with SIGKILL"):
        made.read(out, "i4")
    made.launch("fine", 1, 64, [given, out], 3)
    assert made.read(out, "i4")[0] == 3


PARENT = """
import sys
import numpy as np
from hloopt.runtime.device import Pointer, PointerArgument
from hloopt.backends.emulator import EmulatorDevice

device = EmulatorDevice()
device.load(sys.argv[1], {})
given, out = (PointerArgument(Pointer(device.allocate(256), 0, 256), role) for role in ("in", "out"))
device.upload(given.pointer, np.zeros(64, np.int32))
device.launch("never_ends", (1, 1, 1), (1, 1, 1), [given, out], [5])
device._start()
print(device._child.pid, flush=True)
device.download(out.pointer)
"""


def test_child_ends_with_its_parent(compiler: None, root: Path) -> None:
    """A child in an endless loop ends soon after its parent was killed."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, SOURCE],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(0.2)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(100):
        if not _is_running(child):
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("the child outlived its parent")


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def test_close_ends_the_child(made: Any, given: Any, out: Any) -> None:
    """Closing a device ends its process; closing it twice is nothing more."""
    made.launch("fine", 1, 64, [given, out], 1)
    made.read(out, "i4")
    process = made.device._child._process
    made.device.close()
    assert process.poll() is not None
    made.device.close()


def test_memory_outlives_a_program(made: Any, given: Any, out: Any) -> None:
    """Another program may be loaded; what is in memory stays."""
    made.launch("fine", 1, 64, [given, out], 1)
    made.device.load(SOURCE.replace("+ add", "- add"), {})
    other = made.blank(256)
    made.launch("fine", 1, 64, [out, other], 5)
    assert made.read(other, "i4").tolist() == [i - 4 for i in range(64)]


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        (
            (1, 1, 1),
            (65, 1, 1),
            r"a block of \(65, 1, 1\) has 65 threads, and at most 64 are allowed",
        ),
        ((0, 1, 1), (1, 1, 1), r"a grid of \(0, 1, 1\) is not within \(2147483647, 65535, 65535\)"),
        ((1, 1, 1), (1, 1, 65), r"a block of \(1, 1, 65\) is not within \(1024, 1024, 64\)"),
        ((1, 65536, 1), (1, 1, 1), r"a grid of \(1, 65536, 1\) is not within"),
    ],
)
def test_launches_a_gpu_refuses(
    made: Any, given: Any, out: Any, grid: Any, block: Any, message: str
) -> None:
    """Sizes a GPU would not take are refused, launch bounds included."""
    with pytest.raises(EvaluationError, match=f"kernel fine: {message}"):
        made.launch("fine", grid, block, [given, out], 1)


def test_wrong_arguments(made: Any, given: Any, out: Any) -> None:
    """A launch with too few arguments, of a kernel there is not, or outside an allocation."""
    made.launch("fine", 1, 64, [given, out])
    with pytest.raises(
        EvaluationError,
        match="kernel fine has 2 pointers and 1 scalars, and was handed 2 and 0",
    ):
        made.read(out, "i4")
    with pytest.raises(DeviceError, match="the program has no kernel called 'none'"):
        made.launch("none", 1, 64, [given, out])
    with pytest.raises(ValueError, match="is outside of"):
        made.launch("fine", 1, 64, [given, PointerArgument(_part(out, 4), "out")], 1)
    with pytest.raises(ValueError, match="do not fill"):
        made.device.upload(out.pointer, np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="does not fill"):
        made.device.copy(_part(out, 0), Pointer(given.pointer.allocation, 0, 8))


def test_nothing_is_loaded() -> None:
    """A launch or a fill needs a program; a mode must be one of two."""
    device = EmulatorDevice()
    pointer = Pointer(device.allocate(4), 0, 4)
    with pytest.raises(DeviceError, match="no program is loaded"):
        device.fill(pointer, 0)
    device.close()
    with pytest.raises(ValueError, match="mode 'slow' is neither fast nor check"):
        EmulatorDevice("slow")  # type: ignore[arg-type]
