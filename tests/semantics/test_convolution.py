"""convolution: a loop over every output, every place of the window and every input feature."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.errors import UnsupportedError
from hloopt.interpret import convolution
from hloopt.types import ConvNumbers, Window, WindowDim
from tests.helpers.rarely import examples
from tests.semantics.elements import INTEGERS, entry, seeds, shape_of, values
from tests.semantics.formats import array_of, numbers
from tests.semantics.statement import assert_same, check
from tests.semantics.sums import KINDS, converted, small, summed, widest

OPCODES = ("convolution",)


@dataclass(frozen=True)
class Slide:
    """The window along one spatial dimension."""

    size: int
    window: int
    stride: int
    low: int
    high: int
    base: int
    dilation: int
    turned: bool

    @property
    def room(self):
        """The padded base: negative where more is cut off than there is."""
        return self.low + self.high + ((self.size - 1) * self.base + 1 if self.size else 0)

    @property
    def output(self):
        """How many places the window has."""
        reach = (self.window - 1) * self.dilation + 1
        return len(range(0, self.room - reach + 1, self.stride))

    def met(self, place, position):
        """The element and the weight that meet; None where the element lies in padding or in a gap."""
        at = place * self.stride + position * self.dilation - self.low
        if at % self.base or not 0 <= at // self.base < self.size:
            return None
        return at // self.base, self.window - 1 - position if self.turned else position


class Case:
    """A small convolution: slides, sizes, labels in any order, groups of features or of the batch."""

    def __init__(self, draw, most=3):
        self.slides = [
            Slide(
                draw(st.integers(0, 5)),
                draw(st.integers(1, 3)),
                draw(st.integers(1, 3)),
                draw(st.integers(-2, 3)),
                draw(st.integers(-2, 3)),
                draw(st.sampled_from([1, 1, 2, 3])),
                draw(st.sampled_from([1, 1, 2, 3])),
                draw(st.booleans()),
            )
            for _ in range(draw(st.integers(0, most)))
        ]
        self.slides = [slide for slide in self.slides if slide.room >= 0]
        groups = draw(st.sampled_from([1, 1, 2, 3]))
        by_feature = draw(st.booleans())
        self.feature_groups = groups if by_feature else 1
        self.batch_groups = 1 if by_feature else groups
        self.channels = draw(st.integers(1, 3))
        self.features = groups * draw(st.integers(1, 5))
        self.batch = draw(st.integers(0, 2))
        space = [str(axis) for axis in range(len(self.slides))]
        self.labels = [draw(st.permutations([*pair, *space])) for pair in ("bf", "io", "bf")]

    @property
    def input_sizes(self):
        sizes = {str(axis): slide.size for axis, slide in enumerate(self.slides)}
        return sizes | {
            "b": self.batch * self.batch_groups,
            "f": self.channels * self.feature_groups,
        }

    @property
    def kernel_sizes(self):
        sizes = {str(axis): slide.window for axis, slide in enumerate(self.slides)}
        return sizes | {"i": self.channels, "o": self.features}

    @property
    def output_sizes(self):
        sizes = {str(axis): slide.output for axis, slide in enumerate(self.slides)}
        return sizes | {"b": self.batch, "f": self.features}

    def dims(self, which):
        sizes = (self.input_sizes, self.kernel_sizes, self.output_sizes)[which]
        return [sizes[label] for label in self.labels[which]]

    def elements(self, which, found):
        """Elements by what their index is along each label."""
        places = product(*map(range, self.dims(which)))
        order = sorted(self.labels[which])
        keys = [dict(zip(self.labels[which], place, strict=True)) for place in places]
        return {
            tuple(key[label] for label in order): value
            for key, value in zip(keys, found, strict=True)
        }

    def text(self, names):
        def field(name, part):
            return f" {name}={'x'.join(str(part(slide)) for slide in self.slides)}"

        window = field("size", lambda s: s.window) + field("stride", lambda s: s.stride)
        window += field("pad", lambda s: f"{s.low}_{s.high}")
        window += field("lhs_dilate", lambda s: s.base) + field("rhs_dilate", lambda s: s.dilation)
        window += field("rhs_reversal", lambda s: int(s.turned))
        attributes = f", window={{{window.strip()}}}" if self.slides else ""
        lhs, rhs, out = ("".join(labels) for labels in self.labels)
        attributes += f", dim_labels={lhs}_{rhs}->{out}"
        if self.feature_groups > 1:
            attributes += f", feature_group_count={self.feature_groups}"
        if self.batch_groups > 1:
            attributes += f", batch_group_count={self.batch_groups}"
        shapes = [shape_of(name, self.dims(which)) for which, name in enumerate(names)]
        return entry(f"{shapes[2]} convolution(p0, p1){attributes}", shapes[:2])

    def pairs(self, x, weights, batch, feature, place):
        """What one output sums: indices are in the order of sorted labels, digits first."""
        feature_group = feature // (self.features // self.feature_groups)
        batch_group = feature // (self.features // self.batch_groups)
        for position in product(*[range(slide.window) for slide in self.slides]):
            met = [s.met(o, k) for s, o, k in zip(self.slides, place, position, strict=True)]
            if None in met:
                continue
            at, weight = ([pair[side] for pair in met] for side in (0, 1))
            for channel in range(self.channels):
                one = (
                    *at,
                    batch + batch_group * self.batch,
                    feature_group * self.channels + channel,
                )
                yield x[one], weights[(*weight, channel, feature)]

    def statement(self, names, arrays):
        kind = widest(*names)
        x, weights = (
            self.elements(which, [converted(name, kind, v) for v in numbers(name, array)])
            for which, (name, array) in enumerate(zip(names[:2], arrays, strict=True))
        )
        found = []
        for place in product(*map(range, self.dims(2))):
            at = dict(zip(self.labels[2], place, strict=True))
            spatial = [at[str(axis)] for axis in range(len(self.slides))]
            total = summed(kind, self.pairs(x, weights, at["b"], at["f"], spatial))
            found.append(converted(kind, names[2], total))
        return array_of(names[2], found, self.dims(2))


def check_case(case, names, chooser, draw_values=small):
    arrays = [draw_values(name, case.dims(which), chooser) for which, name in enumerate(names[:2])]
    check(case.text(names), arrays, case.statement(names, arrays), signed_zeros=False)


@given(st.data(), seeds)
@settings(max_examples=examples(80))
def test_convolution(data, chooser):
    """Labels in any order, strides, padding below zero, dilated base and window, reversal, groups, no elements."""
    name = data.draw(st.sampled_from(["f32", "f32", "f64", "bf16", "c64"]))
    check_case(Case(data.draw), [name] * 3, chooser)


@given(st.data(), st.lists(st.sampled_from(KINDS), min_size=3, max_size=3), seeds)
@settings(max_examples=examples(50))
def test_convolution_of_any_types(data, names, chooser):
    """Made in the widest of three types, rounded to it, and then to the result's."""
    check_case(Case(data.draw, most=1), names, chooser)


@given(st.data(), st.sampled_from([n for n in INTEGERS if n not in ("u1", "s1")]), seeds)
@settings(max_examples=examples(40))
def test_convolution_of_any_integers_wraps(data, name, chooser):
    """The sum is exact modulo 2^bits, as compiled XLA makes it; its evaluator saturates."""
    check_case(Case(data.draw, most=2), [name] * 3, chooser, values)


@given(st.data(), st.sampled_from(["f32", "bf16", "f8e5m2"]), seeds)
@settings(max_examples=examples(50))
def test_convolution_of_infinities(data, name, chooser):
    """Padding and gaps are no zeros that an infinite weight would meet: they take no part."""

    def special(*args):
        return small(*args, special=True)

    check_case(Case(data.draw, most=2), [name] * 3, chooser, special)


@pytest.mark.parametrize(
    ("pad", "weights", "want"),
    [
        ("1_1", [math.inf, 1.0, math.inf], [math.inf, math.inf]),
        ("0_2", [1.0, math.inf, math.inf], [math.inf, 2.0]),
        ("2_0", [math.inf, math.inf, 1.0], [1.0, math.inf]),
        ("0_1 lhs_dilate=2", [1.0, math.inf, 1.0], [3.0, math.inf]),
    ],
)
def test_an_infinite_weight_over_an_end_or_a_gap_adds_nothing(pad, weights, want):
    """Were there zeros, infinity times zero would be NaN."""
    text = entry(
        f"f32[1,2,1] convolution(p0, p1), window={{size=3 pad={pad}}}, dim_labels=b0f_0io->b0f",
        ["f32[1,2,1]", "f32[3,1,1]"],
    )
    arrays = [np.array(values_, np.float32) for values_ in ([1.0, 2.0], weights)]
    wanted = np.array(want, np.float32).reshape(1, 2, 1)
    check(text, [arrays[0].reshape(1, 2, 1), arrays[1].reshape(3, 1, 1)], wanted)


@given(st.data(), st.integers(1, 40), st.integers(1, 20), st.integers(0, 8), seeds)
@settings(max_examples=examples(60))
def test_blocks_of_any_size_make_the_same_convolution(data, block, rows, run, chooser):
    """Windows are copied in one order of dimensions or another and multiplied a few at a time."""
    limits = {"_BLOCK": block, "_FEW_ROWS": rows, "_SHORT_RUN": run}
    with mock.patch.multiple(convolution, **limits):
        check_case(Case(data.draw), ["f32"] * 3, chooser)


@given(st.data(), seeds)
@settings(max_examples=examples(20))
def test_operands_may_lie_in_memory_in_any_order(data, chooser):
    """The function is given views: transposed, and with steps."""
    case = Case(data.draw, most=2)
    arrays = [small("f32", case.dims(which), chooser) for which in (0, 1)]
    want = case.statement(["f32"] * 3, arrays)
    root = hloopt.parse(case.text(["f32"] * 3)).entry.root
    views = []
    for array in arrays:
        order = data.draw(st.permutations(range(array.ndim)))
        laid = np.repeat(np.ascontiguousarray(array.transpose(order)), 2, axis=0)[::2]
        views.append(laid.transpose(np.argsort(order)))
    got = convolution.convolution(*views, ConvNumbers.of(root.attributes))
    assert_same(got, want, "a view", signed_zeros=False)


def test_both_group_counts_are_refused():
    """HLO allows one of feature and batch groups to exceed 1."""
    labels = hloopt.parse(
        entry("f32[1,1,1] convolution(p0, p1), window={size=1}, dim_labels=bf0_io0->bf0", ["f32[1,1,1]"] * 2)
    ).entry.root.attributes["dim_labels"]  # fmt: skip
    with pytest.raises(ValueError, match="both exceed 1"):
        convolution.convolution(
            np.zeros((4, 4, 3)),
            np.zeros((2, 4, 1)),
            ConvNumbers(labels, Window((WindowDim(1),)), 2, 2),
        )


def test_sparse_kernels_are_refused():
    """Which weights are there is said by a configuration of one device."""
    text = entry(
        "f32[1,4,1] convolution(p0, p1), window={size=1}, dim_labels=b0f_0io->b0f, sparsity_config={rhs={sparsity=1x2}}",
        ["f32[1,4,2]", "f32[1,1,1]"],
    )
    with pytest.raises(UnsupportedError) as error:
        hloopt.compile(hloopt.parse(text))
    assert (error.value.line, error.value.message) == (
        6,
        "r: sparse convolutions cannot be evaluated",
    )
