"""Sizes of dynamic dimensions: set, asked for, and spread anew over other dimensions."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.helpers.rarely import examples
from tests.semantics.elements import ELEMENTS, drawn_dims, seeds, shape_of, values
from tests.semantics.statement import check

OPCODES = ("dynamic-reshape", "get-dimension-size", "set-dimension-size")

names = st.sampled_from(ELEMENTS)


def bounded(name, bounds, marks):
    """The text of a shape whose marked dimensions are dynamic."""
    sizes = (
        f"<={bound}" if mark else str(bound) for bound, mark in zip(bounds, marks, strict=True)
    )
    return f"{name}[{','.join(sizes)}]"


def module(lines):
    """A module of one computation."""
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}"


def part(x, sizes):
    """The elements all of whose indices are below the sizes."""
    result = np.empty(sizes, x.dtype)
    for index in product(*map(range, sizes)):
        result[index] = x[index]
    return result


def int32(number):
    return np.array(number, np.int32)


@given(names, drawn_dims(min_rank=1, max_size=5), seeds, st.data())
@settings(max_examples=examples(60))
def test_set_dimension_size_shows_elements_below_the_size(name, dims, chooser, data):
    """Each size set hides elements or shows them again: those stay whose indices are all below the sizes."""
    x = values(name, dims, chooser)
    sizes, marks = list(dims), [False] * len(dims)
    lines, arrays = [f"v0 = {shape_of(name, dims)} parameter(0)"], [x]
    for step in range(1, 1 + data.draw(st.integers(1, 4))):
        dim = data.draw(st.integers(0, len(dims) - 1))
        sizes[dim], marks[dim] = data.draw(st.integers(0, dims[dim])), True
        arrays.append(int32(sizes[dim]))
        lines.append(f"n{step} = s32[] parameter({step})")
        lines.append(
            f"v{step} = {bounded(name, dims, marks)} set-dimension-size(v{step - 1}, n{step}), "
            f"dimensions={{{dim}}}"
        )
    lines[-1] = f"ROOT {lines[-1]}"
    check(module(lines), arrays, part(x, sizes))


@given(names, drawn_dims(min_rank=1, max_size=5), seeds, st.data())
@settings(max_examples=examples(60))
def test_get_dimension_size_is_the_size_not_the_bound(name, dims, chooser, data):
    """Of a parameter that is smaller than its bounds each dimension has the size of the array given."""
    marks = data.draw(st.lists(st.booleans(), min_size=len(dims), max_size=len(dims)))
    sizes = [
        data.draw(st.integers(0, bound)) if mark else bound
        for bound, mark in zip(dims, marks, strict=True)
    ]
    lines = [f"x = {bounded(name, dims, marks)} parameter(0)"]
    lines += [
        f"n{dim} = s32[] get-dimension-size(x), dimensions={{{dim}}}" for dim in range(len(dims))
    ]
    shapes = ", ".join("s32[]" for _ in dims)
    listed = ", ".join(f"n{dim}" for dim in range(len(dims)))
    lines.append(f"ROOT t = ({shapes}) tuple({listed})")
    check(module(lines), [values(name, sizes, chooser)], [int32(size) for size in sizes])


@given(names, drawn_dims(min_rank=1, max_rank=4, min_size=1, max_size=4), seeds, st.data())
@settings(max_examples=examples(60))
def test_dynamic_reshape_keeps_elements_in_order(name, dims, chooser, data):
    """The elements there are fill the sizes given, both in row-major order; bounds play no part."""
    sizes = [data.draw(st.integers(0, bound)) for bound in dims]
    target = list(data.draw(st.permutations(dims)))
    if len(target) > 1 and data.draw(st.booleans()):
        target = [target[0] * target[1], *target[2:]]
    fitting = [
        given for given in product(*(range(bound + 1) for bound in target))
        if prod(given) == prod(sizes)
    ]  # fmt: skip
    assume(fitting)
    wanted = data.draw(st.sampled_from(fitting))
    marks = [
        size < bound or data.draw(st.booleans()) for size, bound in zip(wanted, target, strict=True)
    ]
    x = values(name, sizes, chooser)
    flat = [x[index] for index in product(*map(range, sizes))]
    want = np.empty(wanted, x.dtype)
    for number, index in enumerate(product(*map(range, wanted))):
        want[index] = flat[number]
    given = ", ".join(f"n{dim}" for dim in range(len(target)))
    lines = [f"x = {bounded(name, dims, [True] * len(dims))} parameter(0)"]
    lines += [f"n{dim} = s32[] parameter({dim + 1})" for dim in range(len(target))]
    lines.append(f"ROOT r = {bounded(name, target, marks)} dynamic-reshape(x, {given})")
    check(module(lines), [x, *map(int32, wanted)], want)
