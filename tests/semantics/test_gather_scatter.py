"""gather and scatter: windows at computed places, one element at a time."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloopt.types import DTYPES
from tests.helpers.rarely import examples
from tests.semantics.combiners import argmax, binary, chosen, crossed, python, stored, twice_less
from tests.semantics.elements import ELEMENTS, INTEGERS, entry, moderate, seeds, values
from tests.semantics.places import Places, gather_text, places, scatter_text, start_indices
from tests.semantics.statement import check

OPCODES = ("gather", "scatter")

names = st.sampled_from(ELEMENTS)


@given(places(), names, st.sampled_from(INTEGERS), seeds)
@settings(max_examples=examples(80))
def test_gather_takes_slices_at_clamped_starts(case, name, kind, chooser):
    """Each start is moved so that its slice is inside; an operand without elements gives zeros."""
    x, indices = values(name, case.dims, chooser), start_indices(kind, case.indices, chooser)
    want = np.zeros(case.result, x.dtype)
    if x.size:
        for index in product(*map(range, case.result)):
            batch, offset = case.split(index)
            begin = case.start(indices, batch)
            bounds = zip(begin, case.dims, case.sizes, strict=True)
            begin = [min(max(b, 0), n - size) for b, n, size in bounds]
            want[index] = x[tuple(b + o for b, o in zip(begin, offset, strict=True))]
    check(gather_text(case, name, kind), [x, indices], want)


def scattered(case, arrays, indices, updates, combiner):
    """Updates one after the other; a window that is not inside is left out as a whole."""
    results = [x.copy() for x in arrays]
    for index in product(*map(range, case.result)):
        batch, offset = case.split(index)
        begin = case.start(indices, batch)
        sizes = [size if d in case.kept else 1 for d, size in enumerate(case.sizes)]
        bounds = zip(begin, case.dims, sizes, strict=True)
        if any(b < 0 or b > n - size for b, n, size in bounds):
            continue
        at = tuple(b + o for b, o in zip(begin, offset, strict=True))
        left = [python(x[at], kind) for x, kind in zip(results, combiner.kinds, strict=True)]
        right = [python(u[index], kind) for u, kind in zip(updates, combiner.kinds, strict=True)]
        for x, number in zip(results, combiner.function(left, right), strict=True):
            x[at] = number
    return results


def check_scatter(case, combiner, kind, chooser):
    arrays = [values(name, case.dims, chooser) for name in combiner.kinds]
    updates = [values(name, case.result, chooser) for name in combiner.kinds]
    indices = start_indices(kind, case.indices, chooser)
    with np.errstate(all="ignore"):
        want = scattered(case, arrays, indices, updates, combiner)
    check(scatter_text(case, combiner, kind), [*arrays, indices, *updates], want)


COMBINERS = (
    binary("add", "s8"),
    binary("add", "u4"),
    binary("add", "f32"),
    binary("add", "bf16"),
    binary("add", "f16"),
    binary("add", "f8e4m3fn"),
    binary("multiply", "bf16"),
    binary("add", "c64"),
    binary("multiply", "s16"),
    binary("multiply", "f16"),
    binary("maximum", "f32"),
    binary("maximum", "u8"),
    binary("minimum", "bf16", swapped=True),
    binary("and", "pred"),
    binary("or", "u32", swapped=True),
    binary("xor", "s64"),
    binary("subtract", "f64"),
    binary("subtract", "s32", swapped=True),
    chosen(0, "f32"),
    chosen(1, "f8e4m3fn"),
    twice_less("s32"),
    twice_less("bf16"),
    crossed("s32", "u8"),
    argmax("f32", "s32"),
    argmax("bf16", "u32", "LT"),
)


@given(places(), st.sampled_from(COMBINERS), st.sampled_from(INTEGERS), seeds)
@settings(max_examples=examples(90))
def test_scatter_combines_windows_that_are_inside(case, combiner, kind, chooser):
    """combine(current, update) for every window in row-major order of the batch."""
    check_scatter(case, combiner, kind, chooser)


@given(places(), names, seeds)
@settings(max_examples=examples(40))
def test_scatter_assigns_elements_of_any_type(case, name, chooser):
    """Of several updates of one place the last one stays."""
    check_scatter(case, chosen(1, name), "s32", chooser)


@pytest.mark.every_value
@pytest.mark.parametrize("combiner", COMBINERS, ids=str)
@pytest.mark.parametrize(
    ("size", "count", "block"), [(2, 40, 2), (5, 90, 1), (60, 400, 1), (20, 400, 1)]
)
def test_scatter_of_many_updates_keeps_their_order(size, count, block, combiner):
    """Every place is combined in the order of its updates, however many there are."""
    chooser = random.Random(size)
    arrays = [moderate(name, (size, block), chooser) for name in combiner.kinds]
    updates = [moderate(name, (count, block), chooser) for name in combiner.kinds]
    indices = np.array([[chooser.randint(-1, size)] for _ in range(count)], np.int32)
    case = Places(
        (size, block), (1, block), (0,), (0,), (), (), 1, (count, 1), (1,), (count, block)
    )
    with np.errstate(all="ignore"):
        want = scattered(case, arrays, indices, updates, combiner)
    check(scatter_text(case, combiner, "s32"), [*arrays, indices, *updates], want)


@pytest.mark.parametrize("kind", INTEGERS)
def test_indices_are_read_as_their_type_says(kind):
    """The ends of every integer type: clamped by a gather, left out by a scatter."""
    row = DTYPES[kind]
    low = -(1 << row.bits - 1) if row.kind == "signed" else 0
    numbers = [low, low + (1 << row.bits) - 1, 0, *(n for n in (3, 4, 5, -1) if low <= n <= -low - 1 or
               (low == 0 <= n < 1 << row.bits))]  # fmt: skip
    indices = np.array(numbers, np.uint64 if kind == "u64" else np.int64).astype(row.numpy)
    indices = indices.reshape(-1, 1)
    x = np.arange(10, 15, dtype=np.float32)
    case = Places((5,), (2,), (), (0,), (), (), 1, indices.shape, (1,), (len(numbers), 2))
    want = np.empty(case.result, np.float32)
    for place, number in enumerate(numbers):
        begin = min(max(number, 0), 3)
        want[place] = x[begin], x[begin + 1]
    check(gather_text(case, "f32", kind), [x, indices], want)
    updates = np.arange(2 * len(numbers), dtype=np.float32).reshape(case.result)
    want = scattered(case, [x], indices, [updates], binary("add", "f32"))
    check(scatter_text(case, binary("add", "f32"), kind), [x, indices, updates], want)


@given(st.sampled_from([1, 70]), st.integers(2, 20), st.sampled_from(COMBINERS), seeds)
@settings(max_examples=examples(40))
def test_scatter_of_rows_combines_them_element_by_element(block, count, combiner, chooser):
    """Whole rows, narrow and wide, some of them at the same place."""
    case = Places((5, block), (1, block), (0,), (0,), (), (), 1, (count, 1), (1,), (count, block))
    check_scatter(case, combiner, "s32", chooser)


@given(st.sampled_from(["add", "multiply", "maximum"]), st.booleans(), seeds)
@settings(max_examples=examples(20))
def test_scatter_converts_to_the_precision_of_its_computation(op, narrow, chooser):
    """A computation may work in another float type: elements are rounded to it before, and after it."""
    outer, inner = ("f32", "bf16") if narrow else ("bf16", "f32")
    combiner = binary(op, inner)
    x, updates = moderate(outer, (3,), chooser), moderate(outer, (12,), chooser)
    indices = start_indices("s32", (12, 1), chooser)
    want = x.copy()
    for place, update in zip(indices[:, 0].tolist(), updates, strict=True):
        if 0 <= place < 3:
            pair = [stored(float(want[place]), inner)], [stored(float(update), inner)]
            want[place] = stored(combiner.function(*pair)[0], outer)
    text = (
        f"{outer}[3] scatter(p0, p1, p2), update_window_dims={{}}, inserted_window_dims={{0}}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=combine"
    )
    shapes = [f"{outer}[3]", "s32[12,1]", f"{outer}[12]"]
    check(entry(text, shapes, combiner.text), [x, indices, updates], want)
