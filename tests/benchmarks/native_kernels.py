"""Native kernels beside NumPy's own functions on the same arrays: what moves bytes, and what computes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import hloopt
from hloopt.backends.native.compile import compile_native
from hloopt.runtime.program import NativeOptions

__all__ = ["NATIVE_KERNELS", "native_kernels"]

NATIVE_KERNELS = "Native kernels (best seconds; ratio of NumPy to two threads)"

_REDUCERS = """add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
most { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] maximum(a, b) }
"""
_ROWS, _COLUMNS = 4096, 1024
_SHAPE = f"f32[{_ROWS},{_COLUMNS}]"
_ACROSS = f"{_SHAPE} broadcast({{0}}), dimensions={{{{0}}}}"

Array = Any


def _softmax(x: Array) -> Array:
    power = np.exp(x - x.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def _layernorm(x: Array) -> Array:
    less = x - x.mean(axis=1, keepdims=True)
    spread = (less * less).mean(axis=1, keepdims=True)
    return less / np.sqrt(spread + np.float32(1e-6))


_SUM = f"""
 zero = f32[] constant(0)
 s = f32[{_ROWS}] reduce({{0}}, zero), dimensions={{{{1}}}}, to_apply=add"""

CASES: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "copy": (f"ROOT r = {_SHAPE} copy(x)", np.copy),
    "add": (f"ROOT r = {_SHAPE} add(x, x)", lambda x: x + x),
    "exp": (f"ROOT r = {_SHAPE} exponential(x)", np.exp),
    "tanh": (f"ROOT r = {_SHAPE} tanh(x)", np.tanh),
    "sine": (f"ROOT r = {_SHAPE} sine(x)", np.sin),
    "to bf16": (
        f"ROOT r = bf16[{_ROWS},{_COLUMNS}] convert(x)",
        lambda x: ((x.view(np.uint32) + 0x7FFF + (x.view(np.uint32) >> 16 & 1)) >> 16).astype(
            np.uint16
        ),
    ),
    "transpose": (
        f"ROOT r = f32[{_COLUMNS},{_ROWS}] transpose(x), dimensions={{1,0}}",
        lambda x: np.ascontiguousarray(x.T),
    ),
    "sum of all": (
        "zero = f32[] constant(0)\n ROOT r = f32[] reduce(x, zero), dimensions={0,1}, to_apply=add",
        np.sum,
    ),
    "row sums": (
        f"zero = f32[] constant(0)\n ROOT r = f32[{_ROWS}] reduce(x, zero), dimensions={{1}}, to_apply=add",
        lambda x: x.sum(axis=1),
    ),
    "column sums": (
        f"zero = f32[] constant(0)\n ROOT r = f32[{_COLUMNS}] reduce(x, zero), dimensions={{0}}, to_apply=add",
        lambda x: x.sum(axis=0),
    ),
    "softmax": (
        f"""low = f32[] constant(-inf)
 m = f32[{_ROWS}] reduce(x, low), dimensions={{1}}, to_apply=most
 ms = {_ACROSS.format("m")}
 d = {_SHAPE} subtract(x, ms)
 e = {_SHAPE} exponential(d){_SUM.format("e")}
 ss = {_ACROSS.format("s")}
 ROOT r = {_SHAPE} divide(e, ss)""",
        _softmax,
    ),
    "layernorm": (
        f"""part = f32[] constant({1 / _COLUMNS})
 small = f32[] constant(1e-6)
 parts = f32[{_ROWS}] broadcast(part), dimensions={{}}
 smalls = f32[{_ROWS}] broadcast(small), dimensions={{}}{_SUM.format("x")}
 mean = f32[{_ROWS}] multiply(s, parts)
 means = {_ACROSS.format("mean")}
 d = {_SHAPE} subtract(x, means)
 q = {_SHAPE} multiply(d, d)
 v = f32[{_ROWS}] reduce(q, zero), dimensions={{1}}, to_apply=add
 w = f32[{_ROWS}] multiply(v, parts)
 more = f32[{_ROWS}] add(w, smalls)
 i = f32[{_ROWS}] rsqrt(more)
 is = {_ACROSS.format("i")}
 ROOT r = {_SHAPE} multiply(d, is)""",
        _layernorm,
    ),
}


def _text(body: str) -> str:
    """The ops as one fusion, so that one kernel runs them."""
    root = body.rsplit("ROOT r = ", 1)[1].split(" ", maxsplit=1)[0]
    inner = f"body {{\n x = {_SHAPE} parameter(0)\n {body}\n}}\n"
    call = f" ROOT f = {root} fusion(x), kind=kLoop, calls=body"
    return f"HloModule m\n{_REDUCERS}{inner}ENTRY e {{\n x = {_SHAPE} parameter(0)\n{call}\n}}\n"


def native_kernels(count: int) -> list[dict[str, Any]]:
    """Best seconds of a run; the ways take turns, so that a busy moment meets all."""
    x = np.random.default_rng(0).normal(size=(_ROWS, _COLUMNS)).astype(np.float32)
    rows = []
    for name, (body, function) in CASES.items():
        module = hloopt.parse(_text(body), name)
        one, two = (compile_native(module, NativeOptions(threads=threads)) for threads in (1, 2))
        ways: dict[str, Callable[[], object]] = {
            "numpy": lambda function=function: function(x),  # type: ignore[misc]
            "1 thread": lambda program=one: program.run([x]),  # type: ignore[misc]
            "2 threads": lambda program=two: program.run([x]),  # type: ignore[misc]
        }
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(max(5, count)):
            for way, step in ways.items():
                start = time.perf_counter()
                step()
                best[way] = min(best[way], time.perf_counter() - start)
        rows.append({"kernel": name, **best, "ratio": best["numpy"] / best["2 threads"]})
    return rows
