"""Bounded dynamic dimensions: ops with indices, folds, products, order; what is refused.

The values expected are those XLA's CPU compiler gives, where it gives any.
"""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.errors import EvaluationError, UnsupportedError
from hloopt.interpret import evaluate_participants
from tests.semantics.bounded_modules import HEAD, LINE, REGIONS, X, Y, both, fails, refused, run

# ---- indices -----------------------------------------------------------------------------------------

GATHER = "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}"
SCATTER = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1, to_apply=plus"
)


def test_gather_reads_within_the_size():
    """By as many indices as there are; an index between size and bound has nothing to read."""
    body = f"i = s32[<=6,1] reshape(dx)\nROOT r = s32[<=6] gather(y, i), {GATHER}"
    assert run(body, 3) == [[20, 30, 40]]
    body = (
        "a = s32[<=6] negate(dx)\n i = s32[2,1] constant({{1},{99}})\n"
        f"ROOT r = s32[2] gather(a, i), {GATHER}"
    )
    assert run(body, 6) == [[-2, 0]]
    assert "element 5 of dimension 0 of operand 0 (a) is read, whose size is 5" in fails(body, 5)
    rows = (
        "b = s32[<=6,2] broadcast(dx), dimensions={0}\n b2 = s32[2,<=6] transpose(b), dimensions={1,0}\n"
        " i = s32[1,1] constant({{1}})\n"
        "ROOT r = s32[1,<=6] gather(b2, i), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,6}"
    )
    assert run(rows, 3) == [[[1, 2, 3]]]


def test_scatter_takes_the_updates_that_have_an_index():
    """Static updates are cut to the indices; windows may end beyond the operand's size."""
    body = (
        "i = s32[6,1] reshape(x)\n d = s32[<=6,1] set-dimension-size(i, n), dimensions={0}\n"
        f"ROOT r = s32[6] scatter(y, d, y), {SCATTER}"
    )
    assert run(body, 3) == [[10, 30, 50, 70, 50, 60]]
    window = (
        "i = s32[1] constant({2})\n u = s32[2] slice(y), slice={[0:2]}\n"
        "ROOT r = s32[<=6] scatter(dx, i, u), update_window_dims={0}, inserted_window_dims={}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=plus"
    )
    assert run(window, 3) == [[1, 2, 13]]
    assert run(window, 2) == [[1, 2]]


def test_scatter_needs_an_update_for_each_index():
    """XLA would read beyond the updates' size."""
    body = f"i = s32[6,1] reshape(x)\nROOT r = s32[6] scatter(y, i, dx), {SCATTER}"
    assert "operand 1 (i) has size 6, dimension 0 of operand 2 (dx) has size 3" in fails(body, 3)


# ---- folds, products and order -------------------------------------------------------------------------


def test_reduce_folds_what_is_there():
    """Of no elements only the initial value is left."""
    body = "ROOT r = s32[] reduce(dx, m), dimensions={0}, to_apply=plus"
    assert run(body, 3, 5) == [11]
    assert run(body, 0, 5) == [5]


def test_windows_slide_over_what_is_there():
    """As many places as fit into the size, none where it is too small."""
    body = "ROOT r = s32[<=4] reduce-window(dx, zero), window={size=3}, to_apply=plus"
    assert run(body, 4) == [[6, 9]]
    assert run(body, 1) == [[]]


def test_select_and_scatter_has_the_operands_size():
    """The source is cut to the places of the window, and must not be shorter."""
    body = (
        "s = s32[3] slice(y), slice={[0:3]}\n"
        "ROOT r = s32[<=6] select-and-scatter(dx, s, zero), window={size=2 stride=2}, select=least, "
        "scatter=plus"
    )
    assert run(body, 4) == [[0, 10, 0, 20]]
    body = (
        body.replace("dx, s,", "x, d,")
        .replace("<=6]", "6]")
        .replace("ROOT", "d = s32[<=3] set-dimension-size(s, n), dimensions={0}\nROOT")
    )
    assert run(body, 3) == [[0, 10, 0, 20, 30, 0]]
    assert "dimension 0 of operand 1 (d) has size 2, the window has 3 places" in fails(body, 2)


def test_dot_multiplies_what_is_there():
    """A static side is cut to the contracted size of the other; two dynamic ones agree."""
    tail = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    assert run(f"ROOT r = s32[] dot(dx, y), {tail}", 3) == [140]
    assert "must be equal" in fails(f"ROOT r = s32[] dot(dx, dy), {tail}", 3, 2)
    rows = (
        "a = s32[<=6,1] reshape(dx)\n b = s32[1,6] reshape(y)\n"
        "ROOT r = s32[<=6,6] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    assert run(rows, 1) == [[Y.tolist()]]


def test_convolution_of_a_dynamic_batch_and_of_dynamic_features():
    """Batches stay, features of the kernel are cut to those of the input."""
    text = """ENTRY e {{ x = f32[{},3,<=2] parameter(0)
      k = f32[2,2,1] parameter(1)
      ROOT r = f32[{},2,1] convolution(x, k), window={{size=2}}, dim_labels=b0f_0io->b0f }}"""
    x = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    kernel = np.array([[[1], [10]], [[100], [1000]]], np.float32)
    assert both(text.format("<=4", "<=4"), x, kernel) == [[[[3210], [5432]]]]
    assert both(text.format("<=4", "<=4"), x[:, :, :1], kernel) == [[[[200], [402]]]]
    assert both(text.format("<=4", "<=4"), x[:0], kernel) == [[]]


def test_sort_leaves_what_is_beyond_the_size_out():
    """All operands of a sort have one size."""
    body = (
        "s = (s32[<=6], s32[<=6]) sort(dx, y), dimensions={0}, to_apply=pairs\n"
        "a = s32[<=6] get-tuple-element(s), index=0\n b = s32[<=6] get-tuple-element(s), index=1\n"
        "ROOT t = (s32[<=6], s32[<=6]) tuple(a, b)"
    )
    regions = (
        REGIONS
        + """pairs { a = s32[] parameter(0)
      b = s32[] parameter(1)
      c = s32[] parameter(2)
      d = s32[] parameter(3)
      ROOT r = pred[] compare(a, b), direction=GT }
    """
    )
    text = f"{regions}{HEAD}{body}\n}}"
    assert both(text, X, Y, np.int32(3), np.int32(0)) == [[3, 2, 1], [30, 20, 10]]


def test_topk_needs_as_many_elements():
    """The first k of fewer elements do not exist."""
    body = (
        "r = (s32[3], s32[3]) topk(dx), k=3, largest=true\n"
        "ROOT g = s32[3] get-tuple-element(r), index=0"
    )
    assert run(body, 4) == [[4, 3, 2]]
    assert fails(body, 2) == f"m.hlo:{LINE}:1: r: the first 3 of 2 elements"


def test_batch_norm_of_a_dynamic_batch():
    """Statistics are those of the elements there."""
    text = """ENTRY e { x = f32[<=4,2] parameter(0)
      s = f32[2] parameter(1)
      o = f32[2] parameter(2)
      r = (f32[<=4,2], f32[2], f32[2]) batch-norm-training(x, s, o), epsilon=0, feature_index=1
      m = f32[2] get-tuple-element(r), index=1
      v = f32[2] get-tuple-element(r), index=2
      ROOT t = (f32[2], f32[2]) tuple(m, v) }"""
    x = np.array([[1, 5], [3, 5]], np.float32)
    ones = np.ones(2, np.float32)
    assert both(text, x, ones, ones) == [[2, 5], [1, 0]]


def test_cholesky_of_a_dynamic_batch():
    """As many matrices as there are."""
    text = """ENTRY e { x = f32[<=4,2,2] parameter(0)
      ROOT r = f32[<=4,2,2] cholesky(x), lower=true }"""
    x = np.array([[[4, 0], [2, 5]]], np.float32)
    assert both(text, x) == [[[[2, 0], [1, 2]]]]
    assert both(text, x[:0]) == [[]]


# ---- custom calls and refusals -------------------------------------------------------------------------


def test_slice_to_dynamic_and_pad_to_static_are_inverse():
    """XLA's own calls between an array of bounds with sizes and one of dynamic dimensions."""
    text = """ENTRY e { x = s32[2,3] parameter(0)
      n = s32[] parameter(1)
      two = s32[] constant(2)
      d = s32[2,<=3] custom-call(x, two, n), custom_call_target="SliceToDynamic"
      ROOT p = (s32[2,3], s32[], s32[]) custom-call(d), custom_call_target="PadToStatic" }"""
    x = np.arange(1, 7, dtype=np.int32).reshape(2, 3)
    assert both(text, x, np.int32(2)) == [[[1, 2, 0], [4, 5, 0]], 2, 2]
    module = hloopt.parse(f"HloModule m\n{text}", "m.hlo")
    with pytest.raises(
        EvaluationError, match=r"m\.hlo:5:7: d: size 4 of dimension 1 is not in \[0, 3\]"
    ):
        hloopt.evaluate(module, [x, np.int32(4)])


PADDED = (
    "r: the dynamic dimension 0 of s32[<=6] is padded or dilated, which XLA leaves out of the result's "
    "size"
)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            'ROOT r = s32[<=6] custom-call(dx), custom_call_target="nobody_knows"',
            "r: custom call to nobody_knows of dynamic dimensions has no evaluation",
        ),
        (
            "ROOT r = s32[<=7] reduce-window(dx, zero), window={size=2 pad=1_1}, to_apply=plus",
            PADDED,
        ),
        (
            "ROOT r = s32[<=6] bitcast(dx)",
            "r: bitcast of dynamic dimensions (s32[<=6]) has no evaluation",
        ),
        (
            'ROOT r = s32[<=6] custom-call(x), custom_call_target="SliceToDynamic"',
            "r: SliceToDynamic of s32[6] to s32[<=6] is not an array and its sizes",
        ),
        (
            "ROOT r = s32[<=12] all-gather(dx), dimensions={0}, replica_groups={{0,1}}",
            "r: all-gather of dynamic dimensions (s32[<=12]) has no evaluation",
        ),
    ],
)  # fmt: skip
def test_what_is_refused_says_where_and_why(body, message):
    """Before anything runs, with the name and the place."""
    line, column, said = refused(body)
    assert (line, column, said) == (LINE, 6, message)


@pytest.mark.parametrize(
    ("source", "target"),
    [("[<=3,<=4]", "[<=4,<=3]"), ("[<=6]", "[<=3,<=2]"), ("[<=6,0]", "[<=3,0,2]")],
)
def test_an_ambiguous_reshape_is_refused(source, target):
    """Two dynamic dimensions in one group, or no elements to count, and nothing says what adapts."""
    text = (
        f"HloModule m\nENTRY e {{ x = s32{source} parameter(0)\n ROOT r = s32{target} reshape(x) }}"
    )
    with pytest.raises(UnsupportedError, match="leaves open which dimension adapts") as caught:
        hloopt.compile(hloopt.parse(text, "m.hlo"))
    assert (caught.value.line, caught.value.column) == (3, 7)


def test_a_dynamic_value_may_not_pass_as_a_static_one():
    """XLA's verifier does not let it pass either; here the instruction is named."""
    text = """HloModule m
same { ROOT p = s32[6] parameter(0) }
ENTRY e { x = s32[<=6] parameter(0)
  ROOT r = s32[6] call(x), to_apply=same }"""
    with pytest.raises(UnsupportedError, match="is passed on as s32") as caught:
        hloopt.compile(hloopt.parse(text, "m.hlo"))
    assert (caught.value.line, caught.value.column) == (4, 8)
    body = "ROOT r = s32[6] add(dx, y)"
    assert run(body, 6) == [[11, 22, 33, 44, 55, 60]]
    assert "sizes [3] do not fit the shape s32[6]" in fails(body, 3)


def test_participants_reduce_arrays_of_one_size():
    """Each participant has its sizes; those that meet must have the same."""
    text = f"""HloModule m, replica_count=2
{REGIONS}
ENTRY e {{ x = s32[<=6] parameter(0)
  ROOT r = s32[<=6] all-reduce(x), replica_groups={{}}, to_apply=plus }}"""
    module = hloopt.parse(text, "m.hlo")
    for got in evaluate_participants(module, [[X[:2]], [Y[:2]]]):
        assert got[0].tolist() == [11, 22]
    with pytest.raises(EvaluationError, match=r"participant 1 brings arrays of \[\[1\]\]"):
        evaluate_participants(module, [[X[:2]], [Y[:1]]])


def test_excess_precision_keeps_what_is_beyond_the_sizes():
    """A loop that rounds what it carries grows an array as one that does not."""
    text = """HloModule m
cond { s = (bf16[<=4], s32[]) parameter(0)
  b = bf16[<=4] get-tuple-element(s), index=0
  n = s32[] get-dimension-size(b), dimensions={0}
  last = s32[] get-tuple-element(s), index=1
  ROOT r = pred[] compare(n, last), direction=LT }
body { s = (bf16[<=4], s32[]) parameter(0)
  b = bf16[<=4] get-tuple-element(s), index=0
  last = s32[] get-tuple-element(s), index=1
  n = s32[] get-dimension-size(b), dimensions={0}
  one = s32[] constant(1)
  more = s32[] add(n, one)
  grown = bf16[<=4] set-dimension-size(b, more), dimensions={0}
  ROOT r = (bf16[<=4], s32[]) tuple(grown, last) }
ENTRY e {
  x = bf16[4] parameter(0)
  last = s32[] parameter(1)
  y = bf16[4] add(x, x)
  none = s32[] constant(0)
  empty = bf16[<=4] set-dimension-size(y, none), dimensions={0}
  t = (bf16[<=4], s32[]) tuple(empty, last)
  w = (bf16[<=4], s32[]) while(t), condition=cond, body=body
  ROOT r = bf16[<=4] get-tuple-element(w), index=0
}"""
    module = hloopt.parse(text, "m.hlo")
    x = np.arange(4, dtype=np.float32).astype(module.entry.parameters[0].array.dtype.numpy)
    for excess in (False, True):
        inputs = [x, np.int32(3)]
        for got in (
            hloopt.evaluate(module, inputs, excess_precision=excess),
            hloopt.compile(module, excess_precision=excess).run(inputs),
        ):
            assert got[0].astype(np.float32).tolist() == [0, 2, 4]


def test_excess_precision_keeps_sizes():
    """The mode that carries bf16 in float32 has the same sizes."""
    text = """HloModule m
ENTRY e { x = bf16[<=6] parameter(0)
  y = bf16[<=6] add(x, x)
  ROOT r = bf16[<=6] sqrt(y) }"""
    module = hloopt.parse(text, "m.hlo")
    x = np.array([2, 8], np.float32).astype(module.entry.parameters[0].array.dtype.numpy)
    got = hloopt.evaluate(module, [x], excess_precision=True)[0]
    assert got.astype(np.float32).tolist() == [2, 4]
