"""Whether a pass keeps results: inputs with special values, bits compared, and a second run.

``check`` is what every pass is put to, on texts of its tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import hloopt
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.rewrite import Pass, PassLog, Pipeline
from hloopt.types import DTYPES, ArrayShape, DType, leaves
from tests.helpers.graphs import graph_difference

__all__ = ["check", "draw", "identical", "inputs", "ordinary", "special_values"]


def special_values(dtype: DType) -> np.ndarray[Any, Any]:
    storage = dtype.numpy
    if dtype.kind == "pred":
        return np.array([False, True])
    if dtype.is_integer:
        half = 1 << (dtype.bits - 1)
        low, high = (-half, half - 1) if dtype.kind == "signed" else (0, 2 * half - 1)
        numbers = [0, 1, 2, 3, 7, high // 2, high - 1, high, low, low + 1]
        return np.array(numbers, np.int64 if dtype.kind == "signed" else np.uint64).astype(storage)
    if dtype.kind == "complex":
        parts = special_values(part_of(dtype)).astype(np.float64)
        return np.array([complex(x, y) for x in parts for y in parts]).astype(storage)
    finite = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3, 1e30, -1e30, 1e-40, -1e-45, 65504.0]
    with np.errstate(all="ignore"):
        return np.array([*finite, np.inf, -np.inf, np.nan]).astype(storage)


def part_of(dtype: DType) -> DType:
    return DTYPES["f32" if dtype.name == "c64" else "f64"]


def draw(dtype: DType, dims: tuple[int, ...], seed: int, position: int) -> np.ndarray[Any, Any]:
    """Special values in turn, so that each comes up in each place; later seeds mix in random ones."""
    special, size = special_values(dtype), int(np.prod(dims))
    turn = seed * (1 + 2 * position) + np.arange(size) + position
    values = special[turn % len(special)].reshape(dims)
    if dtype.kind == "pred" or seed < len(special):
        return values
    rng = np.random.default_rng([seed, position])
    plain = rng.integers(0, 100, dims) if dtype.is_integer else rng.normal(0, 3, dims)
    mixed = np.where(rng.random(dims) < 0.5, values, plain.astype(dtype.numpy))
    return np.array(mixed, dtype=dtype.numpy)


def inputs(module: Module, seed: int) -> list[np.ndarray[Any, Any]]:
    return [
        draw(leaf.dtype, leaf.dims, seed, position)
        for position, leaf in enumerate(
            leaf for shape in module.entry.parameter_shapes for leaf in leaves(shape)
        )
        if isinstance(leaf, ArrayShape)
    ]


def parts(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    if array.dtype.kind == "c":
        yield array.real
        yield array.imag
    else:
        yield array


def identical(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    """Equal bit for bit, except that any NaN equals any other."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    for a, b in zip(parts(left), parts(right), strict=True):
        if a.dtype.kind in "biu" or np.can_cast(a.dtype, np.int64):
            if not np.array_equal(a, b):
                return False
            continue
        with np.errstate(invalid="ignore"):  # a signalling NaN
            wide, other = a.astype(np.float64), b.astype(np.float64)
        same = (wide == other) & (np.signbit(wide) == np.signbit(other))
        if not np.all(same | (np.isnan(wide) & np.isnan(other))):
            return False
    return True


def ordinary(arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Finite positive numbers from 1 to 5, where fast math changes little."""
    with np.errstate(all="ignore"):  # bf16 has no remainder of its largest numbers
        found = [np.abs(np.nan_to_num(array, nan=1, posinf=2, neginf=3)) % 4 for array in arrays]
        return [np.nan_to_num(array, nan=1) + 1 for array in found]


def check(
    text: str,
    *passes: Pass,
    rtol: float | None = None,
    draws: int = 8,
    changes: bool | None = True,
    given: Sequence[Sequence[np.ndarray[Any, Any]]] = (),
) -> tuple[Module, PassLog]:
    """Run passes over a module and hold everything against what a pass promises; the module and its log.

    The text is valid, each pass leaves it valid and says truly whether it changed it (it must if
    ``changes``, and may if that is None), a second run of all of them changes nothing, the module prints and reads back, and its
    results are those of the text: bit by bit on special values, or, with ``rtol``, near enough on ordinary
    ones; on the inputs ``given``, where there are any.
    """
    module = hloopt.parse(text, "text")
    hloopt.verify(module)
    better, log = clone_module(module), PassLog()
    report = Pipeline(passes).run(better, verify_each=True)
    for run in report.runs:
        log.hits.update(run.hits)
        log.notes.extend(run.notes)
    assert changes is None or report.changed is changes, better.to_text()
    again = clone_module(better)
    second = Pipeline(passes).run(again, verify_each=True)
    assert not second.changed, f"{better.to_text()}\nbecame\n{again.to_text()}"
    printed = hloopt.parse(better.to_text(), "printed")
    assert not (wrong := graph_difference(better, printed)), (
        f"{better.to_text()}\nreads back otherwise: {wrong}"
    )
    rows = given or [inputs(module, seed) for seed in range(draws)]
    for row in rows:
        arrays = list(row) if rtol is None or given else ordinary(row)
        want, got = hloopt.evaluate(module, arrays), hloopt.evaluate(better, arrays)
        assert len(want) == len(got)
        for one, other in zip(want, got, strict=True):
            if rtol is None:
                assert identical(one, other), f"{better.to_text()}\n{arrays}: {one} became {other}"
            else:
                np.testing.assert_allclose(
                    _plain(other), _plain(one), rtol=rtol, atol=rtol, err_msg=better.to_text()
                )
    return better, log


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array if array.dtype.kind in "fc" else array.astype(np.float64)
