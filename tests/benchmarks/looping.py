"""Loops in NumPy: as plain ``while``, as one fusion that runs whole, and as one that may run by blocks."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hloopt
from hloopt.backends.numpy.loop_plan import Blocking
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.ir import Module
from hloopt.pipelines import PIPELINES
from tests.helpers.support import Array

__all__ = ["LOOPING", "looping"]

LOOPING = (
    "Loops in NumPy (seconds; ratios of the plain while to the fused loop, whole and by blocks)"
)
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
_NAMES = ("kalman_scan", "while_loop", "cartpole/naive", "cartpole/gymnax_network")

_OSCILLATORS = """HloModule oscillators
body {{
  s = (s32[], f32[{n}], f32[{n}], f32[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{n}] get-tuple-element(s), index=1
  v = f32[{n}] get-tuple-element(s), index=2
  k = f32[{n}] get-tuple-element(s), index=3
  one = s32[] constant(1)
  next = s32[] add(i, one)
  step = f32[] constant(0.01)
  steps = f32[{n}] broadcast(step), dimensions={{}}
  dx = f32[{n}] multiply(v, steps)
  next_x = f32[{n}] add(x, dx)
  force = f32[{n}] multiply(k, next_x)
  dv = f32[{n}] multiply(force, steps)
  next_v = f32[{n}] subtract(v, dv)
  ROOT r = (s32[], f32[{n}], f32[{n}], f32[{n}]) tuple(next, next_x, next_v, k)
}}
condition {{
  s = (s32[], f32[{n}], f32[{n}], f32[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant({iterations})
  ROOT c = pred[] compare(i, most), direction=LT
}}
ENTRY main {{
  x = f32[{n}] parameter(0)
  k = f32[{n}] parameter(1)
  zero = s32[] constant(0)
  still = f32[] constant(0)
  v = f32[{n}] broadcast(still), dimensions={{}}
  init = (s32[], f32[{n}], f32[{n}], f32[{n}]) tuple(zero, x, v, k)
  w = (s32[], f32[{n}], f32[{n}], f32[{n}]) while(init), condition=condition, body=body
  last_x = f32[{n}] get-tuple-element(w), index=1
  last_v = f32[{n}] get-tuple-element(w), index=2
  ROOT r = (f32[{n}], f32[{n}]) tuple(last_x, last_v)
}}
"""


def looping(count: int) -> list[dict[str, Any]]:
    """Median seconds of a run of each; the ways take turns, so that a busy moment meets all."""
    rows = []
    for name, module, inputs in _programs():
        plain, fused = _optimised(module)
        programs = {
            "while": NumpyProgram(plain),
            "whole": NumpyProgram(fused, blocking=Blocking(whole_bytes=1 << 62)),
            "blocked": NumpyProgram(fused),
        }
        times: dict[str, list[float]] = {way: [] for way in programs}
        for turn in range(count + 1):
            for way, program in programs.items():
                gc.collect()
                start = time.perf_counter()
                program.run(inputs)
                if turn:  # the first one compiles
                    times[way].append(time.perf_counter() - start)
        row: dict[str, Any] = {"loop": name}
        row |= {way: statistics.median(found) for way, found in times.items()}
        row["ratio whole"] = row["while"] / row["whole"]
        row["ratio blocked"] = row["while"] / row["blocked"]
        told = programs["blocked"].loops.values()
        row["how"] = "; ".join(words.partition(":")[0] for words in told)
        rows.append(row)
    return rows


def _optimised(module: Module) -> tuple[Module, Module]:
    """With O3's loops as they are, and as fusions."""
    before, found, _ = PIPELINES["O3"].partition(",loop-fusion")
    assert found, "O3 fuses loops"
    plain = hloopt.optimize(module, before)
    return plain, hloopt.optimize(plain, "loop-fusion{always=true}")


def _programs() -> Iterator[tuple[str, Module, list[Array]]]:
    for name in _NAMES:
        module = hloopt.parse((SAMPLES / f"{name}.hlo").read_text(), name)
        with np.load(SAMPLES / f"{name}.npz") as arrays:
            yield name, module, [arrays[f"in_{at}"] for at in range(len(module.entry.parameters))]
    source = np.random.default_rng(0)
    for units in (10_000, 1_000_000, 4_000_000):
        module = hloopt.parse(_OSCILLATORS.format(n=units, iterations=100))
        inputs = [source.standard_normal(units).astype(np.float32) for _ in range(2)]
        yield f"oscillators, {units:,} x 100", module, inputs
