"""batch-norm-training, -inference and -grad: one feature after the other, in fractions and 60 digits."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.rarely import examples
from tests.semantics.elements import drawn_dims, entry, seeds, shape_of
from tests.semantics.formats import array_of, numbers, rounded
from tests.semantics.statement import check

OPCODES = ("batch-norm-grad", "batch-norm-inference", "batch-norm-training")

NAMES = ("f32", "f64", "f16", "bf16")
# Two roundings of the type: the second of XLA's double arithmetic, which may turn a tie.
LOOSE = {"f32": 2.0**-22, "f64": 1e-13, "f16": 2.0**-10, "bf16": 2.0**-7}

names = st.sampled_from(NAMES)
epsilons = st.sampled_from(["0.001", "1e-05", "1", "0.25"])


class Case:
    """An array, its feature dimension, and vectors along it."""

    def __init__(self, name, dims, feature, chooser):
        self.name, self.dims, self.feature, self.chooser = name, dims, feature % len(dims), chooser
        self.count = dims[self.feature]
        self.array_shape = shape_of(name, dims)
        self.vector_shape = shape_of(name, (self.count,))
        self.places = list(product(*map(range, dims)))

    def drawn(self, positive=False):
        low = 1 if positive else -12
        return Fraction(self.chooser.randint(low, 12), 4)

    def array(self):
        return {place: self.drawn() for place in self.places}

    def vector(self, positive=False):
        return [self.drawn(positive) for _ in range(self.count)]

    def of(self, feature):
        return [place for place in self.places if place[self.feature] == feature]

    def laid(self, table):
        """As an array of the type."""
        return array_of(
            self.name, [rounded(self.name, exact(table[at])) for at in self.places], self.dims
        )

    def line(self, values):
        return array_of(self.name, [rounded(self.name, exact(value)) for value in values])

    def text(self, instruction, parts):
        shapes = [self.array_shape if part == "a" else self.vector_shape for part in parts]
        return entry(f"{instruction}, feature_index={self.feature}", shapes)

    @property
    def triple(self):
        return f"({self.array_shape}, {self.vector_shape}, {self.vector_shape})"


def exact(number):
    """A fraction, or a float of which 53 digits are more than enough for one rounding."""
    return number if isinstance(number, Fraction) else float(number)


def mp(number):
    return (
        mpmath.mpf(number.numerator) / number.denominator
        if isinstance(number, Fraction)
        else number
    )


def deviation(variance, epsilon):
    """sqrt(variance + epsilon); HLO keeps epsilon in single precision."""
    (single,) = numbers("f32", np.array([epsilon], np.float32))
    return mpmath.sqrt(mp(variance) + mpmath.mpf(single))


def statistics(case, x, feature):
    values = [x[place] for place in case.of(feature)]
    mean = sum(values, Fraction(0)) / len(values)
    return mean, sum(((v - mean) ** 2 for v in values), Fraction(0)) / len(values)


dims_ = drawn_dims(1, 4, 1, 3)


@given(names, dims_, st.integers(0, 3), epsilons, seeds)
@settings(max_examples=examples(30))
def test_training(name, dims, feature, epsilon, chooser):
    """The array normalised by its own mean and biased variance, then these two."""
    case = Case(name, dims, feature, chooser)
    x, scale, offset = case.array(), case.vector(), case.vector()
    normal, means, variances = {}, [], []
    with mpmath.workdps(60):
        for f in range(case.count):
            mean, variance = statistics(case, x, f)
            means.append(mean)
            variances.append(variance)
            for place in case.of(f):
                part = mp(x[place] - mean) / deviation(variance, epsilon)
                normal[place] = part * mp(scale[f]) + mp(offset[f])
    text = case.text(f"{case.triple} batch-norm-training(p0, p1, p2), epsilon={epsilon}", "avv")
    want = [case.laid(normal), case.line(means), case.line(variances)]
    inputs = [case.laid(x), case.line(scale), case.line(offset)]
    check(text, inputs, want, rtol=LOOSE[name], atol=LOOSE[name])


@given(names, dims_, st.integers(0, 3), epsilons, seeds)
@settings(max_examples=examples(30))
def test_inference(name, dims, feature, epsilon, chooser):
    """The array normalised by a mean and a variance that are given."""
    case = Case(name, dims, feature, chooser)
    x, scale, offset = case.array(), case.vector(), case.vector()
    mean, variance = case.vector(), case.vector(positive=True)
    normal = {}
    with mpmath.workdps(60):
        for place in case.places:
            f = place[case.feature]
            part = mp(x[place] - mean[f]) / deviation(variance[f], epsilon)
            normal[place] = part * mp(scale[f]) + mp(offset[f])
    text = case.text(
        f"{case.array_shape} batch-norm-inference(p0, p1, p2, p3, p4), epsilon={epsilon}", "avvvv"
    )
    inputs = [case.laid(x), *map(case.line, (scale, offset, mean, variance))]
    check(text, inputs, case.laid(normal), rtol=LOOSE[name], atol=LOOSE[name])


@given(names, dims_, st.integers(0, 3), epsilons, seeds)
@settings(max_examples=examples(30))
def test_gradient(name, dims, feature, epsilon, chooser):
    """What a change of each output costs, traced back through mean and variance to the inputs of training."""
    case = Case(name, dims, feature, chooser)
    x, g, scale = case.array(), case.array(), case.vector()
    mean, variance = case.vector(), case.vector(positive=True)
    of_x, of_scale, of_offset = {}, [], []
    with mpmath.workdps(60):
        for f in range(case.count):
            places, root = case.of(f), deviation(variance[f], epsilon)
            normal = {place: mp(x[place] - mean[f]) / root for place in places}
            of_offset.append(sum((g[place] for place in places), Fraction(0)))
            of_scale.append(mpmath.fsum(mp(g[place]) * normal[place] for place in places))
            for place in places:
                inner = mp(g[place]) - (mp(of_offset[f]) + normal[place] * of_scale[f]) / len(
                    places
                )
                of_x[place] = mp(scale[f]) * inner / root
    text = case.text(
        f"{case.triple} batch-norm-grad(p0, p1, p2, p3, p4), epsilon={epsilon}", "avvva"
    )
    inputs = [case.laid(x), *map(case.line, (scale, mean, variance)), case.laid(g)]
    want = [case.laid(of_x), case.line(of_scale), case.line(of_offset)]
    check(text, inputs, want, rtol=LOOSE[name], atol=LOOSE[name] * 4)


@pytest.mark.parametrize(("dims", "feature"), [((0, 3), 1), ((3, 0), 1), ((2, 0, 3), 2), ((0,), 0)])
def test_features_without_elements(dims, feature):
    """Mean and variance of nothing are NaN, sums of nothing 0, as XLA has them."""
    count = dims[feature]
    array, vector = np.ones(dims, np.float32), np.ones(count, np.float32)
    a, v = shape_of("f32", dims), shape_of("f32", (count,))
    more = f"epsilon=0.001, feature_index={feature}"
    text = entry(f"({a}, {v}, {v}) batch-norm-training(p0, p1, p2), {more}", [a, v, v])
    nan = np.full(count, np.nan, np.float32)
    check(text, [array, vector, vector], [array, nan, nan])
    text = entry(f"({a}, {v}, {v}) batch-norm-grad(p0, p1, p2, p3, p4), {more}", [a, v, v, v, a])
    zero = np.zeros(count, np.float32)
    check(text, [array, vector, vector, vector, array], [array, zero, zero])
