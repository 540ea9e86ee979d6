"""Index arithmetic: what the simplified expression says is what the plain one says."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from hloopt.analysis.index import Index, Quotient, Symbol, delinearize, linearize

Values = dict[str, int]


def _evaluate(index: Index, values: Values) -> int:
    total = index.constant
    for atom, count in index.terms:
        if isinstance(atom, Symbol):
            value = values[atom.name]
        else:
            dividend = _evaluate(atom.dividend, values)
            assert dividend >= 0, "C would round the other way"
            value = (
                dividend // atom.divisor if isinstance(atom, Quotient) else dividend % atom.divisor
            )
        total += count * value
    return total


@given(st.data())
def test_simplification_keeps_every_value_and_ranges_hold(data: st.DataObject) -> None:
    """Random sums, products, quotients and remainders agree with Python's at random points."""
    symbols = [Symbol(f"s{n}", 0, data.draw(st.sampled_from([1, 3, 7, 11, 31]))) for n in range(3)]
    pool: list[tuple[Index, Callable[[Values], int]]] = [
        (symbol.index, lambda values, name=symbol.name: values[name]) for symbol in symbols
    ]
    for _ in range(data.draw(st.integers(1, 10))):
        (a, f), (b, g) = data.draw(st.sampled_from(pool)), data.draw(st.sampled_from(pool))
        c = data.draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12]))
        pool.append(
            data.draw(
                st.sampled_from(
                    [
                        (a + b, lambda v, f=f, g=g: f(v) + g(v)),
                        (a * c, lambda v, f=f, c=c: f(v) * c),
                        (a - b + c, lambda v, f=f, g=g, c=c: f(v) - g(v) + c),
                        (a // c, lambda v, f=f, c=c: f(v) // c),
                        (a % c, lambda v, f=f, c=c: f(v) % c),
                    ]
                )
            )
        )
    for _ in range(4):
        values = {s.name: data.draw(st.integers(s.low, s.high)) for s in symbols}
        for index, plain in pool:
            assert _evaluate(index, values) == plain(values)
            assert index.low <= plain(values) <= index.high


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_a_position_taken_apart_and_put_together_is_itself(dims: list[int]) -> None:
    """``linearize(delinearize(i)) == i`` by the rules alone."""
    position = Symbol("i", 0, prod(dims) - 1).index
    again = linearize(delinearize(position, dims), dims)
    assert again == (position if prod(dims) > 1 else Index(0))


def test_a_reshape_between_factors_leaves_simple_divisions() -> None:
    """An index that goes through several shapes has one division or remainder a dimension."""
    position = Symbol("i", 0, 209).index
    apart = delinearize(position, (2, 3, 5, 7))
    assert [str(at) for at in apart] == ["(i / 105)", "((i / 35) % 3)", "((i / 7) % 5)", "(i % 7)"]
    two = delinearize(linearize(apart, (2, 3, 5, 7)), (6, 35))
    assert [str(at) for at in two] == ["(i / 35)", "(i % 35)"]
    turned = delinearize(linearize((two[1], two[0]), (35, 6)), (7, 5, 6))
    assert [str(at) for at in turned] == ["((i % 35) / 5)", "(i % 5)", "(i / 35)"]


def test_multiples_are_seen_through_sums() -> None:
    """``4*i + 8`` is a multiple of 4, ``4*i + 6`` is one of 2 only."""
    i = Symbol("i", 0, 9).index
    assert (i * 4 + 8).is_multiple(4)
    assert not (i * 4 + 6).is_multiple(4)
    assert (i * 4 + 6).is_multiple(2)


def test_multiples_are_told_apart_from_what_is_added() -> None:
    """Of a variable that is a multiple of 4, what is below 4 neither changes quotients nor wraps remainders."""
    k = Symbol("k", 0, 140, 4).index
    assert str((k + 3) // 16) == "(k / 16)"
    assert str((k + 3) % 16) == "(k % 16) + 3"
    assert (k % 16).high == 12
    assert (k % 16 * 3).multiple == 12
    assert (k // 2).multiple == 2
    assert str((k + 4) % 16) == "((k + 4) % 16)"
