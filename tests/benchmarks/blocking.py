"""Large elementwise and reduce work in NumPy: op by op over whole arrays, and by blocks on one and two threads."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hloopt
from hloopt.backends.numpy import block_limits
from hloopt.backends.numpy.block_limits import BlockLimits
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.ir import Module
from hloopt.runtime.inputs import generate
from hloopt.runtime.program import NumpyOptions

__all__ = ["BLOCKING", "blocking"]

BLOCKING = "Work by blocks in NumPy (best seconds; ratios of whole arrays to blocks)"
_SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
_SECONDS = 1.0  # for each row at most, once every way has had its turns

_REGIONS = """add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
most { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] maximum(a, b) }
"""
_CHEAP = """ x = f32[{n}] parameter(0)
 y = f32[{n}] parameter(1)
 a = f32[{n}] multiply(x, y)
 b = f32[{n}] add(a, x)
 c = f32[{n}] subtract(b, y)
 d = f32[{n}] multiply(c, c)
 e = f32[{n}] add(d, a)
 ROOT r = f32[{n}] multiply(e, b)"""
_FUNCTIONS = """ x = f32[{n}] parameter(0)
 a = f32[{n}] tanh(x)
 b = f32[{n}] exponential(a)
 c = f32[{n}] multiply(a, b)
 d = f32[{n}] logistic(c)
 e = f32[{n}] cosine(d)
 ROOT r = f32[{n}] add(e, x)"""
_SOFTMAX = """ x = f32[{rows},100] parameter(0)
 low = f32[] constant(-inf)
 zero = f32[] constant(0)
 m = f32[{rows}] reduce(x, low), dimensions={{1}}, to_apply=most
 mb = f32[{rows},100] broadcast(m), dimensions={{0}}
 d = f32[{rows},100] subtract(x, mb)
 e = f32[{rows},100] exponential(d)
 s = f32[{rows}] reduce(e, zero), dimensions={{1}}, to_apply=add
 sb = f32[{rows},100] broadcast(s), dimensions={{0}}
 ROOT r = f32[{rows},100] divide(e, sb)"""
_LAYERNORM = """ x = f32[{rows},100] parameter(0)
 g = f32[100] parameter(1)
 zero = f32[] constant(0)
 part = f32[] constant(0.01)
 small = f32[] constant(1e-6)
 parts = f32[{rows}] broadcast(part), dimensions={{}}
 smalls = f32[{rows}] broadcast(small), dimensions={{}}
 s = f32[{rows}] reduce(x, zero), dimensions={{1}}, to_apply=add
 mean = f32[{rows}] multiply(s, parts)
 means = f32[{rows},100] broadcast(mean), dimensions={{0}}
 d = f32[{rows},100] subtract(x, means)
 q = f32[{rows},100] multiply(d, d)
 v = f32[{rows}] reduce(q, zero), dimensions={{1}}, to_apply=add
 var = f32[{rows}] multiply(v, parts)
 more = f32[{rows}] add(var, smalls)
 i = f32[{rows}] rsqrt(more)
 ib = f32[{rows},100] broadcast(i), dimensions={{0}}
 gb = f32[{rows},100] broadcast(g), dimensions={{1}}
 n = f32[{rows},100] multiply(d, ib)
 ROOT r = f32[{rows},100] multiply(n, gb)"""
_COLUMNS = """ x = f32[{rows},100] parameter(0)
 zero = f32[] constant(0)
 q = f32[{rows},100] multiply(x, x)
 s = f32[100] reduce(x, zero), dimensions={{0}}, to_apply=add
 v = f32[100] reduce(q, zero), dimensions={{0}}, to_apply=add
 ROOT r = (f32[100], f32[100]) tuple(s, v)"""
CASES = {
    "cheap chain": _CHEAP,
    "functions": _FUNCTIONS,
    "softmax": _SOFTMAX,
    "layernorm": _LAYERNORM,
    "column sums": _COLUMNS,
}


def blocking(count: int) -> list[dict[str, Any]]:
    """Best seconds of a run of each way; they take turns, so that a busy moment meets all.

    Neighbours on a machine make a run slower, never quicker.
    """
    rows = []
    for name, body in CASES.items():
        for size in _SIZES:
            text = f"HloModule blocking\n{_REGIONS}ENTRY e {{\n{body.format(n=size, rows=size // 100)}\n}}\n"
            module = hloopt.parse(text, name)
            best = _best(module, count)
            row: dict[str, Any] = {"work": name, "elements": float(size), **best}
            row["ratio 1"] = best["whole"] / best["1 thread"]
            row["ratio 2"] = best["whole"] / best["2 threads"]
            rows.append(row)
    return rows


def _best(module: Module, count: int) -> dict[str, float]:
    inputs = generate(module, 0)
    # As if everything were worth while: from which size on it is, the table is to tell.
    with _limits(BlockLimits(least=1 << 60)):
        programs = {"whole": NumpyProgram(module, NumpyOptions(threads=1))}
    with _limits(BlockLimits(least=1)):
        programs |= {
            "1 thread": NumpyProgram(module, NumpyOptions(threads=1)),
            "2 threads": NumpyProgram(module, NumpyOptions(threads=2)),
        }
    best = dict.fromkeys(programs, float("inf"))
    end = time.perf_counter() + _SECONDS
    turns = 0
    while turns <= count or time.perf_counter() < end:
        gc.collect()
        for way, program in programs.items():
            start = time.perf_counter()
            program.run(inputs)
            best[way] = min(best[way], time.perf_counter() - start)
        turns += 1
    return best


@contextmanager
def _limits(limits: BlockLimits) -> Iterator[None]:
    before, block_limits.DEFAULT = block_limits.DEFAULT, limits
    try:
        yield
    finally:
        block_limits.DEFAULT = before
