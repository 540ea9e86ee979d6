"""Products with what is around them: what one kernel takes, what stays apart, and that no bit changes."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloopt
from hloopt.analysis.backend_config import custom_name
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import model_for
from hloopt.fusion.history import FusionPlan
from hloopt.ir import Instruction, Module
from hloopt.kernels.costs import kernel_costs
from hloopt.kernels.product_fusion import ProductFusion
from hloopt.runtime.inputs import generate
from hloopt.targets import find_gpu
from tests.codegen.harness import check_kernel

LAYER = """HloModule layer

ENTRY main {
  x = bf16[16,%(k)d] parameter(0)
  q = s8[%(k)d,%(n)d] parameter(1)
  s = bf16[%(n)d] parameter(2)
  b = f32[%(n)d] parameter(3)
  w = bf16[%(k)d,%(n)d] convert(q)
  sb = bf16[%(k)d,%(n)d] broadcast(s), dimensions={1}
  scaled = bf16[%(k)d,%(n)d] multiply(w, sb)
  y = f32[16,%(n)d] dot(x, scaled), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bb = f32[16,%(n)d] broadcast(b), dimensions={1}
  z = f32[16,%(n)d] add(y, bb)
  g = f32[16,%(n)d] logistic(z)
  a = f32[16,%(n)d] multiply(z, g)
  ROOT o = f32[16,%(n)d] negate(a)
}
"""


def fused(text: str, **options: object) -> tuple[Module, Module, FusionPlan]:
    """The module as it was, and as it is after the pass and dce, with what was decided."""
    before = hloopt.parse(text)
    after = hloopt.parse(text)
    plan = ProductFusion(**options).fuse(after)  # type: ignore[arg-type]
    hloopt.verify(after)
    return before, hloopt.optimize(after, "dce"), plan


def products(module: Module) -> list[Instruction]:
    return [one for one in module.entry if custom_name(one).startswith("dot-mma")]


def assert_equal(before: Module, after: Module, seed: int = 0) -> None:
    """The same bits: the body of the fusion is what stood there."""
    inputs = generate(before, seed)
    for one, other in zip(
        hloopt.evaluate(before, inputs), hloopt.evaluate(after, inputs), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_weights_of_bytes_and_an_activation_are_one_kernel() -> None:
    """What only the product reads, and what follows it."""
    before, after, plan = fused(LAYER % {"k": 256, "n": 192}, always=True)
    (fusion,) = products(after)
    assert {one.opcode for one in after.entry} == {"parameter", "fusion"}
    assert [one.name for one in fusion.operands] == ["q", "s", "b", "x"]
    assert {step.fusion for step in plan.steps} == {fusion.name}
    assert_equal(before, after)
    check_kernel(after.to_text(), "dot-mma", everywhere=False, twice=False)


def test_a_second_run_changes_nothing() -> None:
    """A fusion is no dot."""
    _, after, _ = fused(LAYER % {"k": 256, "n": 192}, always=True)
    text = after.to_text()
    assert not ProductFusion(always=True).fuse(after).steps
    assert after.to_text() == text


@pytest.mark.parametrize("target", ["h200", "a100", "rtx-4090"])
def test_it_is_made_where_it_takes_less_time(target: str) -> None:
    """The times that decide are those that reports show of both forms."""
    before, after, plan = fused(LAYER % {"k": 4096, "n": 16384}, target=target)
    (fusion,) = products(after)
    predictor = Predictor(model_for("xla-2026", find_gpu(target)))
    comparison = plan.steps[0].comparison
    assert comparison is not None
    found = predictor.predict(fusion)
    assert found.by == "matrix-units"
    assert found.seconds * 1e6 == pytest.approx(comparison.fused_us)
    assert comparison.fused_us < comparison.unfused_us
    assert len(list(before.entry)) > len(list(after.entry))


@pytest.mark.parametrize("precision", ["", "dot_tf32_tf32_f32", "dot_bf16_bf16_f32_x3"])
def test_a_long_contracted_axis_of_few_results_is_cut(precision: str) -> None:
    """Sums of parts, then the activation: two launches where a block alone would read all of k."""
    algorithm = f", algorithm={precision}" if precision else ""
    kind = "f32" if precision else "bf16"
    text = f"""HloModule deep

ENTRY main {{
  x = {kind}[32,16384] parameter(0)
  w = {kind}[16384,64] parameter(1)
  b = f32[64] parameter(2)
  p = f32[32,64] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{algorithm}
  bias = f32[32,64] broadcast(b), dimensions={{1}}
  s = f32[32,64] add(p, bias)
  ROOT y = f32[32,64] tanh(s)
}}
"""
    _, after, _ = fused(text)
    (fusion,) = products(after)
    assert custom_name(fusion) == "dot-mma-split-k"
    (row,) = kernel_costs(after, Predictor(model_for("xla-2026", find_gpu("h200"))))
    assert row.steps == 2
    _, whole, _ = fused(text.replace("16384", "256"), always=True)
    assert custom_name(products(whole)[0]) == "dot-mma"
    selected = hloopt.select_kernels(after, pipeline="O0")
    assert [choice.kernel for choice in selected.rows if choice.opcode == "fusion"] == [
        "dot-mma-split-k"
    ]


LARGE = """HloModule large

ENTRY main {
  x = %(t)s[8192,8192] parameter(0)
  w = %(t)s[8192,8192] parameter(1)
  y = %(t)s[8192,8192] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = %(t)s[8192,8192] negate(y)
}
"""


@pytest.mark.parametrize(
    ("dtype", "target", "code"),
    [
        ("bf16", "h200", "product-slower"),
        ("f32", "h200", "product-unfit"),
        ("bf16", "t4", "product-unfit"),
    ],
)
def test_refusals(dtype: str, target: str, code: str) -> None:
    """A library that uses larger instructions, a type and a device that have no such units."""
    _, after, plan = fused(LARGE % {"t": dtype}, target=target)
    assert [refusal.decision.code for refusal in plan.refusals] == [code]
    assert not products(after)


def test_a_vector_has_another_kernel() -> None:
    """What another kernel is made for stays as it is."""
    text = LAYER.replace("16,", "1,") % {"k": 4096, "n": 16384}
    _, after, plan = fused(text, always=True)
    assert not products(after)
    assert "dot-matrix-vector is wanted" in plan.refusals[0].decision.words


def test_fuel_ends_it() -> None:
    """No more fusions than asked for."""
    _, after, _ = fused(LAYER % {"k": 256, "n": 192}, always=True, fuel=0)
    assert not products(after)


def test_what_fusion_makes_one_kernel_of_is_left_to_it() -> None:
    """An exponential whose sum is read, too, is part of the kernel that sums, not of the product's."""
    text = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = bf16[64,64] parameter(0)
  w = bf16[64,64] parameter(1)
  y = f32[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  h = f32[64,64] exponential(y)
  zero = f32[] constant(0)
  s = f32[64] reduce(h, zero), dimensions={1}, to_apply=add
  sb = f32[64,64] broadcast(s), dimensions={0}
  ROOT o = f32[64,64] divide(h, sb)
}
"""
    before, after, _ = fused(text, always=True)
    assert not products(after)
    assert before.to_text() == after.to_text()


SCALED = """HloModule m

add {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT c = bf16[] add(a, b)
}

ENTRY main {
  t = bf16[32,20,64] parameter(0)
  w = bf16[64,16] parameter(1)
  zero = bf16[] constant(0)
  s = bf16[32,64] SOURCE
  k = bf16[] constant(0.05)
  kb = bf16[32,64] broadcast(k), dimensions={}
  m = bf16[32,64] multiply(s, kb)
  y = f32[32,16] dot(m, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[32,16]) tuple(y)
}
"""
SUMS = "reduce(t, zero), dimensions={1}, to_apply=add"


@pytest.mark.parametrize(
    ("source", "more", "count"),
    [
        ("parameter(2)", "", 1),
        ("dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "", 1),
        (SUMS, "", 0),
        (SUMS, ", s", 1),
    ],
)
def test_what_the_kernel_before_takes_in_for_nothing_is_no_reason(
    source: str, more: str, count: int
) -> None:
    """A factor joins the sums it scales, where nothing else reads these; a product or a parameter takes in none."""
    text = SCALED.replace("SOURCE", source)
    if source.startswith("dot"):
        text = text.replace(
            "  zero", "  p = bf16[32,64] parameter(2)\n  q = bf16[64,64] parameter(3)\n  zero"
        )
    if more:
        text = text.replace("(f32[32,16]) tuple(y)", "(f32[32,16], bf16[32,64]) tuple(y, s)")
    before, after, plan = fused(text)
    assert len(products(after)) == count
    assert (count == 0) == ("product-slower" in {one.decision.code for one in plan.refusals})
    planned = hloopt.optimize(after, "priority-fusion,dce", target="h200")
    assert seconds(planned) <= seconds(
        hloopt.optimize(before, "priority-fusion,dce", target="h200")
    )


def seconds(module: Module) -> float:
    """What the kernels of a plan take."""
    costs = kernel_costs(module, Predictor(model_for("xla-2026", find_gpu("h200"))))
    return sum(one.seconds or 0.0 for one in costs)


def random_graph(seed: int) -> str:
    """Dots and elementwise ops that read each other in any way."""
    draw = random.Random(seed)
    lines = [f"  p{number} = bf16[32,32] parameter({number})" for number in range(3)]
    names = ["p0", "p1", "p2"]
    for number in range(draw.randint(6, 14)):
        name, kind = f"v{number}", draw.choice(["dot", "add", "multiply", "negate", "transpose"])
        left, right = draw.choice(names[-4:]), draw.choice(names)
        operands = f"{left}, {right}" if kind in ("dot", "add", "multiply") else left
        tail = {
            "dot": ", lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "transpose": ", dimensions={1,0}",
        }.get(kind, "")
        lines.append(f"  {name} = bf16[32,32] {kind}({operands}){tail}")
        names.append(name)
    results = sorted(set(draw.sample(names, 2)) | {names[-1]})
    shape = ", ".join(["bf16[32,32]"] * len(results))
    lines.append(f"  ROOT o = ({shape}) tuple({', '.join(results)})")
    return "\n".join(["HloModule random", "", "ENTRY main {", *lines, "}", ""])


def test_random_graphs_keep_their_bits() -> None:
    """However dots and what is around them read each other, there is no circle and no other value."""
    made = 0
    for seed in range(60):
        before, after, _ = fused(random_graph(seed), always=True)
        made += len(products(after))
        assert_equal(before, after, seed)
    assert made > 20


GATED = """HloModule gated

ENTRY main {
  x = %(t)s[%(m)d,4096] parameter(0)
  g = %(t)s[4096,11008] parameter(1)
  u = %(t)s[4096,11008] parameter(2)
  a = %(t)s[%(m)d,11008] dot(x, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}%(how)s
  b = %(t)s[%(m)d,11008] dot(x, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}%(how)s
  s = %(t)s[%(m)d,11008] logistic(a)
  t = %(t)s[%(m)d,11008] multiply(a, s)
  ROOT y = %(t)s[%(m)d,11008] multiply(t, b)
}
"""


@pytest.mark.parametrize(
    ("target", "rows", "dtype", "algorithm", "fits"),
    [
        ("a100", 4096, "bf16", "", True),
        ("rtx-4090", 4096, "bf16", "", True),
        ("a100", 4096, "f32", "dot_tf32_tf32_f32", True),
        ("h200", 16, "bf16", "", True),
        ("h200", 4096, "bf16", "", False),
    ],
)
def test_two_products_of_one_left_side(
    target: str, rows: int, dtype: str, algorithm: str, fits: bool
) -> None:
    """One kernel reads the left side once, where instructions of that kind reach the rate of the units."""
    how = f", algorithm={algorithm}" if algorithm else ""
    _, after, plan = fused(GATED % {"m": rows, "t": dtype, "how": how}, target=target)
    dots = [sum(one.opcode == "dot" for one in fusion.calls) for fusion in products(after)]
    assert dots == ([2] if fits else [])
    assert fits or {one.decision.code for one in plan.refusals} == {"product-slower"}


def gated_graph(seed: int) -> str:
    """Pairs of dots of one left side whose results meet, beside others, in any order of the text."""
    draw = random.Random(seed)
    names = [f"p{number}" for number in range(4)]
    lines: list[str] = []

    def add(kind: str, *operands: str) -> str:
        name = f"v{len(lines)}"
        tail = {
            "dot": ", lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "transpose": ", dimensions={1,0}",
        }.get(kind, "")
        lines.append(f"  {name} = bf16[32,32] {kind}({', '.join(operands)}){tail}")
        return name

    for _ in range(draw.randint(1, 4)):
        left = draw.choice(names)
        pair = [add("dot", left, draw.choice(names))]
        if draw.random() < 0.3:
            names.append(add("dot", pair[0], left))
        if draw.random() < 0.2:
            names.append(pair[0])
        pair.append(add("dot", left, draw.choice([*names, *pair])))
        for _ in range(draw.randint(0, 4)):
            at = draw.randrange(2)
            pair[at] = add(draw.choice(["negate", "tanh", "transpose", "copy"]), pair[at])
            if draw.random() < 0.15:
                names.append(pair[at])
        names.append(add("multiply", *pair))
    parameters = [f"  p{number} = bf16[32,32] parameter({number})" for number in range(4)]
    results = sorted({*draw.sample(names[4:], 1), names[-1]})
    shape = ", ".join(["bf16[32,32]"] * len(results))
    lines.append(f"  ROOT o = ({shape}) tuple({', '.join(results)})")
    return "\n".join(["HloModule random", "", "ENTRY main {", *parameters, *lines, "}", ""])


def test_random_pairs_keep_their_bits() -> None:
    """However two products of one left side are read before they meet."""
    pairs = 0
    for seed in range(80):
        before, after, _ = fused(gated_graph(seed), always=True)
        pairs += sum(
            sum(one.opcode == "dot" for one in fusion.calls) == 2 for fusion in products(after)
        )
        assert_equal(before, after, seed)
    assert pairs > 15
