"""The windows of gathers and scatters: every form of their dimension numbers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from hypothesis import strategies as st

from hloopt.types import DTYPES
from tests.semantics.elements import entry, shape_of

__all__ = ["Places", "gather_text", "places", "scatter_text", "start_indices"]


@dataclass(frozen=True)
class Places:
    """The windows of a gather or scatter over an array of ``dims``.

    ``dropped`` are collapsed or inserted dimensions; ``vector`` is the indices' dimension that holds an
    index vector; ``result`` are the dimensions of a gather's result and of a scatter's updates.
    """

    dims: tuple[int, ...]
    sizes: tuple[int, ...]
    dropped: tuple[int, ...]
    mapped: tuple[int, ...]
    batching: tuple[int, ...]
    indices_batching: tuple[int, ...]
    vector: int
    indices: tuple[int, ...]
    window_dims: tuple[int, ...]
    result: tuple[int, ...]

    @property
    def kept(self):
        return [d for d in range(len(self.dims)) if d not in self.dropped + self.batching]

    def split(self, index):
        """An index of the result: its batch part, and its place in the window for all of ``dims``."""
        batch = [i for d, i in enumerate(index) if d not in self.window_dims]
        offset = [0] * len(self.dims)
        for d, where in zip(self.kept, self.window_dims, strict=True):
            offset[d] = index[where]
        return batch, offset

    def start(self, indices, batch):
        """Where the window of a batch position is told to start."""
        whole = [*batch[: self.vector], 0, *batch[self.vector :]]
        begin = [0] * len(self.dims)
        for k, d in enumerate(self.mapped):
            whole[self.vector] = k
            begin[d] = int(indices[tuple(whole[: indices.ndim])])
        for d, where in zip(self.batching, self.indices_batching, strict=True):
            begin[d] = whole[where]
        return begin


@st.composite
def places(draw, smallest=0):
    """Every role of a dimension, batch dimensions in any order, the index vector anywhere or nowhere."""
    rank = draw(st.integers(0, 4))
    roles = [
        draw(st.sampled_from(["dropped", "batching", "window", "window"])) for _ in range(rank)
    ]
    dims = tuple(draw(st.integers(smallest, 4)) for _ in range(rank))
    sizes = tuple(
        draw(st.integers(0, n)) if role == "window" else min(1, n)
        for n, role in zip(dims, roles, strict=True)
    )
    batching = tuple(d for d in range(rank) if roles[d] == "batching")
    free = [d for d in range(rank) if roles[d] != "batching"]
    mapped = tuple(draw(st.permutations([d for d in free if draw(st.booleans())])))
    batch = [(d, dims[d]) for d in batching]
    batch += [(-1, draw(st.integers(0, 3))) for _ in range(draw(st.integers(0, 2)))]
    batch = draw(st.permutations(batch))
    shape = [size for _, size in batch]
    implicit = len(mapped) == 1 and draw(st.booleans())
    vector = len(batch) if implicit else draw(st.integers(0, len(batch)))
    if not implicit:
        shape.insert(vector, len(mapped))
    at = {d: n + (n >= vector) for n, (d, _) in enumerate(batch)}
    window = [sizes[d] for d in range(rank) if roles[d] == "window"]
    total = len(batch) + len(window)
    window_dims = tuple(sorted(draw(st.permutations(range(total)))[: len(window)]))
    from_batch, from_window = iter([size for _, size in batch]), iter(window)
    result = tuple(next(from_window if d in window_dims else from_batch) for d in range(total))
    return Places(
        dims,
        sizes,
        tuple(d for d in range(rank) if roles[d] == "dropped"),
        mapped,
        batching,
        tuple(at[d] for d in batching),
        vector,
        tuple(shape),
        window_dims,
        result,
    )


def start_indices(kind, dims, chooser):
    """Indices around small arrays, one in eight at an end of the type."""
    row = DTYPES[kind]
    signed = row.kind == "signed"
    low, high = (
        (-(1 << row.bits - 1), (1 << row.bits - 1) - 1) if signed else (0, (1 << row.bits) - 1)
    )
    result = np.empty(dims, row.numpy)
    for index in product(*map(range, dims)):
        near = chooser.randint(max(low, -2), min(high, 4))
        result[index] = chooser.choice([low, high]) if chooser.random() < 0.125 else near
    return result


def listed(numbers):
    return "{" + ",".join(map(str, numbers)) + "}"


def batching_text(case, of_array, of_indices):
    if not case.batching:
        return ""
    return f", {of_array}={listed(case.batching)}, {of_indices}={listed(case.indices_batching)}"


def gather_text(case, name, kind):
    text = (
        f"{shape_of(name, case.result)} gather(p0, p1), offset_dims={listed(case.window_dims)}, "
        f"collapsed_slice_dims={listed(case.dropped)}, start_index_map={listed(case.mapped)}"
        + batching_text(case, "operand_batching_dims", "start_indices_batching_dims")
        + f", index_vector_dim={case.vector}, slice_sizes={listed(case.sizes)}"
    )
    return entry(text, [shape_of(name, case.dims), shape_of(kind, case.indices)])


def scatter_text(case, combiner, kind):
    count = len(combiner.kinds)
    operands = ", ".join(f"p{number}" for number in range(2 * count + 1))
    results = ", ".join(shape_of(name, case.dims) for name in combiner.kinds)
    text = (
        f"{results if count == 1 else f'({results})'} scatter({operands}), "
        f"update_window_dims={listed(case.window_dims)}, inserted_window_dims={listed(case.dropped)}, "
        f"scatter_dims_to_operand_dims={listed(case.mapped)}"
        + batching_text(case, "input_batching_dims", "scatter_indices_batching_dims")
        + f", index_vector_dim={case.vector}, to_apply=combine"
    )
    shapes = [shape_of(name, case.dims) for name in combiner.kinds]
    shapes += [shape_of(kind, case.indices)]
    shapes += [shape_of(name, case.result) for name in combiner.kinds]
    return entry(text, shapes, combiner.text)
