"""When priority fusion lets a producer join a consumer, and each reason why not."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.cost_models.xla_2026 import Xla2026
from hloopt.fusion.decision import Decision
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.ir import Module
from hloopt.targets import target

HEAD = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
both { a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) j = s32[] parameter(3)
  x = f32[] add(a, b) y = s32[] add(i, j) ROOT t = (f32[], s32[]) tuple(x, y) }
"""


def _module(entry: str, bodies: str = "") -> Module:
    return hloopt.parse(f"{HEAD}{bodies}\nENTRY e {{\n{entry}\n}}\n")


def _decide(
    entry: str, bodies: str = "", options: PriorityFusion | None = None, *, wanted: bool = False
) -> Decision:
    """The verdict on ``p`` into ``c``."""
    module = _module(entry, bodies)
    rules = (options or PriorityFusion()).pair_rules(Xla2026(target("h200")))
    named = module.entry.by_name
    return rules.decide(named["p"], named["c"], wanted=wanted)


def test_elementwise_ops_join() -> None:
    """Nothing stands between two elementwise ops."""
    assert _decide(
        "x = f32[64] parameter(0)\np = f32[64] abs(x)\nc = f32[64] negate(p)\nROOT r = f32[64] abs(c)"
    )


CALLED = """x = f32[64] parameter(0)
p = f32[64] custom-call(x), custom_call_target="f"
ROOT c = f32[64] negate(p)"""
CALLING = """x = f32[64] parameter(0)
p = f32[64] negate(x)
ROOT c = f32[64] custom-call(p), custom_call_target="f\""""
NARROWED = """x = f32[64] parameter(0)
p = s32[64] bitcast-convert(x)
ROOT c = s8[64,4] bitcast(p)"""
RESULT = """x = f32[64] parameter(0)
c = f32[64] negate(x)
ROOT p = f32[64] abs(x)"""
TUPLED = """x = f32[64] parameter(0)
p = f32[64] negate(x)
ROOT c = (f32[64]) tuple(p)"""
SEEN = """x = f32[8,8] parameter(0)
p = f32[8,8] negate(x)
ROOT c = f32[64] bitcast(p)"""


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (RESULT, "producer-is-root"),
        (CALLED, "producer-not-fusible"),
        (CALLING, "consumer-not-fusible"),
        (TUPLED, "consumer-not-fusible"),
        (NARROWED, "consumer-not-fusible"),
        (SEEN, "consumer-is-bitcast"),
    ],
)
def test_some_ops_are_in_no_fusion(entry: str, code: str) -> None:
    """Results, calls of libraries, tuples, and bitcasts that are alone or change the width of elements."""
    assert _decide(entry).code == code


def test_a_producer_that_others_wait_for_stays() -> None:
    """An instruction that must run after the producer keeps it apart."""
    entry = """x = f32[64] parameter(0)
p = f32[64] abs(x)
q = f32[64] floor(x), control-predecessors={p}
c = f32[64] negate(p)
ROOT r = (f32[64], f32[64]) tuple(c, q)"""
    assert _decide(entry).code == "producer-orders-others"
    assert _decide(entry.replace(", control-predecessors={p}", ""))


def test_nothing_follows_a_scatter_in_its_kernel() -> None:
    """A scatter's results go through memory."""
    entry = """x = f32[8] parameter(0)
i = s32[4,1] parameter(1)
u = f32[4] parameter(2)
p = f32[8] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0},
  scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum
ROOT c = f32[8] negate(p)"""
    assert _decide(entry).code == "scatter-producer"


SCATTER = """x = f32[8] parameter(0)
i = s32[4,1] parameter(1)
u = f32[4] parameter(2)
p = {producer}
ROOT c = f32[8] scatter({operands}), update_window_dims={{}}, inserted_window_dims={{0}},
  scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=sum"""


@pytest.mark.parametrize(
    ("producer", "operands", "code"),
    [
        ("f32[8] negate(x)", "p, i, u", "scatter-in-place-operand"),
        ("f32[4] slice(x), slice={[0:4]}", "x, i, p", "scatter-reads-in-place-operand"),
        ("f32[4] negate(u)", "x, i, p", ""),
        ("s32[4,1] negate(i)", "x, p, u", ""),
    ],
)
def test_a_scatter_updates_what_lies_in_memory(producer: str, operands: str, code: str) -> None:
    """Neither its operand nor what reads that is computed in a scatter's kernel; updates and indices are."""
    assert _decide(SCATTER.format(producer=producer, operands=operands)).code == code


def test_a_fused_scatter_updates_what_lies_in_memory() -> None:
    """The operand of a scatter within a fusion is found behind its bitcasts."""
    body = """add_up { t = f32[2,4] parameter(0) i = s32[4,1] parameter(1) u = f32[4] parameter(2)
  b = f32[8] bitcast(t)
  ROOT s = f32[8] scatter(b, i, u), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum }"""
    entry = """x = f32[2,4] parameter(0)
i = s32[4,1] parameter(1)
u = f32[4] parameter(2)
p = f32[2,4] negate(x)
ROOT c = f32[8] fusion(p, i, u), kind=kInput, calls=add_up"""
    assert _decide(entry, body).code == "scatter-in-place-operand"
    entry = entry.replace("p = f32[2,4] negate(x)", "p = f32[4] negate(u)")
    assert _decide(entry.replace("(p, i, u)", "(x, i, p)"), body)


REDUCES = """x = f32[64,{inner},{outer}] parameter(0)
z = f32[] constant(0)
p = f32[64,{inner}] reduce(x, z), dimensions={{2}}, to_apply=sum
ROOT c = f32[64] reduce(p, z), dimensions={{1}}, to_apply=sum"""


@pytest.mark.parametrize(("inner", "outer"), [(8, 512), (512, 8), (512, 15)])
def test_a_short_reduce_joins_another(inner: int, outer: int) -> None:
    """Reduces of fewer than 16 elements are loops anyway."""
    code = _decide(REDUCES.format(inner=inner, outer=outer)).code
    assert code != "both-reduce"


def test_two_long_reduces_are_two_kernels() -> None:
    """From 16 elements for each result on; the limit is an option."""
    entry = REDUCES.format(inner=512, outer=16)
    decision = _decide(entry)
    assert (decision.code, decision.limit, decision.actual) == ("both-reduce", 16, 16)
    assert _decide(entry, options=PriorityFusion(significant_ratio=17)).code != "both-reduce"


def test_a_variadic_reduce_is_not_counted() -> None:
    """Only reduces with one result make a kernel too long."""
    entry = """x = f32[64,32,64] parameter(0)
n = s32[64,32,64] parameter(1)
z = f32[] constant(0)
k = s32[] constant(0)
q = (f32[64,32], s32[64,32]) reduce(x, n, z, k), dimensions={2}, to_apply=both
g = f32[64,32] get-tuple-element(q), index=0
p = f32[64,32] negate(g)
ROOT c = f32[64] reduce(p, z), dimensions={1}, to_apply=sum"""
    module = _module(entry)
    facts = PriorityFusion().pair_rules(Xla2026(target("h200"))).footprints
    assert facts.of(module.entry.by_name["q"]).reduction_ratio == 0
    assert facts.of(module.entry.by_name["c"]).reduction_ratio == 32


EPILOGUE = """x = f32[1024,512] parameter(0)
y = f32[1024,512] parameter(1)
z = f32[] constant(0)
p = f32[1024] reduce(x, z), dimensions={1}, to_apply=sum
"""


@pytest.mark.parametrize(
    ("consumer", "code"),
    [
        ("f32[1024] negate(p)", ""),
        ("f16[1024] convert(p)", ""),
        ("f32[1024,4] broadcast(p), dimensions={0}", "loses-reduction-kernel"),
        ("f32[1024] add(p, p)", "loses-reduction-kernel"),
        ("f32[512] slice(p), slice={[0:512]}", "loses-reduction-kernel"),
    ],
)
def test_what_follows_a_reduction_leaves_it_its_kernel(consumer: str, code: str) -> None:
    """Ops of one operand keep the reduction in sight of the kernel's result."""
    assert _decide(f"{EPILOGUE}ROOT c = {consumer}").code == code


@pytest.mark.parametrize(
    ("elements", "limit", "code"),
    [(4, 16, ""), (8, 16, ""), (16, 16, "loses-reduction-kernel"), (16, 17, "")],
)
def test_a_loop_computes_short_reductions_if_it_may(elements: int, limit: int, code: str) -> None:
    """Of fewer elements than the limit; without the option none."""
    entry = f"{EPILOGUE}ROOT c = f32[1024,4] broadcast(p), dimensions={{0}}".replace(
        "1024,512", f"1024,{elements}"
    )
    assert _decide(entry).code == "loses-reduction-kernel"
    may = PriorityFusion(short_reductions=True, significant_ratio=limit)
    assert _decide(entry, options=may).code == code


def test_what_follows_a_reduction_that_needs_atomics() -> None:
    """A row too long for one block is not finished where an epilogue could go on."""
    entry = """x = f32[4,65536] parameter(0)
z = f32[] constant(0)
p = f32[4] reduce(x, z), dimensions={1}, to_apply=sum
ROOT c = f32[4] negate(p)"""
    assert _decide(entry).code == "loses-reduction-kernel"
    assert _decide(entry.replace("65536", "16384"))


COLUMNS = """x = f32[1024,512] parameter(0)
z = f32[] constant(0)
p = f32[512] reduce(x, z), dimensions={0}, to_apply=sum
ROOT c = f32[512] negate(p)"""


def test_shared_memory_is_limited() -> None:
    """A column reduction needs 4128 bytes for each byte of an element."""
    decision = _decide(COLUMNS, options=PriorityFusion(shared_memory=16511))
    assert (decision.code, decision.limit, decision.actual) == ("shared-memory", 16511, 16512)
    assert _decide(COLUMNS, options=PriorityFusion(shared_memory=16512))
    assert _decide(COLUMNS, options=PriorityFusion(shared_memory=16511, column_bytes=100))


def test_reductions_are_limited() -> None:
    """As many with a kernel of their own as the option says."""
    decision = _decide(COLUMNS, options=PriorityFusion(max_reductions=0))
    assert (decision.code, decision.limit, decision.actual) == ("reductions", 0, 1)


def test_operands_are_limited() -> None:
    """Operands and results of both count."""
    entry = """x = f32[64] parameter(0)
y = f32[64] parameter(1)
w = f32[64] parameter(2)
p = f32[64] add(x, y)
ROOT c = f32[64] multiply(p, w)"""
    decision = _decide(entry, options=PriorityFusion(max_operands=4))
    assert (decision.code, decision.limit, decision.actual) == ("operands", 4, 5)
    assert _decide(entry, options=PriorityFusion(max_operands=5))


def test_code_is_limited_by_how_often_it_would_be_written() -> None:
    """A producer that a fusion computes under two indices is written twice."""
    body = """twice { s = f32[64] parameter(0)
  r = f32[64] reverse(s), dimensions={0}
  ROOT t = f32[64] add(s, r) }"""
    entry = """x = f32[64] parameter(0)
p = f32[64] negate(x)
ROOT c = f32[64] fusion(p), kind=kLoop, calls=twice"""
    decision = _decide(entry, body, PriorityFusion(max_ir_size=1))
    assert (decision.code, decision.limit) == ("ir-size", 1)
    assert decision.actual is not None
    assert not _decide(entry, body, PriorityFusion(max_ir_size=decision.actual - 1))
    assert _decide(entry, body, PriorityFusion(max_ir_size=decision.actual))


def test_a_wish_outweighs_heuristics_alone() -> None:
    """What would only be slow is allowed; limits of kernels and updates in place stay."""
    assert _decide(f"{EPILOGUE}ROOT c = f32[1024] add(p, p)", wanted=True)
    assert _decide(REDUCES.format(inner=512, outer=16), wanted=True)
    assert _decide(COLUMNS, options=PriorityFusion(max_ir_size=0), wanted=True)
    entry = SCATTER.format(producer="f32[8] negate(x)", operands="p, i, u")
    assert _decide(entry, wanted=True).code == "scatter-in-place-operand"
    assert (
        _decide(COLUMNS, options=PriorityFusion(max_reductions=0), wanted=True).code == "reductions"
    )


UPDATE = """x = f32[64] parameter(0)
i = s32[] parameter(1)
j = s32[] parameter(2)
p = f32[4] fusion({operands}), kind=kLoop, calls=made
ROOT c = f32[64] dynamic-update-slice(x, p, i)"""
SLICED = """made { a = f32[64] parameter(0) k = s32[] parameter(1)
  d = f32[4] dynamic-slice(a, k), dynamic_slice_sizes={4}
  ROOT n = f32[4] negate(d) }"""


def test_a_fusion_that_reads_what_is_updated_joins_the_update() -> None:
    """The slice inside is at the place that is written."""
    assert _decide(UPDATE.format(operands="x, i"), SLICED)
    assert _decide(UPDATE.format(operands="x, j"), SLICED).code == "in-place-other-place"


def test_a_fusion_that_reads_in_two_ways_stays_apart_from_an_update() -> None:
    """Two ops that are not elementwise are more than is understood."""
    body = SLICED.replace("negate(d)", "reverse(d), dimensions={0}")
    assert _decide(UPDATE.format(operands="x, i"), body).code == "in-place-several-accesses"


def test_a_fusion_that_reorders_what_is_updated_stays_apart() -> None:
    """Only slices can be told to read what is written."""
    body = """made { a = f32[64] parameter(0) k = s32[] parameter(1)
  ROOT g = f32[4] concatenate(a), dimensions={0} }"""
    body = body.replace("f32[64] parameter(0)", "f32[4] parameter(0)")
    entry = """x = f32[4] parameter(0)
i = s32[] parameter(1)
p = f32[4] fusion(x, i), kind=kLoop, calls=made
ROOT c = f32[4] dynamic-update-slice(x, p, i)"""
    assert _decide(entry, body).code == "in-place-unrecognized"


def test_a_fusion_that_has_nothing_to_do_with_the_updated_value_joins() -> None:
    """The rules about updates are for readers of what is updated."""
    body = SLICED.replace("negate(d)", "reverse(d), dimensions={0}")
    entry = UPDATE.format(operands="y, i").replace(
        "j = s32[]", "y = f32[64] parameter(3)\nj = s32[]"
    )
    assert _decide(entry, body)


def test_a_block_may_use_the_shared_memory_of_its_device() -> None:
    """The option is for whoever wants less."""
    options = PriorityFusion()
    found = {name: options.pair_rules(Xla2026(target(name))).limits for name in ("h200", "mi200")}
    assert {name: limits.shared_memory for name, limits in found.items()} == {
        "h200": 49152,
        "mi200": 65536,
    }
