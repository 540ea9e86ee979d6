"""Whether what is claimed of matrices holds of the values that a program has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

import hloopt
from hloopt.analysis.matrix_properties import HotIndex, Matrices, MatrixProperties
from hloopt.interpret import evaluate_module
from hloopt.ir import Instruction
from tests.passes.proof import draw

__all__ = ["as_float", "broken", "check", "is_zero"]

Array: TypeAlias = np.ndarray[Any, Any]


def as_float(values: Array) -> Array:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def is_zero(values: Array, *, clean: bool) -> bool:
    found = values == 0
    if not clean and values.dtype.kind not in "biu":
        found |= np.isnan(as_float(values))
    return bool(np.all(found))


def broken(
    values: Array, found: MatrixProperties, of: Mapping[Instruction, Array]
) -> Iterator[str]:
    """Each claim that does not hold of a value; those that are true but for rounding of finite values."""
    at = np.indices(values.shape)
    for (p, q), (low, high) in found.bands.items():
        beside = (at[q] - at[p] < low) | (at[q] - at[p] > high)
        if not is_zero(values[beside], clean=found.is_clean):
            yield f"band {low} to {high} of {p}, {q}"
    for (p, q), (low, high) in found.true_bands.items():
        if not values[(at[q] - at[p] < low) | (at[q] - at[p] > high)].all():
            yield f"true beside {low} to {high} of {p}, {q}"
    if found.boxes is not None:
        outside = np.ones(values.shape, bool)
        for box in found.boxes:
            outside[tuple(slice(*part) for part in box)] = False
        if not is_zero(values[outside], clean=found.is_clean):
            yield f"boxes {found.boxes}"
    for dim in found.constant:
        first = np.take(values, [0], dim) if values.shape[dim] else values
        if not np.array_equal(
            *np.broadcast_arrays(as_float(values), as_float(first)), equal_nan=True
        ):
            yield f"constant along {dim}"
    for dim, hot in found.hot.items():
        if (
            not set(np.unique(as_float(values))) <= {0, 1}
            or ((values != 0).sum(axis=dim) > 1).any()
        ):
            yield f"hot along {dim}"
        elif hot is not None and not np.array_equal(values != 0, expected(values, dim, hot, of)):
            yield f"hot index along {dim}"
    for p, q in found.units:
        if not is_zero(as_float(values)[at[p] == at[q]] - 1, clean=found.is_clean):
            yield f"units of {p}, {q}"
    if found.affine is not None:
        counted = found.affine.offset + sum(by * at[d] for d, by in found.affine.factors.items())
        if not np.array_equal(values, np.broadcast_to(counted, values.shape)):
            yield f"affine {found.affine}"
    for (p, q), exact in found.symmetric.items():
        if exact and not np.array_equal(
            as_float(values), as_float(values).swapaxes(p, q), equal_nan=True
        ):
            yield f"symmetric {p}, {q}"
    if np.isfinite(as_float(values)).all() and values.dtype.kind not in "biu":
        share = 5e-2 if values.dtype.itemsize < 4 else 1e-3
        yield from broken_but_for_rounding(as_float(values), found, share)


def expected(values: Array, dim: int, hot: HotIndex, of: Mapping[Instruction, Array]) -> Array:
    index = of[hot.value]
    shape = [1] * values.ndim
    for place, size in zip(hot.places, index.shape, strict=True):
        if place is not None:
            shape[place] = size
    order = np.argsort([-1 if place is None else place for place in hot.places], kind="stable")
    spread = np.transpose(index, order).reshape(shape).astype(np.int64)
    counted = np.arange(values.shape[dim]).reshape(
        [-1 if d == dim else 1 for d in range(values.ndim)]
    )
    return np.broadcast_to(counted == spread + hot.offset, values.shape)


def broken_but_for_rounding(values: Array, found: MatrixProperties, share: float) -> Iterator[str]:
    largest = np.abs(values).max(initial=1e-30)
    if largest > 1e6:
        return
    small = share * largest
    for p, q in found.symmetric:
        if np.abs(values - values.swapaxes(p, q)).max(initial=0) > small:
            yield f"symmetric but for rounding {p}, {q}"
    for p, q in found.definite:
        matrices = np.moveaxis(values, (p, q), (-2, -1))
        if values.size and np.linalg.eigvalsh(matrices).min() < -small:
            yield f"definite {p}, {q}"
    for (p, q), rank in found.ranks.items():
        sizes = np.linalg.svd(np.moveaxis(values, (p, q), (-2, -1)), compute_uv=False)
        if sizes[..., rank:].max(initial=0) > small * values.size:
            yield f"rank {rank} of {p}, {q}"
    for p, q in found.orthonormal:
        vectors = np.moveaxis(values, (p, q), (-2, -1))
        gram = vectors.swapaxes(-1, -2) @ vectors
        if np.abs(gram - np.eye(gram.shape[-1])).max(initial=0) > 1e-2:
            yield f"orthonormal {p}, {q}"
    for (p, q), (rows, columns) in found.kronecker.items():
        matrix = np.moveaxis(values, (p, q), (-2, -1))
        a, c = matrix.shape[-2] // rows, matrix.shape[-1] // columns
        split = matrix.reshape(*matrix.shape[:-2], a, rows, c, columns).swapaxes(-3, -2)
        sizes = np.linalg.svd(split.reshape(*matrix.shape[:-2], a * c, -1), compute_uv=False)
        if sizes[..., 1:].max(initial=0) > small * values.size:
            yield f"Kronecker {p}, {q}"


def check(text: str, seeds: range = range(6)) -> dict[str, MatrixProperties]:
    """Hold what is claimed of each value of a program against the interpreter."""
    given = hloopt.parse(text)
    arrays = [one for one in given.entry if one.is_array]
    whole = f"ROOT all = ({', '.join(str(one.shape) for one in arrays)}) tuple("
    lines = text.rstrip().removesuffix("}").replace("ROOT ", "")
    module = hloopt.parse(f"{lines}\n{whole}{', '.join(one.name for one in arrays)})\n}}")
    values, matrices = list(module.entry.root.operands), Matrices()
    for seed in seeds:
        inputs = [
            draw(one.array.dtype, one.array.dims, seed, one.parameter_number)
            if seed % 2
            else plain(one, seed)
            for one in module.entry.parameters
        ]
        made = dict(zip(values, map(np.asarray, evaluate_module(module, inputs)), strict=True))
        for one, array in made.items():
            with np.errstate(all="ignore"):
                problems = list(broken(array, matrices.of(one), made))
            assert not problems, f"{one} {problems} of {array}, seed {seed}\n{text}"
    return {one.name: matrices.of(one) for one in values}


def plain(parameter: Instruction, seed: int) -> Array:
    rng = np.random.default_rng([seed, parameter.parameter_number])
    dims, dtype = parameter.array.dims, parameter.array.dtype
    if dtype.is_integer or dtype.is_pred:
        return rng.integers(0, 5, dims).astype(dtype.numpy)
    return rng.normal(0, 1, dims).astype(dtype.numpy)
