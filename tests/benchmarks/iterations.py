"""Loops over small values in NumPy: what an instruction of a trip costs, beside the same calls by hand."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import hloopt
from tests.helpers.support import Array

__all__ = ["ITERATIONS", "iterations"]

ITERATIONS = "Loops over small values (microseconds an instruction and trip, views not counted)"
_COUNT = 1000
_VIEWS = frozenset(
    (
        *("bitcast", "broadcast", "constant", "get-tuple-element", "iota"),
        *("parameter", "reshape", "slice", "transpose", "tuple"),
    )
)


@dataclass(frozen=True, slots=True)
class _Case:
    """``by_hand`` runs all trips with the calls that a person would write."""

    name: str
    text: str
    inputs: tuple[Array, ...]
    by_hand: Callable[..., Any]
    iterations: int = _COUNT


def iterations(count: int) -> list[dict[str, Any]]:
    """The best of so many runs; both ways take turns, so that a busy moment of the machine meets both."""
    rows = []
    for case in _cases():
        module = hloopt.parse(case.text)
        program = hloopt.compile(module)
        work = sum(
            one.opcode not in _VIEWS
            for computation in module.computations.values()
            if computation is not module.entry
            for one in computation
        )
        best = {"executor": float("inf"), "by hand": float("inf")}
        for _ in range(count + 1):
            for way, run in (("executor", program.run), ("by hand", _spread(case.by_hand))):
                gc.collect()
                start = time.perf_counter()
                with np.errstate(all="ignore"):
                    run(case.inputs)
                best[way] = min(best[way], time.perf_counter() - start)
        row: dict[str, Any] = {"loop": case.name, "instructions": work}
        row |= {way: seconds / (case.iterations * work) * 1e6 for way, seconds in best.items()}
        row["ratio"] = row["executor"] / row["by hand"]
        rows.append(row)
    return rows


def _spread(function: Callable[..., Any]) -> Callable[[tuple[Array, ...]], Any]:
    return lambda inputs: function(*inputs)


def _loop(leaves: str, body: str, results: str, entry: str) -> str:
    """``leaves``: ``name:type`` of the state after the counter ``i``, in order; those of the entry are its
    parameters where ``entry`` does not make them.
    """
    pairs = [leaf.split(":") for leaf in leaves.split()]
    state = ", ".join(["s32[]", *(kind for _, kind in pairs)])
    opened = f"  s = ({state}) parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
    for at, (name, kind) in enumerate(pairs, 1):
        opened += f"  {name} = {kind} get-tuple-element(s), index={at}\n"
    opened += "  one = s32[] constant(1)\n"
    given = "".join(f"  {name} = {kind} parameter({at})\n" for at, (name, kind) in enumerate(pairs))
    names = ", ".join(["i", *(name for name, _ in pairs)])
    return (
        f"body {{\n{opened}  next = s32[] add(i, one)\n{body}\n"
        f"  ROOT r = ({state}) tuple(next, {results})\n}}\n"
        f"again {{\n{opened}  n = s32[] constant({_COUNT})\n"
        "  ROOT c = pred[] compare(i, n), direction=LT\n}\n"
        f"ENTRY e {{\n  i = s32[] constant(0)\n{given}{entry}  t = ({state}) tuple({names})\n"
        f"  ROOT w = ({state}) while(t), condition=again, body=body\n}}\n"
    )


def _cases() -> Iterator[_Case]:
    source = np.random.default_rng(0)
    yield _counter()
    yield _newton(source)
    yield _threefry(source)
    yield _cartpole(source)
    yield _many_leaves(source)
    yield _places(source)
    yield _nested()


def _counter() -> _Case:
    body = (
        "  three = s32[] constant(3)\n  y = s32[] multiply(x, three)\n  z = s32[] xor(y, i)\n"
        "  big = pred[] compare(z, x), direction=GT\n  v = s32[] select(big, z, y)"
    )

    def by_hand(x: Any) -> Any:
        i, x, one, three = np.int32(0), x[()], np.int32(1), np.int32(3)
        while i < _COUNT:
            y = x * three
            z = y ^ i
            x = z if z > x else y
            i = i + one
        return x

    text = "HloModule m\n" + _loop("x:s32[]", body, "v", "")
    return _Case("scalars", text, (np.array(5, np.int32),), by_hand)


def _newton(source: np.random.Generator) -> _Case:
    body = (
        "  c = f32[] constant(3)\n  cs = f32[16] broadcast(c), dimensions={}\n"
        "  x2 = f32[16] multiply(x, x)\n  x3 = f32[16] multiply(x2, x)\n"
        "  d = f32[16] subtract(x3, a)\n  dx = f32[16] multiply(x2, cs)\n"
        "  q = f32[16] divide(d, dx)\n  y = f32[16] subtract(x, q)"
    )

    def by_hand(x: Any, a: Any) -> Any:
        three = np.array(3, np.float32)
        for _ in range(_COUNT):
            square = np.multiply(x, x)
            cube = np.multiply(square, x)
            np.subtract(cube, a, cube)
            np.multiply(square, three, square)
            np.divide(cube, square, cube)
            x = np.subtract(x, cube, cube)
        return x

    text = "HloModule m\n" + _loop("x:f32[16] a:f32[16]", body, "y, a", "")
    a = source.random(16).astype(np.float32) + np.float32(1)
    return _Case("newton, 16 floats", text, (a, a), by_hand)


_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)


def _threefry(source: np.random.Generator) -> _Case:
    """Eight rounds of a trip."""
    lines, left, right = [], "x", "y"
    for at, turn in enumerate(_ROTATIONS):
        lines += [
            f"  k{at} = u32[] constant({turn})\n  l{at} = u32[] constant({32 - turn})",
            f"  kb{at} = u32[8] broadcast(k{at}), dimensions={{}}",
            f"  lb{at} = u32[8] broadcast(l{at}), dimensions={{}}",
            f"  a{at} = u32[8] add({left}, {right})",
            f"  h{at} = u32[8] shift-left({right}, kb{at})",
            f"  r{at} = u32[8] shift-right-logical({right}, lb{at})",
            f"  o{at} = u32[8] or(h{at}, r{at})\n  b{at} = u32[8] xor(o{at}, a{at})",
        ]
        left, right = f"a{at}", f"b{at}"

    def by_hand(x: Any, y: Any) -> Any:
        turns = [(np.array(t, np.uint32), np.array(32 - t, np.uint32)) for t in _ROTATIONS]
        for _ in range(_COUNT):
            for up, down in turns:
                x = np.add(x, y)
                low = np.right_shift(y, down)
                y = np.left_shift(y, up)
                np.bitwise_or(y, low, y)
                np.bitwise_xor(y, x, y)
        return x, y

    text = "HloModule m\n" + _loop("x:u32[8] y:u32[8]", "\n".join(lines), f"{left}, {right}", "")
    words = source.integers(0, 1 << 32, (2, 8), np.uint32)
    return _Case("threefry, 8 words", text, (words[0], words[1]), by_hand)


def _cartpole(source: np.random.Generator) -> _Case:
    body = (
        "  p = f32[1,4] slice(x), slice={[0:1], [0:4]}\n  v = f32[1,4] slice(x), slice={[1:2], [0:4]}\n"
        "  c = f32[] constant(0.02)\n  cs = f32[1,4] broadcast(c), dimensions={}\n"
        "  sn = f32[1,4] sine(p)\n  f = f32[1,4] negate(sn)\n  dv = f32[1,4] multiply(f, cs)\n"
        "  v2 = f32[1,4] add(v, dv)\n  dp = f32[1,4] multiply(v2, cs)\n  p2 = f32[1,4] add(p, dp)\n"
        "  y = f32[2,4] concatenate(p2, v2), dimensions={0}"
    )

    def by_hand(x: Any) -> Any:
        step = np.array(0.02, np.float32)
        for _ in range(_COUNT):
            p, v = x[0], x[1]
            force = np.sin(p)
            np.negative(force, force)
            np.multiply(force, step, force)
            v2 = np.add(v, force, force)
            p2 = np.multiply(v2, step)
            np.add(p, p2, p2)
            x = np.empty((2, 4), np.float32)
            x[0] = p2
            x[1] = v2
        return x

    text = "HloModule m\n" + _loop("x:f32[2,4]", body, "y", "")
    return _Case("pendulum, 4 environments", text, (source.random((2, 4)).astype("f4"),), by_hand)


def _many_leaves(source: np.random.Generator) -> _Case:
    """Sixteen arrays, each of which takes its neighbour's place and one of which changes."""
    names = [f"x{at}" for at in range(16)]
    body = "  y = f32[4] add(x0, x1)\n  z = f32[4] multiply(y, x2)"
    leaves = " ".join(f"{name}:f32[4]" for name in names)

    def by_hand(*arrays: Any) -> Any:
        for _ in range(_COUNT):
            y = np.add(arrays[0], arrays[1])
            arrays = (*arrays[1:], np.multiply(y, arrays[2], y))
        return arrays

    text = "HloModule m\n" + _loop(leaves, body, ", ".join([*names[1:], "z"]), "")
    inputs = tuple(source.random(4).astype("f4") for _ in names)
    return _Case("sixteen arrays", text, inputs, by_hand)


def _places(source: np.random.Generator) -> _Case:
    body = (
        "  z = s32[] constant(0)\n  p = f32[1,4] dynamic-slice(rows, i, z), dynamic_slice_sizes={1,4}\n"
        "  q = f32[4] reshape(p)\n  y = f32[4] add(x, q)\n  w = f32[1,4] reshape(y)\n"
        "  after = f32[1000,4] dynamic-update-slice(out, w, i, z)"
    )

    def by_hand(x: Any, rows: Any, out: Any) -> Any:
        out = out.copy()
        for at in range(_COUNT):
            x = np.add(x, rows[at])
            out[at] = x
        return out

    text = "HloModule m\n" + _loop(
        "x:f32[4] rows:f32[1000,4] out:f32[1000,4]", body, "y, rows, after", ""
    )
    rows = source.random((_COUNT, 4)).astype(np.float32)
    return _Case("slices and updates", text, (rows[0], rows, rows), by_hand)


def _nested() -> _Case:
    """A hundred trips, each of ten of a loop inside."""
    inner = "(s32[], f32[4])"
    opened = f"  s = {inner} parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
    opened += "  x = f32[4] get-tuple-element(s), index=1\n  one = s32[] constant(1)\n"
    text = (
        f"HloModule m\nb0 {{\n{opened}  next = s32[] add(i, one)\n  y = f32[4] multiply(x, x)\n"
        f"  ROOT r = {inner} tuple(next, y)\n}}\n"
        f"c0 {{\n{opened}  n = s32[] constant(10)\n  ROOT c = pred[] compare(i, n), direction=LT\n}}\n"
    ) + _loop(
        "x:f32[4]",
        f"  z = s32[] constant(0)\n  t = {inner} tuple(z, x)\n"
        f"  w = {inner} while(t), condition=c0, body=b0\n  y = f32[4] get-tuple-element(w), index=1",
        "y",
        "",
    ).replace(f"constant({_COUNT})", f"constant({_COUNT // 10})")

    def by_hand(x: Any) -> Any:
        for _ in range(_COUNT // 10):
            for _ in range(10):
                x = np.multiply(x, x)
        return x

    return _Case("nested", text, (np.ones(4, np.float32),), by_hand)
