"""Sorts that are planned give the interpreter's bits: by values, by packed keys, by a permutation."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.backends.numpy import sort_keys
from hloopt.backends.numpy.sort_keys import Column
from hloopt.interpret.comparator import sort_keys as sort_keys_of
from tests.helpers.planned import assert_planned
from tests.helpers.rarely import examples
from tests.semantics.elements import drawn_dims, moderate, seeds, shape_of, values

KINDS = ("f32", "f64", "bf16", "f16", "f8e4m3fn", "s32", "u8", "s64", "u64", "s4", "pred")
CANONICAL = """
  nan{n} = pred[] compare({x}, {x}), direction=NE
  is{n} = pred[] compare({x}, zero), direction=EQ
  plain{n} = {kind}[] select(is{n}, zero, {x})
  key{n} = {kind}[] select(nan{n}, none, plain{n})"""


def comparator(kinds: list[str], keys: list[tuple[int, str, str]]) -> str:
    """``keys``: an operand, a direction, and how floats are compared: total, jax, or partial."""
    lines = [f"  p{at} = {kinds[at // 2]}[] parameter({at})" for at in range(2 * len(kinds))]
    answers = []
    for number, (at, direction, order) in enumerate(keys):
        left, right, kind = f"p{2 * at}", f"p{2 * at + 1}", kinds[at]
        floats = kind[0] in "bf" and order != "partial"
        if floats and order == "jax":
            tag = f"k{number}"
            lines.append(
                f"  zero{tag} = {kind}[] constant(0)\n  none{tag} = {kind}[] constant(nan)"
            )
            for side, x in (("l", left), ("r", right)):
                text = CANONICAL.format(n=f"{tag}{side}", x=x, kind=kind)
                lines.append(
                    text.replace("zero,", f"zero{tag},")
                    .replace("zero)", f"zero{tag})")
                    .replace("none,", f"none{tag},")
                )
            left, right = f"key{tag}l", f"key{tag}r"
        kindly = ", type=TOTALORDER" if floats else ""
        last = number == len(keys) - 1
        lines.append(
            f"  less{number} = pred[] compare({left}, {right}), direction={direction}{kindly}"
        )
        if not last:
            lines.append(f"  same{number} = pred[] compare({left}, {right}), direction=EQ{kindly}")
        answers.append(f"less{number}")
    found = answers[-1]
    for number in reversed(range(len(keys) - 1)):
        lines.append(f"  both{number} = pred[] and(same{number}, {found})")
        lines.append(f"  any{number} = pred[] or(less{number}, both{number})")
        found = f"any{number}"
    lines.append(f"  ROOT answer = pred[] copy({found})" if len(keys) == 0 else "")
    text = "\n".join(lines)
    head, _, tail = text.rpartition(f"  {found} =")
    return f"less {{\n{head}  ROOT {found} ={tail}\n}}"


def sort_text(kinds, dims, axis, keys, iota=False):
    lines = [f"  x{at} = {shape_of(kind, dims)} parameter({at})" for at, kind in enumerate(kinds)]
    names = [f"x{at}" for at in range(len(kinds))]
    every = list(kinds)
    if iota:
        lines.append(f"  i = {shape_of('s32', dims)} iota(), iota_dimension={axis}")
        names.append("i")
        every.append("s32")
    shapes = [shape_of(kind, dims) for kind in every]
    result = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
    lines.append(
        f"  ROOT r = {result} sort({', '.join(names)}), dimensions={{{axis}}}, is_stable=true, to_apply=less"
    )
    return f"HloModule m\n{comparator(every, keys)}\nENTRY e {{\n" + "\n".join(lines) + "\n}\n"


def few(kind, dims, chooser):
    """Many equal elements, zeros of both signs and NaNs of several kinds among them."""
    pool = values(kind, (5,), chooser)
    places = [chooser.randrange(5) for _ in range(int(np.prod(dims)))]
    return pool[places].reshape(dims)


@settings(max_examples=examples(120), deadline=None)
@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
    drawn_dims(1, 3, 0, 7),
    st.sampled_from(["LT", "GT", "LE", "GE"]),
    st.sampled_from(["total", "jax"]),
    st.booleans(),
    st.booleans(),
    seeds,
    st.data(),
)
def test_sorts_agree(kinds, dims, direction, order, iota, packed, chooser, data):
    """By words of keys and index, too, which are for longer sorts."""
    axis = data.draw(st.integers(0, len(dims) - 1))
    count = data.draw(st.integers(1, len(kinds)))
    directions = [data.draw(st.sampled_from(["LT", "GT"])) for _ in range(count - 1)] + [direction]
    keys = [(at, direction, order) for at, direction in enumerate(directions)]
    draw = chooser.choice([values, few, moderate])
    inputs = [draw(kind, dims, chooser) for kind in kinds]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sort_keys, "_FEW", 0 if packed else 1 << 30)
        assert_planned(sort_text(kinds, dims, axis, keys, iota), inputs)


@pytest.mark.parametrize("kind", ["f32", "bf16", "s64", "f64"])
@pytest.mark.parametrize("direction", ["LT", "GE"])
def test_long_sorts_agree(kind, direction):
    """Ties in runs, along a dimension that is not the last."""
    chooser = random.Random(5)
    for draw in (few, moderate):
        x = draw(kind, (300, 2), chooser)
        assert_planned(sort_text([kind], (300, 2), 0, [(0, direction, "jax")], iota=True), [x])
        assert_planned(sort_text([kind], (300, 2), 0, [(0, direction, "jax")]), [x])


@settings(max_examples=examples(100), deadline=None)
@given(
    st.sampled_from(["f32", "bf16", "f64"]),
    st.sampled_from(["LT", "GT", "LE", "GE"]),
    st.integers(1, 3),
    st.integers(0, 40),
    st.booleans(),
    seeds,
    st.data(),
)
def test_partial_orders_agree(kind, direction, lanes, count, iota, chooser, data):
    """By `<` and the like a NaN has no place: which pairs are compared decides."""
    x = moderate(kind, (count, lanes), chooser)
    pool = moderate(kind, (3,), chooser)
    for place in np.ndindex(*x.shape):
        x[place] = chooser.choice([*pool, x[place], x[place], np.nan, 0.0, -0.0])
    text = sort_text([kind], (count, lanes), 0, [(0, direction, "partial")], iota)
    assert_planned(text, [x])


def test_partial_orders_by_several_keys_are_the_interpreters_where_there_are_nans():
    chooser = random.Random(2)
    keys = [(0, "LT", "partial"), (1, "GT", "partial")]
    x, y = few("f32", (200,), chooser), moderate("f32", (200,), chooser)
    for nan in (False, True):
        x[5] = y[9] = np.nan if nan else 0.0
        assert_planned(
            sort_text(["f32", "f32"], (200,), 0, keys), [np.nan_to_num(x) if not nan else x, y]
        )


def test_the_key_of_jax_is_read_not_computed():
    """Its zeros are one and its NaNs another; an order by other constants is computed."""
    text = sort_text(["f32"], (9,), 0, [(0, "LT", "jax")])
    for changed, operand in ((text, 0), (text.replace("constant(0)", "constant(1)"), -1)):
        comparator_ = hloopt.parse(changed).computations["less"]
        (column,) = [Column.of(key) for key in sort_keys_of(comparator_) or ()]
        assert column is not None
        assert (column.operand, column.zeros) == (operand, operand == 0)
        assert (column.nans is None) == (operand < 0)


def test_comparators_without_keys_are_asked():
    text = """HloModule m
less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  two = s32[] constant(2)
  x = s32[] remainder(a, two)
  y = s32[] add(b, two)
  ROOT r = pred[] compare(x, y), direction=LT
}
ENTRY e {
  x = s32[9] parameter(0)
  ROOT r = s32[9] sort(x), dimensions={0}, to_apply=less
}
"""
    assert_planned(text, [np.arange(9, dtype=np.int32)[::-1].copy()], evaluated=["sort"])


def test_keys_that_are_computed_are_computed():
    text = """HloModule m
less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  three = s32[] constant(3)
  x = s32[] remainder(a, three)
  y = s32[] remainder(b, three)
  ROOT r = pred[] compare(x, y), direction=GT
}
ENTRY e {
  x = s32[200] parameter(0)
  ROOT r = s32[200] sort(x), dimensions={0}, to_apply=less
}
"""
    assert_planned(text, [np.arange(200, dtype=np.int32) * 7 % 31])


@pytest.mark.parametrize("largest", ["true", "false"])
@pytest.mark.parametrize("kind", ["f32", "bf16", "s32", "u64"])
def test_topk_agrees(kind, largest):
    for dims, draw in (((3, 40), few), ((1, 7), values), ((2, 7), moderate)):
        text = f"""HloModule m
ENTRY e {{
  x = {shape_of(kind, dims)} parameter(0)
  ROOT r = ({shape_of(kind, (dims[0], 5))}, {shape_of("s32", (dims[0], 5))}) topk(x), k=5, largest={largest}
}}
"""
        assert_planned(text, [draw(kind, dims, random.Random(2))], evaluated=["topk"])
