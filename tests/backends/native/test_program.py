"""What a native program does around its loops: inputs, results, calls, errors, signals, progress, threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloopt
from hloopt.backends.native import memory
from hloopt.backends.native import program as native
from hloopt.backends.native.addresses import ITEMS
from hloopt.backends.native.calls import NumpyCall, call_of
from hloopt.backends.native.compile import CompiledNative, compile_native
from hloopt.backends.native.memory import Placed
from hloopt.errors import EvaluationError, UnsupportedError, UsageError
from hloopt.interpret import Host
from hloopt.kernels.plan import KernelStep, walk_steps
from hloopt.runtime.program import NativeOptions

ADD = """HloModule m, entry_computation_layout={(f32[3,4]{1,0}, f32[3,4]{0,1})->(f32[3,4]{0,1}, s4[3], f32[3,4]{1,0})}
ENTRY e {
  x = f32[3,4]{1,0} parameter(0)
  y = f32[3,4]{0,1} parameter(1)
  s = f32[3,4]{0,1} add(x, y)
  n = s4[3]{0} constant({1, -8, 7})
  ROOT r = (f32[3,4]{0,1}, s4[3]{0}, f32[3,4]{1,0}) tuple(s, n, x)
}
"""

DONATED = """HloModule m, input_output_alias={ {0}: (0, {}, must-alias) }
ENTRY e {
  x = f32[5] parameter(0)
  y = f32[5] parameter(1)
  s = f32[5] add(x, y)
  ROOT r = (f32[5], f32[5]) tuple(s, y)
}
"""

SLOW = """HloModule m
body {
  s = (s32[], u32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = u32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = u32[4] custom-call(x), custom_call_target="hloopt_test_slow"
  ROOT r = (s32[], u32[4]) tuple(n, y)
}
cond {
  s = (s32[], u32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(2000000000)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
  z = s32[] constant(0)
  x = u32[4] parameter(0)
  t = (s32[], u32[4]) tuple(z, x)
  w = (s32[], u32[4]) while(t), condition=cond, body=body
  ROOT r = u32[4] get-tuple-element(w), index=1
}
"""
QUICK = SLOW.replace(
    'custom-call(x), custom_call_target="hloopt_test_slow"',
    "sort(x), dimensions={0}, to_apply=less",
).replace(
    "body {",
    "less { a = u32[] parameter(0)  b = u32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=LT }\nbody {",
    1,
)


def _program(text: str, **options: int) -> CompiledNative:
    module = hloopt.parse(text)
    hloopt.verify(module)
    return compile_native(module, NativeOptions(**options))


@pytest.fixture(scope="module")
def add() -> CompiledNative:
    return _program(ADD)


def test_layouts_and_packed_types(add: CompiledNative) -> None:
    """Inputs of any strides are logical arrays; so are results, which lie as the entry's layouts say."""
    x = np.arange(24, dtype=np.float32).reshape(3, 8)[:, ::2]
    y = np.asfortranarray(np.ones((3, 4), np.float32))
    total, narrow, same = add.run([x, y])
    assert total.flags.f_contiguous
    assert (total == x + 1).all()
    kept = total.copy()
    again, *_ = add.run([x + 1, y])
    assert (total == kept).all()
    assert (again == x + 2).all()
    assert narrow.dtype == np.dtype(ml_dtypes.int4)
    assert narrow.tolist() == [1, -8, 7]
    assert (same == x).all()


def test_results_are_nobody_elses(add: CompiledNative) -> None:
    """Results share memory with no input, no constant and no later result."""
    x, y = np.zeros((3, 4), np.float32), np.ones((3, 4), np.float32)
    first, second = add.run([x, y]), add.run([x, y])
    for result in first:
        assert not np.shares_memory(result, x)
        assert not np.shares_memory(result, y)
        result[...] = 0
    assert [array.tolist() for array in second] == [array.tolist() for array in add.run([x, y])]
    assert (second[0] == 1).all()


def test_inputs_are_read_where_they_lie(add: CompiledNative) -> None:
    """A row-major input is not copied; one in another order is."""
    x, y = np.zeros((3, 4), np.float32), np.ones((3, 4), np.float32)
    placed = add._memory.place([x, y])
    assert any(array is x for array in placed)
    assert not any(array is y for array in placed)


def test_donated() -> None:
    """What a step writes into is a copy of what the caller gave, and is handed out without another one."""
    program = _program(DONATED)
    x, y = np.full(5, 3, np.float32), np.arange(5, dtype=np.float32)
    total, same = program.run([x, y])
    assert x.tolist() == [3] * 5
    assert total.tolist() == [3, 4, 5, 6, 7]
    assert not np.shares_memory(same, y)
    placed = program._memory.place([x, y])
    results = program._memory.results(placed)
    assert any(results[0] is array for array in placed)


def test_wrong_inputs(add: CompiledNative) -> None:
    """Numbers, dimensions and types that do not fit are errors, as of every program."""
    x = np.zeros((3, 4), np.float32)
    with pytest.raises(EvaluationError, match="has 2 parameter arrays, but 1 input was given"):
        add.run([x])
    with pytest.raises(
        EvaluationError, match=r"has dimensions \[3, 4\], but the input has \[4, 3\]"
    ):
        add.run([x, x.T])
    with pytest.raises(EvaluationError, match=r"parameter 1 .* is f32, but the input is float64"):
        add.run([x, x.astype(np.float64)])
    with pytest.raises(EvaluationError, match="a device runs one participant"):
        add.run_participants([[x, x], [x, x]])


def test_a_call_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of a call comes out as it is, with its traceback; the program works again afterwards."""
    text = """HloModule m
less {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = pred[] compare(p, q), direction=LT
}
ENTRY e {
  x = f32[64,64] parameter(0)
  y = f32[64,64] add(x, x)
  ROOT c = f32[64,64] sort(y), dimensions={1}, to_apply=less
}
"""
    fails = [True]

    def made(*given: Any) -> NumpyCall:
        call = call_of(*given)

        def failing(placed: Placed) -> None:
            if fails[0]:
                raise ZeroDivisionError("on purpose")
            call(placed)

        return failing

    monkeypatch.setattr(native, "call_of", made)
    program = _program(text)
    x = np.eye(64, dtype=np.float32)
    with pytest.raises(ZeroDivisionError, match="on purpose") as caught:
        program.run([x])
    assert caught.traceback[-1].name == "failing"
    fails[0] = False
    assert (program.run([x])[0] == np.sort(2 * x, axis=1)).all()


def test_stuck_loop() -> None:
    """A loop whose state does not change stops with its name."""
    text = """HloModule m
body { s = (s32[], f32[3]) parameter(0)  ROOT r = (s32[], f32[3]) copy(s) }
cond {
  s = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = (s32[], f32[3]) parameter(0)
  ROOT w = (s32[], f32[3]) while(x), condition=cond, body=body
}
"""
    program = _program(text)
    with pytest.raises(EvaluationError, match="w"):
        program.run([np.array(3, np.int32), np.ones(3, np.float32)])
    assert program.run([np.array(7, np.int32), np.ones(3, np.float32)])[0] == 7


# A kernel by itself: a trip of it takes microseconds, all of them hours.
WHOLE = """HloModule m
body {
  s = (s32[], f32[40000]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[40000] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[40000] sine(x)
  z = f32[40000] cosine(y)
  ROOT r = (s32[], f32[40000]) tuple(n, z)
}
cond {
  s = (s32[], f32[40000]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(1000000)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
  z = s32[] constant(0)
  x = f32[40000] parameter(0)
  t = (s32[], f32[40000]) tuple(z, x)
  w = (s32[], f32[40000]) while(t), condition=cond, body=body
  ROOT r = f32[40000] get-tuple-element(w), index=1
}
"""

_INTERRUPTED = """
import os, signal, sys, threading, time
import hloopt
from hloopt.backends.native.compile import compile_native
from hloopt.runtime.program import NativeOptions
from hloopt.runtime.inputs import generate

module = hloopt.parse(sys.stdin.read())
program = compile_native(module, NativeOptions(threads=int(sys.argv[1])))
inputs = generate(module)
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    program.run(inputs)
except KeyboardInterrupt:
    print("stopped", time.monotonic() - start < 60, program.progress.total == len(program.plan.steps))
"""


@pytest.mark.parametrize(
    ("text", "threads"), [(QUICK, 1), (WHOLE, 1), (WHOLE, 3)], ids=["steps", "kernel", "shared"]
)
def test_interrupt(text: str, threads: int) -> None:
    """Ctrl-C ends a long loop, as an exception like any other: between steps, and within a kernel."""
    answer = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, str(threads)],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.stdout.split() == ["stopped", "True", "True"], answer.stderr
    assert "ignored" not in answer.stderr


def test_progress_is_told_while_it_runs() -> None:
    """Another thread sees how many steps there are, and Python goes on beside a program."""
    program = _program(QUICK)
    assert program.progress.total == 0
    assert str(program.progress) == "0 %"
    seen: list[int] = []

    def stop(*_: object) -> None:
        seen.append(program.progress.total)
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(TimeoutError):
            program.run([np.zeros(4, np.uint32)])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen == [len(program.plan.steps)]


LARGE = """HloModule m
ENTRY e {
  x = f32[400000] parameter(0)
  y = f32[400000] sine(x)
  ROOT z = f32[400000] multiply(y, x)
}
"""


@pytest.fixture(scope="module")
def large() -> tuple[CompiledNative, ...]:
    """The same program with one thread, two and seven."""
    return tuple(_program(LARGE, threads=count) for count in (1, 2, 7))


def test_threads_do_not_matter(large: tuple[CompiledNative, ...]) -> None:
    """The same bits with one thread, two and seven; programs of different counts share one pool."""
    x = np.linspace(-9, 9, 400000, dtype=np.float32)
    wanted = large[0].run([x])[0]
    for program in (*large, *reversed(large)):
        assert (program.run([x])[0] == wanted).all()


def test_programs_side_by_side(large: tuple[CompiledNative, ...]) -> None:
    """Programs run by several threads of Python at once do not disturb each other."""
    inputs = [np.full(400000, at, np.float32) for at in range(6)]
    wanted = [large[0].run([x])[0] for x in inputs]
    wrong: list[int] = []

    def work(number: int) -> None:
        runs = (large[number % 3].run([inputs[number]])[0] for _ in range(5))
        wrong.extend(number for result in runs if (result != wanted[number]).any())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork(large: tuple[CompiledNative, ...]) -> None:
    """A child of a process whose pool has run has threads of its own."""
    x = np.linspace(-9, 9, 400000, dtype=np.float32)
    wanted = large[1].run([x])[0]
    child = os.fork()
    if not child:
        os._exit(0 if (large[1].run([x])[0] == wanted).all() else 3)
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.1)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child does not end")
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_kernel_that_was_interrupted(large: tuple[CompiledNative, ...]) -> None:
    """Nothing is left of a run that ended within a kernel: the next one starts anew, others are as before."""
    x = np.linspace(-9, 9, 400000, dtype=np.float32)
    (wanted,) = large[1].run([x])
    program = compile_native(hloopt.parse(WHOLE), NativeOptions(threads=2))
    chosen = {
        one.spec.kernel for one in walk_steps(program.plan.steps) if isinstance(one, KernelStep)
    }
    assert "native-while" in chosen

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            start = time.monotonic()
            with pytest.raises(TimeoutError):
                program.run([x[:40000]])
            assert time.monotonic() - start > 0.2
            assert large[1].run([x])[0].tobytes() == wanted.tobytes()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_generator_of_another_state_is_refused() -> None:
    """What the interpreter does not evaluate no kernel computes, by the name of the instruction."""
    text = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  ROOT bits = (f32[4], f32[4]) rng-bit-generator(x), algorithm=rng_default
}
"""
    with pytest.raises(
        UnsupportedError, match=r":4:8: error: bits: rng_default with state f32\[4\]"
    ):
        _program(text)


def test_thread_count() -> None:
    """As on the CPU; a target is for GPUs."""
    with pytest.raises(UsageError, match="at least 1, got 0"):
        hloopt.compile(hloopt.parse(LARGE), device="native", threads=0)
    with pytest.raises(UsageError, match="it takes no target"):
        hloopt.compile(hloopt.parse(LARGE), device="native", target="a100")


def test_what_is_called_back() -> None:
    """A long sort goes to the NumPy executor, what surrounds it does not."""
    program = _program(QUICK.replace("u32[4]", "u32[2000]"))
    found = [
        (step.instruction.opcode, step.spec.kernel)
        for step in walk_steps(program.plan.steps)
        if isinstance(step, KernelStep)
    ]
    assert ("sort", "native-call") in found
    assert {kernel for opcode, kernel in found if opcode != "sort"} == {"native-loop"}


HOST = """HloModule m
ENTRY e {
  t = token[] after-all()
  given = ((f32[3], s32[]), token[]) infeed(t)
  pair = (f32[3], s32[]) get-tuple-element(given), index=0
  x = f32[3] get-tuple-element(pair), index=0
  n = s32[] get-tuple-element(pair), index=1
  y = f32[3] add(x, x)
  told = token[] outfeed(y, t), outfeed_shape=f32[3]
  low = f32[] constant(0)
  high = f32[] constant(1)
  drawn = f32[4] rng(low, high), distribution=rng_uniform
  state = u64[2] rng-get-and-update-state(), delta=3
  ROOT r = (s32[], f32[4], u64[2]) tuple(n, drawn, state)
}
"""


def test_the_host() -> None:
    """What a module reads from the host, writes to it and draws is what the CPU executor's does."""
    module = hloopt.parse(HOST)
    hloopt.verify(module)
    program, other = compile_native(module), hloopt.compile(module)
    hosts = [Host(seed=5) for _ in range(2)]
    for _ in range(2):
        got, wanted = program.run([], hosts[0]), other.run([], hosts[1])
        for one, two in zip(got, wanted, strict=True):
            assert one.tobytes() == two.tobytes()
    assert hosts[0].written.keys() == hosts[1].written.keys()
    for name, array in hosts[0].written.items():
        assert (array == hosts[1].written[name]).all()


def test_large_results_that_nobody_has_are_written_over() -> None:
    """A result, or a view of it, that somebody holds keeps its values; one that was let go is used again."""
    text = "HloModule m\n\nENTRY e {\n  x = f32[600000] parameter(0)\n  ROOT y = f32[600000] negate(x)\n}\n"
    program = hloopt.compile(hloopt.parse(text), "native")
    x = np.arange(600_000, dtype=np.float32)
    held = program.run([x])[0]
    view = program.run([x + 1])[0][5:7]
    places = set()
    for number in range(4):
        found = program.run([x + number])[0]
        places.add(found.ctypes.data)
        assert found[1] == -1 - number
        del found
    assert len(places) == 1
    assert held[1] == -1
    assert view.tolist() == [-6.0, -7.0]


PLACES = """HloModule m
ENTRY e {
  none = f32[0] parameter(0)
  x = f32[5] parameter(1)
  y = f32[5] parameter(2)
  s = f32[5] subtract(x, y)
  ROOT r = (f32[5], f32[0], f32[5]) tuple(s, none, x)
}
"""


@pytest.mark.parametrize("items", [ITEMS, 0])
def test_arrays_are_found_at_their_places(monkeypatch: pytest.MonkeyPatch, items: int) -> None:
    """By the driver, or one by one where it is not known how Python's lists are made."""
    monkeypatch.setattr(native, "ITEMS", items)
    program = _program(PLACES)
    if items:
        # Python looks at no array then.
        monkeypatch.setattr(memory, "address_of", None)
    none, x, y = np.zeros(0, np.float32), np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    read_only = x.copy()
    read_only.flags.writeable = False
    for given in (x, read_only, np.repeat(x, 2)[::2], x.view(np.recarray)):
        difference, empty, same = program.run([none, given, y])
        assert difference.tolist() == [-1, 0, 1, 2, 3]
        assert empty.shape == (0,)
        assert same.tolist() == x.tolist()
        assert not np.shares_memory(same, given)
