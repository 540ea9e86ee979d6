"""Running error bounds: sound, and tight where nothing is rounded."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloopt
from hloopt.interpret import evaluate_bounds, evaluate_participants
from hloopt.interpret.bounds import RULES
from hloopt.interpret.perturbation import unit_roundoff
from hloopt.ops.traits import ALL, ELEMENTWISE, TRANSCENDENTAL
from hloopt.runtime.judge import Judge, judged
from hloopt.types import dtype

F32 = np.float32
U = 2.0**-24


def bounds_of(text: str, *arrays: np.ndarray) -> list[np.ndarray | None]:
    """Of the results of a module's entry."""
    return evaluate_bounds(hloopt.parse(text), [list(arrays)])[0]


def entry(*lines: str, regions: str = "") -> str:
    return f"HloModule m\n{regions}\nENTRY e {{\n  " + "\n  ".join(lines) + "\n}\n"


ADDED = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }"


def drawn(*dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims).astype(F32)


def test_what_moves_elements_adds_nothing() -> None:
    """Copies, slices, gathers, updates, sorts and choices of exact values."""
    text = entry(
        "x = f32[4,6] parameter(0)",
        "i = s32[2] constant({3, 0})",
        "z = s32[] constant(1)",
        "t = f32[6,4] transpose(x), dimensions={1,0}",
        "g = f32[2,4] gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,4}",
        "u = f32[6,4] dynamic-update-slice(t, g, z, z)",
        "s = f32[6,4] slice(u), slice={[0:6], [0:4]}",
        "n = f32[6,4] negate(s)",
        "ROOT m = f32[6,4] maximum(n, t)",
    )
    assert bounds_of(text, drawn(4, 6)) == [None]


def test_bounds_move_with_elements() -> None:
    """The half that was rounded is off, the other is not."""
    text = entry(
        "x = f32[5] parameter(0)",
        "y = f32[5] parameter(1)",
        "p = f32[5] multiply(x, y)",
        "c = f32[10] concatenate(p, x), dimensions={0}",
        "ROOT r = f32[10] reverse(c), dimensions={0}",
    )
    x, y = drawn(5), drawn(5, seed=1)
    (bound,) = bounds_of(text, x, y)
    assert bound is not None
    assert not bound[:5].any()
    assert (bound[5:] <= 2.01 * U * np.abs(x * y)[::-1]).all()
    assert (bound[5:] >= U * np.abs(x * y)[::-1]).all()


def test_exact_arithmetic_adds_nothing() -> None:
    """Integers, powers of two, sums of small whole numbers."""
    text = entry(
        "x = f32[64] parameter(0)",
        "i = s32[64] iota(), iota_dimension=0",
        "k = s32[64] multiply(i, i)",
        "f = f32[64] convert(k)",
        "q = f32[] constant(0.25)",
        "qs = f32[64] broadcast(q), dimensions={}",
        "h = f32[64] multiply(x, qs)",
        "z = f32[] constant(0)",
        "s = f32[] reduce(f, z), dimensions={0}, to_apply=add",
        "d = f32[] dot(f, f), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
        "ROOT t = (f32[64], s32[64], f32[]) tuple(h, k, s)",
        regions=ADDED,
    )
    assert bounds_of(text, drawn(64)) == [None, None, None]


@pytest.mark.parametrize("count", [2, 100, 4096])
def test_a_sum_of_positive_terms_is_off_by_gamma(count: int) -> None:
    """As much as any order of n terms may round, and no more than twice that."""
    text = entry(
        f"x = f32[{count}] parameter(0)",
        "z = f32[] constant(0)",
        "ROOT s = f32[] reduce(x, z), dimensions={0}, to_apply=add",
        regions=ADDED,
    )
    x = np.abs(drawn(count)) + F32(0.1)
    (bound,) = bounds_of(text, x)
    assert bound is not None
    total = float(x.astype(np.float64).sum())
    assert (count - 1) * U * total <= bound <= 1.01 * (count + 2) * U * total
    one_by_one = F32(0)
    for number in x:
        one_by_one += number
    assert abs(float(one_by_one) - float(np.float32(total))) <= bound


def test_a_product_is_off_by_its_terms() -> None:
    """Each element by the magnitudes that were added for it, whatever its neighbours are."""
    text = entry(
        "a = f32[2,4096] parameter(0)",
        "b = f32[4096] parameter(1)",
        "ROOT d = f32[2] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    )
    a, b = drawn(2, 4096), drawn(4096, seed=1)
    a[1] *= F32(1e-6)
    (bound,) = bounds_of(text, a, b)
    assert bound is not None
    added = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    assert (bound >= 4096 * U * added).all()
    assert (bound <= 2.1 * 4096 * U * added).all()


@pytest.mark.parametrize(
    ("algorithm", "bits"), [("dot_bf16_bf16_f32", 16), ("dot_tf32_tf32_f32", 13)]
)
def test_an_algorithm_rounds_factors(algorithm: str, bits: int) -> None:
    """A product whose factors lose their last bits first is within the bound; as f32 it is not."""
    x, y = drawn(6, 40), drawn(40, 5, seed=1)
    lines = ("x = f32[6,40] parameter(0)", "y = f32[40,5] parameter(1)")
    product = "ROOT d = f32[6,5] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    half, mask = np.uint32(1 << (bits - 1)), np.uint32(2**32 - 2**bits)
    a, b = (((one.view(np.uint32) + half) & mask).view(F32).astype(np.float64) for one in (x, y))
    off = abs(a @ b - x.astype(np.float64) @ y)
    (bound,) = bounds_of(entry(*lines, f"{product}, algorithm={algorithm}"), x, y)
    (narrow,) = bounds_of(entry(*lines, product), x, y)
    assert bound is not None
    assert narrow is not None
    assert np.all(off <= bound)
    assert np.any(off > narrow)
    assert np.all(bound <= 4.5 * 2.0 ** (bits - 24) * (abs(x) @ abs(y)))


@pytest.mark.parametrize(
    ("algorithm", "bits"), [("dot_bf16_bf16_f32", 8), ("dot_tf32_tf32_f32", 10)]
)
def test_a_factor_may_lie_in_the_middle(algorithm: str, bits: int) -> None:
    """1 + 2^-bits, halfway between neighbours of bf16, and what TF32 cuts off of the number below that."""
    x = np.array([[np.nextafter(F32(1 + 2.0**-bits), F32(bits == 8))]], F32)
    lines = ("x = f32[1,1] parameter(0)", "y = f32[1,1] parameter(1)")
    product = "ROOT d = f32[1,1] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    (bound,) = bounds_of(
        entry(*lines, f"{product}, algorithm={algorithm}"), x, np.ones((1, 1), F32)
    )
    assert bound is not None
    assert abs(float(x[0, 0]) - 1) <= bound


def test_what_cancels_stays_off() -> None:
    """(a + b) - a is off by what a + b rounds, though little is left."""
    text = entry(
        "a = f32[] parameter(0)",
        "b = f32[] parameter(1)",
        "s = f32[] add(a, b)",
        "ROOT d = f32[] subtract(s, a)",
    )
    (bound,) = bounds_of(text, F32(1e6), F32(0.3))
    assert bound is not None
    assert 1e6 * U <= bound <= 3e6 * U


@pytest.mark.parametrize(("gap", "decided"), [(1e-3, True), (0.0, False)])
def test_a_choice_is_decided_or_not(gap: float, decided: bool) -> None:
    """Of two that are as near as rounding, either may be taken; an index of one may then be any."""
    text = entry(
        "a = f32[] parameter(0)",
        "b = f32[] parameter(1)",
        "c = f32[] parameter(2)",
        "p = f32[] multiply(a, b)",
        "w = pred[] compare(p, c), direction=LT",
        "one = f32[] constant(1)",
        "two = f32[] constant(2)",
        "s = f32[] select(w, one, two)",
        "i = s32[] convert(s)",
        "k = f32[] floor(p)",
        "ROOT t = (f32[], s32[], pred[], f32[]) tuple(s, i, w, k)",
    )
    a, b = F32(1.1), F32(1.7)
    selected, index, truth, floor = bounds_of(text, a, b, F32(a * b + F32(gap)))
    assert floor is None
    assert (selected is None) is decided
    assert (index is None) is decided
    assert (truth is None) is decided
    if selected is not None:
        assert selected == 1.0


LOOP = """
more {{ s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[] get-tuple-element(s), index=1
  n = s32[] constant(3)
  l = f32[] constant(100)
  ROOT p = pred[] compare({0}), direction=LT }}
next {{ s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[] get-tuple-element(s), index=1
  o = s32[] constant(1)
  j = s32[] add(i, o)
  c = f32[] constant(1.1)
  y = f32[] multiply(x, c)
  ROOT t = (s32[], f32[]) tuple(j, y) }}
"""


def test_a_loop_carries_bounds() -> None:
    """Three roundings more after three iterations; nothing where the trip count hangs on rounding."""

    def last(condition: str, x: float) -> list[np.ndarray | None]:
        text = entry(
            "z = s32[] constant(0)",
            "x = f32[] parameter(0)",
            "s = (s32[], f32[]) tuple(z, x)",
            "ROOT w = (s32[], f32[]) while(s), condition=more, body=next",
            regions=LOOP.format(condition),
        )
        return bounds_of(text, F32(x))

    count, value = last("i, n", 0.7)
    assert count is None
    assert value is not None
    assert 3 * U * 0.7 < value < 8 * U * 0.7 * 1.1**3
    count, value = last("x, l", 90.0)
    assert count is None
    assert value is not None
    edge = F32(100)
    start = edge
    for _ in range(3):
        start = F32(start / F32(1.1))
    assert any(
        last("x, l", float(F32(start + F32(step) * F32(2e-6) * start)))[0] is not None
        for step in range(-3, 4)
    )


def test_every_opcode_has_a_rule_or_none_is_known() -> None:
    """Elementwise ops all have a rule, whatever they are given."""
    assert set(RULES) <= ALL
    assert set(RULES) >= ELEMENTWISE


UNARY = [*sorted(TRANSCENDENTAL - {"atan2", "power"}), "negate", "abs"]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "power",
    "atan2",
    "remainder",
]


def expression(chance: random.Random, kind: str) -> str:
    """A random module of elementwise ops, sums and products over ``KIND[3,5]``."""
    lines = [f"x{n} = KIND[3,5] parameter({n})" for n in range(3)]
    names = ["x0", "x1", "x2"]
    lines.append("zero = KIND[] constant(0)")
    for number in range(8):
        name, choice = f"v{number}", chance.random()
        if choice < 0.35:
            lines.append(f"{name} = KIND[3,5] {chance.choice(UNARY)}({chance.choice(names)})")
        elif choice < 0.75:
            left, right = (chance.choice(names) for _ in range(2))
            lines.append(f"{name} = KIND[3,5] {chance.choice(BINARY)}({left}, {right})")
        elif choice < 0.9:
            lines.append(
                f"sum{number} = KIND[3] reduce({chance.choice(names)}, zero), dimensions={{1}}, to_apply=add"
            )
            lines.append(f"{name} = KIND[3,5] broadcast(sum{number}), dimensions={{0}}")
        else:
            left, right = (chance.choice(names) for _ in range(2))
            lines.append(
                f"dot{number} = KIND[3,3] dot({left}, {right}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}"
            )
            lines.append(f"{name} = KIND[3,5] pad(dot{number}, zero), padding=0_0x1_1")
        names.append(name)
    outputs = names[-4:]
    lines.append(f"ROOT t = ({', '.join(['KIND[3,5]'] * 4)}) tuple({', '.join(outputs)})")
    region = "add { a = KIND[] parameter(0)\n b = KIND[] parameter(1)\n ROOT s = KIND[] add(a, b) }"
    return entry(*lines, regions=region).replace("KIND", kind)


@pytest.mark.every_value
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
def test_bounds_are_sound(kind: str, seed: int) -> None:
    """The same expression in f64 is as right as one can be: within the bound, element by element."""
    chance = random.Random(seed)
    text, wide = (expression(random.Random(seed), one) for one in (kind, "f64"))
    rng = np.random.default_rng(seed)
    scale = 2.0 ** chance.randint(-3, 3)
    arrays = [(rng.standard_normal((3, 5)) * scale).astype(dtype(kind).numpy) for _ in range(3)]
    own = hloopt.evaluate(hloopt.parse(text), arrays)
    truth = hloopt.evaluate(hloopt.parse(wide), [array.astype(np.float64) for array in arrays])
    for got, exact, bound in zip(own, truth, bounds_of(text, *arrays), strict=True):
        allowed = np.zeros(got.shape) if bound is None else bound
        numbers = np.isfinite(got.astype(np.float64)) & np.isfinite(exact)
        error = np.abs(got.astype(np.float64)[numbers] - exact[numbers])
        assert (error <= allowed[numbers]).all(), text


def test_bounds_say_something() -> None:
    """Most elements of such expressions have a bound of a few roundings of their size: it is no infinity."""
    known = total = 0
    for seed in range(40):
        arrays = [drawn(3, 5, seed=3 * seed + n) for n in range(3)]
        text = expression(random.Random(seed), "f32")
        for got, bound in zip(
            hloopt.evaluate(hloopt.parse(text), arrays), bounds_of(text, *arrays), strict=True
        ):
            numbers = np.isfinite(got)
            allowed = np.zeros(got.shape) if bound is None else bound
            total += int(numbers.sum())
            known += int((allowed[numbers] <= 2**12 * U * (1 + np.abs(got[numbers]))).sum())
    assert known > 0.8 * total


def test_the_judge_takes_the_tighter_one() -> None:
    """A copy is off by nothing, an element that is rounded once by two units, whatever its magnitude allows."""
    text = entry(
        "x = f32[8] parameter(0)",
        "r = f32[8] reverse(x), dimensions={0}",
        "p = f32[8] multiply(x, x)",
        "ROOT t = (f32[8], f32[8]) tuple(r, p)",
    )
    module, x = hloopt.parse(text), np.abs(drawn(8)) + F32(1)
    want = hloopt.evaluate(module, [x])
    near = [np.nextafter(want[0], F32(9)), np.nextafter(want[1], F32(9))]
    copied, product = judged(module, [x], near, want)
    assert (copied.passed, product.passed) == (False, True)
    assert "nothing here is rounded" in copied.reason
    far = [want[0], want[1] * F32(1 + 4 * 2**-23)]
    found = judged(module, [x], far, want)[1]
    assert not found.passed
    assert "times what rounding allows" in found.reason
    assert "(the bound on its error)" in found.reason


def test_recorded_results_may_be_off_on_the_other_side() -> None:
    """What is compared with results of another program may be off by both bounds."""
    text = entry("x = f32[4] parameter(0)", "ROOT p = f32[4] exponential(x)")
    module, x = hloopt.parse(text), drawn(4)
    own = hloopt.evaluate(module, [x])[0]
    unit = unit_roundoff(dtype("f32")) * np.abs(own)
    judge = Judge.of(module, [[x]], [[own]])
    low, high = (np.asarray(own + 7 * sign * unit, F32) for sign in (-1, 1))
    assert judge.compare((0, 0), high, low).passed
    assert not judge.compare((0, 0), np.asarray(own + 14 * unit, F32), own).passed


def test_the_message_names_the_bound_that_is_broken() -> None:
    """With the worst element, its error, what it is allowed, and by what."""
    text = entry("x = f32[3] parameter(0)", "ROOT p = f32[3] multiply(x, x)")
    module, x = hloopt.parse(text), np.array([1.5, 3.0, 1.1], F32)
    want = hloopt.evaluate(module, [x])
    got = [want[0] + np.array([0, 0, 1e-3], F32)]
    assert judged(module, [x], got, want)[0].reason == (
        "1 of 3 elements of f32 is off by up to 6.93e+03 times what rounding allows; worst at [2]: got 1.2110001, "
        "want 1.21, error 0.001, allowed 1.44e-07 (the bound on its error)"
    )
    got = [want[0] + np.array([1e-6, 0, 0], F32)]
    assert judged(module, [x], got, want)[0].reason == (
        "1 of 3 elements of f32 differs; worst at [0]: got 2.250001, want 2.25 (nothing here is rounded)"
    )


@pytest.mark.parametrize("opcode", ["sort", "topk"])
def test_sorted_elements_are_off_by_no_more_than_their_line(opcode: str) -> None:
    """Of exact ones nothing, positions included."""
    text = {
        "sort": entry(
            "x = f32[2,5] parameter(0)",
            "y = f32[2,5] multiply(x, x)",
            "ROOT s = f32[2,5] sort(y), dimensions={1}, to_apply=less",
            regions="less { a = f32[] parameter(0)\n b = f32[] parameter(1)\n "
            "ROOT l = pred[] compare(a, b), direction=LT }",
        ),
        "topk": entry(
            "x = f32[2,5] parameter(0)",
            "y = f32[2,5] multiply(x, x)",
            "ROOT s = (f32[2,3], s32[2,3]) topk(y), k=3, largest=true",
        ),
    }[opcode]
    x = drawn(2, 5)
    found = bounds_of(text, x)
    most = 2.01 * U * (x * x).max(axis=1, keepdims=True)
    assert found[0] is not None
    assert (found[0] > 0).all()
    assert (found[0] <= most).all()
    exact = text.replace("multiply(x, x)", "copy(x)")
    assert bounds_of(exact, x) == [None] * len(found)


EXCHANGES = {
    "all-reduce": ("f32[4]", "all-reduce({0}), replica_groups={{}}, to_apply=add"),
    "all-gather": ("f32[8]", "all-gather({0}), replica_groups={{}}, dimensions={{0}}"),
    "reduce-scatter": (
        "f32[2]",
        "reduce-scatter({0}), replica_groups={{}}, dimensions={{0}}, to_apply=add",
    ),
    "all-to-all": ("f32[4]", "all-to-all({0}), replica_groups={{}}, dimensions={{0}}"),
    "collective-permute": (
        "f32[4]",
        "collective-permute({0}), source_target_pairs={{{{0,1}},{{1,0}}}}",
    ),
}


@pytest.mark.parametrize("opcode", EXCHANGES)
def test_what_participants_exchange_is_off_by_what_it_was(opcode: str) -> None:
    """As much as the other's product, and what adding two of them rounds; of whole numbers nothing."""
    shape, op = EXCHANGES[opcode]
    text = entry(
        "x = f32[4] parameter(0)",
        "i = f32[4] round-nearest-even(x)",
        "p = f32[4] multiply(x, x)",
        f"s = {shape} {op.format('p')}",
        f"w = {shape} {op.format('i')}",
        f"ROOT t = (f32[4], {shape}, {shape}) tuple(p, s, w)",
        regions=ADDED,
    ).replace("HloModule m", "HloModule m, replica_count=2")
    inputs = [[drawn(4)], [drawn(4, seed=1) * F32(1e3)]]
    (one, got, whole), (other, theirs, _) = evaluate_bounds(hloopt.parse(text), inputs)
    assert whole is None
    assert one is not None
    assert other is not None
    assert got is not None
    assert theirs is not None
    if "reduce" in opcode:
        cut = slice(0, got.size)
        first, second = (x.astype(np.float64) ** 2 for (x,) in inputs)
        assert (got >= (one + other + U * (first + second))[cut]).all()
        assert (got <= (one + other + 4.1 * U * (first + second))[cut]).all()
    else:
        wanted = {
            "all-gather": [*one, *other],
            "all-to-all": [*one[:2], *other[:2]],
            "collective-permute": other,
        }[opcode]
        assert got.tolist() == list(wanted)
        assert theirs.shape == got.shape


def test_participants_meet_though_one_has_run_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds end after many instructions; those that still have some exchange theirs all the same."""
    monkeypatch.setattr("hloopt.interpret.bounding._MOST", 12)
    text = entry(
        "x = f32[] parameter(0)",
        "n = s32[] replica-id()",
        "s = (s32[], f32[]) tuple(n, x)",
        "w = (s32[], f32[]) while(s), condition=more, body=next",
        "y = f32[] get-tuple-element(w), index=1",
        "z = f32[] all-reduce(y), replica_groups={}, to_apply=add",
        "ROOT p = f32[] multiply(z, z)",
        regions=ADDED + LOOP.format("i, n"),
    ).replace("HloModule m", "HloModule m, replica_count=3")
    found = evaluate_bounds(hloopt.parse(text), [[F32(0.7)]] * 3)
    assert all(bound is not None and np.isinf(bound) for (bound,) in found)


@pytest.mark.parametrize("kind", ["f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f6e2m3fn", "f4e2m1fn"])
def test_what_is_rounded_once_to_few_bits_is_decided_or_a_neighbour(kind: str) -> None:
    """A conversion of an exact number is one number; a function is, but near the middle of two."""
    text = entry(
        "x = f32[512] parameter(0)",
        f"c = {kind}[512] convert(x)",
        f"e = {kind}[512] tanh(c)",
        "y = f32[512] multiply(x, x)",
        f"d = {kind}[512] convert(y)",
        f"ROOT t = ({kind}[512], {kind}[512], {kind}[512]) tuple(c, e, d)",
    )
    x = np.linspace(-1.3, 1.3, 512, dtype=F32)
    # Squares around the middle of 1 and the next number.
    x[:16] = np.sqrt(1 + unit_roundoff(dtype(kind))) * (1 + np.arange(-8, 8) * 2.0**-25)
    converted, function, product = bounds_of(text, x)
    assert converted is None
    assert function is None or (function > 0).mean() < 0.02
    own = hloopt.evaluate(hloopt.parse(text), [x])[2].astype(np.float64)
    near = [
        np.asarray(np.nextafter(x * x, F32(side)), dtype(kind).numpy).astype(np.float64)
        for side in (-9, 9)
    ]
    differs = (near[0] != own) | (near[1] != own)
    assert differs.any()
    assert product is not None
    assert (product[differs] > 0).all()
    assert (product > 0).mean() < 0.1


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_products_with_scales_are_off_by_their_terms(kind: str) -> None:
    """By what 64 products of few bits, made in f32, may round: far less than a unit of their operands."""
    text = entry(
        "a = f8e4m3fn[2,64] parameter(0)",
        "b = f8e4m3fn[64,3] parameter(1)",
        "s = f8e8m0fnu[2,2] parameter(2)",
        "t = f8e8m0fnu[2,3] parameter(3)",
        f"ROOT r = {kind}[2,3] scaled-dot(a, b, s, t), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
    )
    few, scale = dtype("f8e4m3fn").numpy, dtype("f8e8m0fnu").numpy
    arrays = [drawn(2, 64).astype(few), drawn(64, 3, seed=1).astype(few)]
    arrays += [np.full(dims, 2.0, scale) for dims in ((2, 2), (2, 3))]
    module = hloopt.parse(text)
    (bound,) = bounds_of(text, *arrays)
    (want,) = hloopt.evaluate(module, arrays)
    left, right = (array.astype(np.float64) for array in arrays[:2])
    added = 4 * (np.abs(left) @ np.abs(right))
    unit = unit_roundoff(dtype(kind))
    assert bound is not None
    assert (np.abs(4 * (left @ right) - want.astype(np.float64)) <= bound).all()
    assert (bound >= 64 * U * added).all()
    assert (bound <= 1000 * U * added + 4 * unit * np.abs(want.astype(np.float64))).all()
    if kind == "f32":
        (other,) = evaluate_participants(module, [arrays], rounding=1)[0]
        assert (np.abs(other.astype(np.float64) - want.astype(np.float64)) <= bound).all()


def test_narrow_sums_that_are_converted_back_may_round_at_each_step() -> None:
    """Through f32 and back to f16 in the region: what is added may be rounded to f16 every time."""
    lines = """
        wide { a = f16[] parameter(0)
          b = f16[] parameter(1)
          c = f32[] convert(a)
          d = f32[] convert(b)
          s = f32[] add(c, d)
          ROOT r = f16[] convert(s) }
        plain { a = f16[] parameter(0)
          b = f16[] parameter(1)
          ROOT r = f16[] add(a, b) }
        ENTRY e { x = f16[64] parameter(0)
          zero = f16[] constant(0)
          ROOT r = f16[] reduce(x, zero), dimensions={0}, to_apply=REGION }
        """
    x = (1 + np.arange(64) / 64).astype(np.float16)
    texts = [f"HloModule m\n{lines.replace('REGION', name)}" for name in ("plain", "wide")]
    plain, wide = (bounds_of(text, x)[0] for text in texts)
    assert plain is not None
    assert wide is not None
    assert plain < 0.2 < wide < 20


def test_arrays_of_fewer_elements_than_their_bound_have_none() -> None:
    """Operands are cut to each other's sizes: nothing is proved, and nothing fails."""
    text = """
        HloModule m
        ENTRY e { x = f32[<=8] parameter(0)
          y = f32[<=8] multiply(x, x)
          ROOT r = f32[<=8] add(y, x) }
        """
    (found,) = bounds_of(text, drawn(3))
    assert found is not None
    assert np.isinf(found).all()


def test_picked_sums_are_off_by_what_is_added_there() -> None:
    """Places that no window picks are exact, so is one of one term; others are off by their terms."""
    text = entry(
        "x = f32[6] parameter(0)",
        "y = f32[5] parameter(1)",
        "z = f32[] constant(0)",
        "ROOT r = f32[6] select-and-scatter(x, y, z), window={size=2 stride=1}, select=more, scatter=add",
        regions="more { a = f32[] parameter(0)\n b = f32[] parameter(1)\n "
        "ROOT l = pred[] compare(a, b), direction=GE }\n" + ADDED,
    )
    x, y = np.array([1, 9, 2, 3, 8, 7], F32), np.abs(drawn(5)) + F32(1)
    (bound,) = bounds_of(text, x, y)
    assert bound is not None
    assert np.flatnonzero(bound).tolist() == [1, 4]
    added = float(y[0]) + float(y[1])
    assert U * added <= bound[1] <= 6 * U * added
    squares = text.replace("y = f32[5]", "q = f32[5]").replace(
        "z =", "y = f32[5] multiply(q, q)\n z ="
    )
    (wider,) = bounds_of(squares, x, np.sqrt(y))
    assert wider is not None
    assert (wider[[1, 3, 4]] > bound[[1, 3, 4]]).all()
    unsure = text.replace("x = f32[6]", "p = f32[6]").replace(
        "z =", "x = f32[6] exponential(p)\n z ="
    )
    (nothing,) = bounds_of(unsure, np.log(x), y)
    assert nothing is not None
    assert np.isinf(nothing).all()


@pytest.mark.parametrize(("opcode", "start"), [("add", 0), ("multiply", 1), ("maximum", 0)])
def test_a_fold_of_one_unknown_term_is_unknown(opcode: str, start: int) -> None:
    """An unknown error times no steps is not a number, which must not become zero."""
    text = entry(
        "x = f32[2,1,1] parameter(0)",
        f"z = f32[] constant({start})",
        "e = f32[2,1,1] exponential(x)",
        "b = s32[2,1,1] bitcast-convert(e)",
        "c = f32[2,1,1] bitcast-convert(b)",
        "ROOT r = f32[2] reduce(c, z), dimensions={1,2}, to_apply=add",
        regions=ADDED.replace(" add(a", f" {opcode}(a"),
    )
    (found,) = bounds_of(text, np.full((2, 1, 1), 3, F32))
    assert found is not None
    assert np.isinf(found).all()


MOST = float(np.finfo(F32).max)
SUMS = {
    "reduce": "ROOT s = f32[3] reduce(x, z), dimensions={1}, to_apply=add",
    "dot": "o = f32[4] broadcast(one), dimensions={}\n  "
    "ROOT s = f32[3] dot(x, o), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "scatter": "n = f32[3] broadcast(z), dimensions={}\n  i = s32[3,4] iota(), iota_dimension=0\n  "
    "ROOT s = f32[3] scatter(n, i, x), update_window_dims={}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=2, to_apply=add",
}


@pytest.mark.parametrize("opcode", SUMS)
def test_sums_overflow_in_one_order_and_not_in_another(opcode: str) -> None:
    """Any of what orders give is right there, a number besides the sum is not; elsewhere no infinity is."""
    text = entry(
        "x = f32[3,4] parameter(0)",
        "z = f32[] constant(0)",
        "one = f32[] constant(1)",
        SUMS[opcode],
        regions=ADDED,
    )
    module = hloopt.parse(text)
    x = np.array([[MOST, MOST, -MOST, -MOST], [MOST, MOST, -MOST, 1e38], [MOST, -MOST, 1, 2]], F32)
    want = hloopt.evaluate(module, [x])

    def right(*values: float) -> list[bool]:
        """Of each element alone."""
        return [
            judged(module, [x], [np.where(np.arange(3) == at, F32(value), want[0])], want)[0].passed
            for at, value in enumerate(values)
        ]

    assert right(np.inf, np.inf, 3) == [True, True, True]
    assert right(-np.inf, -np.inf, np.inf) == [True, False, False]
    assert right(np.nan, np.nan, np.nan) == [True, False, False]
    assert right(0.0, 1e38, 3e38) == [True, False, False]


def test_a_bitcast_of_one_number_keeps_its_bound() -> None:
    """An array without dimensions stays one."""
    text = entry(
        "x = f32[] parameter(0)",
        "e = f32[] exponential(x)",
        "ROOT b = f32[1,1] bitcast(e)",
    )
    (found,) = bounds_of(text, np.array(3, F32))
    assert found is not None
    assert found.shape == (1, 1)
    assert 0 < found.item() < 1e-4
