"""Gathers and scatters of random dimension numbers keep their bits through every pass over them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.ir.build import clone_module
from hloopt.passes.indexing.gather_simplifier import GatherSimplifier
from hloopt.passes.indexing.gather_to_slice import GatherToSlice
from hloopt.passes.indexing.scatter_simplifier import ScatterSimplifier
from hloopt.passes.indexing.scatter_to_slice import ScatterToSlice
from hloopt.rewrite import Pass, PassLog, Pipeline
from hloopt.simplify import Simplify
from tests.passes.proof import identical, inputs

SEEDS = range(60)
REGIONS = ("add(a, b)", "maximum(a, b)", "subtract(a, b)", "multiply(b, a)")


def braces(values: Iterable[object]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def literal(array: np.ndarray[Any, Any]) -> str:
    return str(array) if not array.ndim else braces(map(literal, array))


class Case:
    """Dimension numbers with the shapes that fit them."""

    def __init__(self, chooser: random.Random) -> None:
        self.chooser = chooser
        rank = chooser.randint(1, 3)
        self.operand = [chooser.randint(1, 5) for _ in range(rank)]
        self.batch = [chooser.randint(1, 4) for _ in range(chooser.randint(0, 2))]
        dims = list(range(rank))
        chooser.shuffle(dims)
        self.batching: list[tuple[int, int]] = []
        if self.batch and chooser.random() < 0.4:
            dim, axis = dims.pop(), chooser.randrange(len(self.batch))
            self.operand[dim] = self.batch[axis]
            self.batching = [(dim, axis)]
        self.mapped = dims[: chooser.randint(0 if self.batching else 1, len(dims))]
        left_out = [dim for dim in range(rank) if dim not in {entry for entry, _ in self.batching}]
        self.collapsed = sorted(dim for dim in left_out if chooser.random() < 0.5)
        self.sizes = [
            1 if dim in self.collapsed or dim not in left_out else chooser.randint(1, size)
            for dim, size in enumerate(self.operand)
        ]
        self.vector = chooser.randint(0, len(self.batch))
        self.window = [dim for dim in range(rank) if dim not in self.collapsed and dim in left_out]
        places = list(range(len(self.batch) + len(self.window)))
        self.offsets = sorted(chooser.sample(places, len(self.window)))
        sizes = iter(self.sizes[dim] for dim in self.window)
        batch = iter(self.batch)
        self.result = [next(sizes) if at in self.offsets else next(batch) for at in places]

    def column(self, dim: int) -> np.ndarray[Any, Any]:
        """Places in rows, the same place, or any; sometimes outside."""
        kind, shape = self.chooser.randrange(4), tuple(self.batch)
        values = np.full(shape, self.chooser.randint(-1, self.operand[dim]))
        if kind == 0:
            for axis in range(len(shape)):
                line = [1] * len(shape)
                line[axis] = shape[axis]
                step = self.chooser.choice((-1, 0, 0, 1, 1, 2))
                values = values + step * np.arange(shape[axis]).reshape(line)
        elif kind == 1:
            flat = [self.chooser.randint(-1, self.operand[dim]) for _ in range(values.size)]
            values = np.array(flat, np.int64).reshape(shape)
        elif kind == 2 and shape:
            line = [1] * len(shape)
            line[0] = shape[0]
            values = np.broadcast_to(np.arange(shape[0]).reshape(line), shape)
        return values

    def indices(self) -> str:
        """A parameter, a constant, or columns put together."""
        dims = list(self.batch)
        dims.insert(self.vector, len(self.mapped))
        shape = f"s32{str(dims).replace(' ', '')}"
        if self.chooser.random() < 0.2 or not self.mapped:
            return f"i = {shape} parameter(1)\n"
        columns = [self.column(dim) for dim in self.mapped]
        if self.chooser.random() < 0.4 or len(columns) == 1:
            return f"i = {shape} constant({literal(np.stack(columns, axis=self.vector))})\n"
        dims[self.vector] = 1
        single = f"s32{str(dims).replace(' ', '')}"
        lines = [
            f"c{at} = {single} constant({literal(np.expand_dims(column, self.vector))})\n"
            if self.chooser.random() < 0.8
            else f"c{at} = {single} iota(), iota_dimension=0\n"
            for at, column in enumerate(columns)
        ]
        names = ", ".join(f"c{at}" for at in range(len(columns)))
        return "".join(lines) + f"i = {shape} concatenate({names}), dimensions={{{self.vector}}}\n"

    def numbers(self, batching: str, axes: str) -> str:
        if not self.batching:
            return ""
        ((dim, axis),) = self.batching
        return f"{batching}={{{dim}}}, {axes}={{{axis + (axis >= self.vector)}}}, "

    def gather(self) -> str:
        operand, result = (str(dims).replace(" ", "") for dims in (self.operand, self.result))
        return (
            f"HloModule m\nENTRY e {{\nx = f32{operand} parameter(0)\n{self.indices()}"
            f"ROOT r = f32{result} gather(x, i), offset_dims={braces(self.offsets)}, "
            f"collapsed_slice_dims={braces(self.collapsed)}, "
            f"start_index_map={braces(self.mapped)}, "
            f"{self.numbers('operand_batching_dims', 'start_indices_batching_dims')}"
            f"index_vector_dim={self.vector}, slice_sizes={braces(self.sizes)}\n}}\n"
        )

    def scatter(self) -> str:
        operand, update = (str(dims).replace(" ", "") for dims in (self.operand, self.result))
        indices = self.indices()
        return (
            "HloModule m\nto {\na = f32[] parameter(0)\nb = f32[] parameter(1)\n"
            f"ROOT r = f32[] {self.chooser.choice(REGIONS)}\n}}\n"
            f"ENTRY e {{\nx = f32{operand} parameter(0)\n{indices}"
            f"u = f32{update} parameter({2 if 'i = ' in indices and 'parameter(1)' in indices else 1})\n"
            f"ROOT r = f32{operand} scatter(x, i, u), update_window_dims={braces(self.offsets)}, "
            f"inserted_window_dims={braces(self.collapsed)}, "
            f"scatter_dims_to_operand_dims={braces(self.mapped)}, "
            f"{self.numbers('input_batching_dims', 'scatter_indices_batching_dims')}"
            f"index_vector_dim={self.vector}, to_apply=to\n}}\n"
        )


def hold(text: str, *passes: Pass) -> int:
    """The same bits before and after, and a second run changes nothing; how many rewrites there were."""
    module = hloopt.parse(text, "text")
    hloopt.verify(module)
    better = clone_module(module)
    hits = sum(
        sum(run.hits.values()) for run in Pipeline(passes).run(better, verify_each=True).runs
    )
    again = clone_module(better)
    assert not any(instance.run(again, PassLog()) for instance in passes), better.to_text()
    for seed in range(4):
        arrays = [np.clip(a, -2, 6) if a.dtype == np.int32 else a for a in inputs(module, seed)]
        pairs = zip(hloopt.evaluate(module, arrays), hloopt.evaluate(better, arrays), strict=True)
        assert all(identical(*pair) for pair in pairs), f"{text}\nbecame\n{better.to_text()}"
    return hits


@pytest.mark.parametrize("instance", [GatherToSlice(), GatherSimplifier(), Simplify()])
def test_random_gathers(instance: Pass) -> None:
    """Starts that are clamped, repeated, in rows and anywhere."""
    hits = [hold(Case(random.Random(seed)).gather(), instance) for seed in SEEDS]
    assert sum(map(bool, hits)) > len(SEEDS) // 6


@pytest.mark.parametrize("instance", [ScatterToSlice(), ScatterSimplifier(), Simplify()])
def test_random_scatters(instance: Pass) -> None:
    """Windows left out, repeated, in rows and anywhere, with combiners of every kind."""
    hits = [hold(Case(random.Random(seed)).scatter(), instance) for seed in SEEDS]
    assert sum(map(bool, hits)) > len(SEEDS) // 20
