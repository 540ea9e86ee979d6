"""dot, ragged-dot and scaled-dot: loops over every element, sums in exact numbers."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.errors import UnsupportedError
from tests.helpers.rarely import examples
from tests.semantics.elements import INTEGERS, entry, seeds, shape_of, values
from tests.semantics.formats import array_of, numbers, rounded
from tests.semantics.statement import check
from tests.semantics.sums import KINDS, converted, small, summed, widest

OPCODES = ("dot", "ragged-dot", "scaled-dot")


class Case:
    """Dimensions of both operands by name; a name's first letter says its part.

    b: batch, k: contracting, m and n: of one operand alone.
    """

    def __init__(self, draw):
        shared = [part + str(i) for part in "bk" for i in range(draw(st.integers(0, 2)))]
        left = shared + [f"m{i}" for i in range(draw(st.integers(0, 2)))]
        right = shared + [f"n{i}" for i in range(draw(st.integers(0, 2)))]
        self.left, self.right = draw(st.permutations(left)), draw(st.permutations(right))
        self.batch = draw(st.permutations([name for name in shared if name[0] == "b"]))
        self.contracting = draw(st.permutations([name for name in shared if name[0] == "k"]))
        smallest = draw(st.sampled_from([0, 1, 1, 1]))
        names = sorted({*left, *right})
        self.size = {name: draw(st.integers(smallest, 3)) for name in names}
        self.result = (
            self.batch
            + [name for name in self.left if name[0] == "m"]
            + [name for name in self.right if name[0] == "n"]
        )

    def dims(self, names):
        return [self.size[name] for name in names]

    @property
    def attributes(self):
        def numbered(key, side, names):
            places = ",".join(str(side.index(name)) for name in names)
            return f", {key}={{{places}}}"

        text = numbered("lhs_contracting_dims", self.left, self.contracting)
        text += numbered("rhs_contracting_dims", self.right, self.contracting)
        if self.batch:
            text = numbered("lhs_batch_dims", self.left, self.batch) + text
            text += numbered("rhs_batch_dims", self.right, self.batch)
        return text

    def statement(self, lhs, rhs, kind, result):
        """The result's elements, by loops over them and over what is contracted."""
        left = dict(zip(product(*map(range, self.dims(self.left))), lhs, strict=True))
        right = dict(zip(product(*map(range, self.dims(self.right))), rhs, strict=True))
        found = []
        for place in product(*map(range, self.dims(self.result))):
            at = dict(zip(self.result, place, strict=True))
            pairs = []
            for inner in product(*map(range, self.dims(self.contracting))):
                at.update(zip(self.contracting, inner, strict=True))
                pairs.append(
                    (left[tuple(at[name] for name in self.left)],
                     right[tuple(at[name] for name in self.right)])
                )  # fmt: skip
            found.append(converted(kind, result, summed(kind, pairs)))
        return array_of(result, found, self.dims(self.result))


def check_dot(case, names, arrays, more=""):
    """``names``: the types of the operands and of the result."""
    kind = widest(*names)
    lhs, rhs = (
        [converted(name, kind, value) for value in numbers(name, array)]
        for name, array in zip(names[:2], arrays, strict=True)
    )
    shapes = [shape_of(names[0], case.dims(case.left)), shape_of(names[1], case.dims(case.right))]
    result = shape_of(names[2], case.dims(case.result))
    text = entry(f"{result} dot(p0, p1){case.attributes}{more}", shapes)
    check(text, arrays, case.statement(lhs, rhs, kind, names[2]), signed_zeros=False)


def operands(case, names, chooser, draw_values):
    return [
        draw_values(name, case.dims(side), chooser)
        for name, side in zip(names, (case.left, case.right), strict=False)
    ]


@given(st.data(), st.lists(st.sampled_from(KINDS), min_size=3, max_size=3), seeds)
@settings(max_examples=examples(60))
def test_dot_of_any_types(data, names, chooser):
    """Any dimensions in any order; made in the widest of three types, rounded to it, then to the result's."""
    case = Case(data.draw)
    if data.draw(st.booleans()):
        names = [names[0]] * 3
    check_dot(case, names, operands(case, names, chooser, small))


@given(
    st.data(),
    st.sampled_from(
        [("bf16", "bf16", "s32"), ("bf16", "f16", "f16"), ("f16", "f16", "s16"), ("f8e4m3fn", "f8e4m3fn", "s16"),
         ("f8e5m2", "f8e5m2", "pred"), ("s8", "s8", "pred"), ("f32", "f32", "s8"), ("s32", "f32", "u8")]
    ),
    seeds,
)  # fmt: skip
@settings(max_examples=examples(40))
def test_dot_is_rounded_to_its_own_type_before_it_becomes_the_results(data, names, chooser):
    """257 as a sum of bf16 is 256 as an s32, too."""
    case = Case(data.draw)
    check_dot(case, names, operands(case, names, chooser, small))


@given(st.data(), st.sampled_from(["f32", "f64", "bf16", "f16", "f8e5m2", "f8e4m3fn"]), seeds)
@settings(max_examples=examples(30))
def test_dot_of_infinities(data, name, chooser):
    """An infinity or a NaN reaches the elements it meets and no other."""

    def special(*args):
        return small(*args, special=True)

    case = Case(data.draw)
    names = [name, name, data.draw(st.sampled_from([name, "f32"]))]
    check_dot(case, names, operands(case, names, chooser, special))


@given(st.data(), st.sampled_from(["c64", "c128", "f32"]), st.sampled_from(["c64", "c128"]), seeds)
@settings(max_examples=examples(30))
def test_dot_of_complex_numbers(data, left, right, chooser):
    """No operand is conjugated; a real result is the real part of the complex one."""
    case = Case(data.draw)
    names = [left, right, data.draw(st.sampled_from(["c64", "c128", "f32"]))]
    check_dot(case, names, operands(case, names, chooser, small))


@given(st.data(), st.sampled_from([n for n in INTEGERS if n not in ("u1", "s1")]), seeds)
@settings(max_examples=examples(40))
def test_dot_of_any_integers_wraps(data, name, chooser):
    """Whatever the size of the elements: the sum is exact modulo 2^bits."""
    case = Case(data.draw)
    wide = data.draw(st.sampled_from([name, "s64" if name[0] == "s" else "u64"]))
    check_dot(case, [name, name, wide], operands(case, [name, name], chooser, values))


@pytest.mark.parametrize(
    "more",
    [", algorithm=dot_bf16_bf16_f32", ", algorithm=dot_tf32_tf32_f32", ", algorithm=dot_bf16_bf16_f32_x3",
     ", algorithm=dot_bf16_bf16_f32_x6", ", algorithm=dot_bf16_bf16_f32_x9", ", operand_precision={highest,default}",
     ", operand_precision={HIGHEST,High}"],
)  # fmt: skip
def test_precision_and_algorithm_change_nothing(more):
    """They allow a device to round operands; what is computed is the product of the operands."""
    lhs, rhs = np.array([1 + 2.0**-20, 1.0], np.float32), np.array([1.0, -1.0], np.float32)
    attributes = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    text = entry(f"f32[] dot(p0, p1), {attributes}{more}", ["f32[2]", "f32[2]"])
    check(text, [lhs, rhs], np.array(2.0**-20, np.float32))


@pytest.mark.parametrize("opcode", ["dot", "convolution"])
def test_packed_operands_are_refused(opcode):
    """A precision of older XLA: each element holds two numbers."""
    attributes = {
        "dot": "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "convolution": "dim_labels=bf_io->bf",
    }[opcode]
    more = f"{attributes}, operand_precision={{packed_nibble,packed_nibble}}"
    text = entry(f"s32[2,2] {opcode}(p0, p1), {more}", ["s8[2,2]", "s8[2,2]"])
    with pytest.raises(UnsupportedError) as error:
        hloopt.compile(hloopt.parse(text))
    message = "r: operands of the precision packed_nibble cannot be evaluated"
    assert (error.value.line, error.value.message) == (6, message)


def test_a_long_sum_of_large_integers_is_exact():
    """More terms than a double could add up exactly."""
    rows = np.full((2, 5000), 2**31 - 1, np.int32)
    attributes = "lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    text = entry(f"s64[2,2] dot(p0, p1), {attributes}", ["s32[2,5000]", "s32[2,5000]"])
    total = (5000 * (2**31 - 1) ** 2) % 2**64
    check(text, [rows, rows], np.full((2, 2), total, np.uint64).view(np.int64))


MODES = {
    "free": ("lhs_contracting_dims={2}, rhs_contracting_dims={2}, lhs_batch_dims={0}, rhs_batch_dims={1}, "
             "lhs_ragged_dims={1}, rhs_group_dims={0}"),
    "contracting": ("lhs_contracting_dims={2}, rhs_contracting_dims={1}, lhs_batch_dims={0}, "
                    "rhs_batch_dims={0}, lhs_ragged_dims={2}"),
    "batch": ("lhs_contracting_dims={2}, rhs_contracting_dims={1}, lhs_batch_dims={0}, "
              "rhs_batch_dims={0}, lhs_ragged_dims={0}"),
}  # fmt: skip


def group_of(sizes, place):
    """The number of the group in which a place lies, None beyond the last."""
    end = 0
    for number, size in enumerate(sizes):
        end += size
        if place < end:
            return number
    return None


@given(
    st.sampled_from(sorted(MODES)),
    st.sampled_from([("f32", "f32"), ("bf16", "f32"), ("bf16", "bf16"), ("s8", "s32"), ("f64", "f64")]),
    st.tuples(*[st.integers(0, 3)] * 4),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.booleans(),
    seeds,
)  # fmt: skip
@settings(max_examples=examples(60))
def test_ragged_dot(mode, types, dims, sizes, by_batch, chooser):
    """Group sizes need not sum up to the dimension: rows beyond them give 0, what is beyond the end is cut."""
    (name, result), (b, m, k, n) = types, dims
    groups = len(sizes)
    rhs_dims = (groups, b, k, n) if mode == "free" else (b, k, n)
    table = [sizes] * b
    if by_batch and mode != "batch":
        table = [chooser.sample(sizes, groups) for _ in range(b)]
    given_sizes = np.array(sizes, np.int32)
    if by_batch and mode != "batch":
        given_sizes = np.array(table, np.int32).reshape(b, groups)
    lhs, rhs = small(name, (b, m, k), chooser), small(name, rhs_dims, chooser)
    kind = widest(name, name, result)
    x = dict(zip(np.ndindex(b, m, k), numbers(name, lhs), strict=True))
    y = dict(zip(np.ndindex(*rhs_dims), numbers(name, rhs), strict=True))

    def terms(i, row, column, group=None):
        for inner in range(k):
            if mode == "free":
                mine = group_of(table[i], row)
                if mine is not None:
                    yield x[i, row, inner], y[mine, i, inner, column]
            elif mode == "batch":
                if group_of(sizes, i) is not None:
                    yield x[i, row, inner], y[i, inner, column]
            elif group_of(table[i], inner) == group:
                yield x[i, row, inner], y[i, inner, column]

    lead = (groups,) if mode == "contracting" else ()
    places = product(*map(range, (*lead, b, m, n)))
    want = [
        converted(kind, result, summed(kind, terms(*place[len(lead):], *place[: len(lead)])))
        for place in places
    ]  # fmt: skip
    shapes = [
        shape_of(name, lhs.shape),
        shape_of(name, rhs_dims),
        shape_of("s32", given_sizes.shape),
    ]
    text = entry(
        f"{shape_of(result, (*lead, b, m, n))} ragged-dot(p0, p1, p2), {MODES[mode]}", shapes
    )
    arrays = [lhs, rhs, given_sizes]
    check(text, arrays, array_of(result, want, (*lead, b, m, n)), signed_zeros=False)


@given(
    st.sampled_from(["f8e4m3fn", "f8e5m2", "f4e2m1fn", "bf16"]),
    st.sampled_from(["f8e8m0fnu", "bf16"]),
    st.sampled_from(["f32", "bf16"]),
    st.tuples(*[st.integers(1, 3)] * 3),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
    seeds,
)
@settings(max_examples=examples(40))
def test_scaled_dot(name, scale, result, dims, block, both, chooser):
    """An element's scale is that of its block; one of two bf16 operands may have a scale without dimensions,
    which stands for 1.
    """
    m, k, n = dims
    if not both:
        name, scale, block = "bf16", "bf16", 2
    lhs, rhs = small(name, (m, k * block), chooser), small(name, (n, k * block), chooser)
    powers = [
        array_of(scale, [2.0 ** chooser.randint(-2, 2) for _ in range(rows * k)], (rows, k))
        for rows in (m, n)
    ]
    one = array_of(scale, [1.0], ())
    scales = [powers[0], powers[1] if both else one]
    want = []
    for i, j in product(range(m), range(n)):
        total = Fraction(0)
        for inner in range(k * block):
            term = Fraction(float(lhs[i, inner])) * Fraction(float(rhs[j, inner]))
            for row, factor in ((i, scales[0]), (j, scales[1])):
                if factor.ndim:
                    term *= Fraction(float(factor[row, inner // block]))
            total += term
        want.append(rounded(result, total))
    shapes = [shape_of(name, lhs.shape), shape_of(name, rhs.shape)]
    shapes += [shape_of(scale, factor.shape) for factor in scales]
    attributes = "lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    text = entry(f"{result}[{m},{n}] scaled-dot(p0, p1, p2, p3), {attributes}", shapes)
    check(text, [lhs, rhs, *scales], array_of(result, want, (m, n)), signed_zeros=False)
