"""What XLA's CPU compiler gave for a file of the corpus, and how much that may move."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.support import Array, Recorded, as_type, recorded

__all__ = ["WEAK", "flags", "moved", "record_of", "spread", "tolerance_of"]

WEAK = frozenset({
    "all_outputs_zero", "collective", "custom_call", "no_outputs", "rng_default", "some_output_all_nan",
    "unstable_sort",
})  # fmt: skip
"""Flags of results that show little: anything would give them, or XLA is free to give others."""

_TOLERANCES = {
    "f64": (1e-11, 1e-13), "c128": (1e-11, 1e-13), "f32": (2e-5, 2e-6), "c64": (2e-5, 2e-6),
    "f16": (4e-3, 1e-3), "bf16": (3e-2, 8e-3), "f8e3m4": (0.07, 0.02), "f8e4m3": (0.13, 0.02),
    "f8e4m3fn": (0.13, 0.02), "f8e4m3fnuz": (0.13, 0.02), "f8e4m3b11fnuz": (0.13, 0.02),
    "f8e5m2": (0.26, 0.03), "f8e5m2fnuz": (0.26, 0.03), "f6e2m3fn": (0.13, 0.05),
    "f6e3m2fn": (0.26, 0.05), "f4e2m1fn": (0.5, 0.1), "f8e8m0fnu": (1.0, 0.0),
}  # fmt: skip
"""``rtol``, and ``atol`` as a part of the largest magnitude, for results that another program recorded."""

_DRAWS = 4
_ULPS = 4
_TIMES = 6.0
"""A result may be off by this many times what moving the inputs by a few ULPs changes in it."""


def record_of(path: Path) -> Recorded | None:
    """Inputs and results recorded for a text: beside it, or in ``golden/`` beside its folder."""
    stem = path.name.split(".")[0]
    golden = path.parent.parent / "golden" / stem
    if golden.with_name(f"{stem}.npz").exists():
        return _golden(golden)
    return recorded(path.with_name(stem))


def flags(golden: Path) -> frozenset[str]:
    """What is said of a golden result in its ``.json``."""
    return frozenset(json.loads(golden.read_text())["flags"])


def _golden(stem: Path) -> Recorded:
    """Results with the tolerances of their types."""
    meta = json.loads(stem.with_name(f"{stem.name}.json").read_text())
    with np.load(stem.with_name(f"{stem.name}.npz")) as arrays:
        inputs, outputs = (
            [
                as_type(arrays[f"{prefix}_{index}"], spec["dtype"])
                for index, spec in enumerate(meta[key])
            ]
            for prefix, key in (("in", "inputs"), ("out", "outputs"))
        )
    specs = [
        tolerance_of(output, spec["dtype"])
        for output, spec in zip(outputs, meta["outputs"], strict=True)
    ]
    return Recorded(inputs, outputs, specs)


def tolerance_of(output: Array, name: str) -> dict[str, Any]:
    """What is let through beside a result of an element type."""
    if name not in _TOLERANCES:
        return {}
    rtol, scaled_atol = _TOLERANCES[name]
    magnitude = np.abs(_wide(output))
    largest = float(magnitude[np.isfinite(magnitude)].max(initial=0.0))
    return {"rtol": rtol, "atol": scaled_atol * largest}


def moved(inputs: list[Array], draw: int) -> list[Array]:
    """The inputs with every f32 and f64 that is no integer moved by up to ``_ULPS``, up or down."""
    rng = np.random.default_rng(draw)
    arrays = []
    for values in inputs:
        if values.dtype not in (np.float32, np.float64):
            arrays.append(values)
            continue
        steps = rng.integers(1, _ULPS + 1, values.shape) * rng.choice([-1, 1], values.shape)
        bits = values.view(f"i{values.dtype.itemsize}")
        nudged = (bits + steps.astype(bits.dtype)).view(values.dtype)
        fraction = np.isfinite(values) & (values != np.trunc(values))
        arrays.append(np.where(fraction, nudged, values))
    return arrays


def spread(run: Any, record: Recorded) -> Recorded:
    """The record with tolerances as wide as what moving its inputs by a few ULPs changes in ``run``'s results."""
    first = [_wide(output) for output in run(record.inputs)]
    change = [0.0] * len(first)
    for draw in range(_DRAWS):
        for index, output in enumerate(run(moved(record.inputs, draw))):
            with np.errstate(all="ignore"):
                difference = np.abs(_wide(output) - first[index])
            finite = difference[np.isfinite(difference)]
            change[index] = max(change[index], float(finite.max(initial=0.0)))
    specs = [
        {**spec, "spread": _TIMES * most, "atol": max(spec.get("atol", 0.0), _TIMES * most)}
        for spec, most in zip(record.specs, change, strict=True)
    ]
    return replace(record, specs=specs)


def _wide(values: Array) -> Array:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
