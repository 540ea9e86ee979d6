"""Which loops the host runs as one kernel: what they take so, and trip by trip."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis.parallel_loop.host_mapping import block_items, host_mapping
from hloopt.cost_models.host_while import whole_loop_ns
from hloopt.fusion.decision import Decision
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.fusion.loop_host import judge_host
from hloopt.ir import Instruction, Module
from hloopt.targets.target import HOST


def loop(state: str, body: str, following: str, iterations: int = 50) -> Module:
    """A loop over arrays ``a``, ``b``, ... of the types that ``state`` lists."""
    kinds = state.split()
    names = [chr(ord("a") + at) for at in range(len(kinds))]
    whole = f"(s32[], {', '.join(kinds)})"
    parts = "\n".join(
        f"  {name} = {kind} get-tuple-element(state), index={at}"
        for at, (name, kind) in enumerate(zip(names, kinds, strict=True), 1)
    )
    given = "\n".join(
        f"  {name} = {kind} parameter({at})"
        for at, (name, kind) in enumerate(zip(names, kinds, strict=True))
    )
    return hloopt.parse(f"""HloModule m
add {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}}
body {{
  state = {whole} parameter(0)
  i = s32[] get-tuple-element(state), index=0
{parts}
  one = s32[] constant(1)
  zero = f32[] constant(0)
  next = s32[] add(i, one)
{body}
  ROOT r = {whole} tuple(next, {following})
}}
goes_on {{
  state = {whole} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  most = s32[] constant({iterations})
  ROOT less = pred[] compare(i, most), direction=LT
}}
ENTRY main {{
{given}
  start = s32[] constant(0)
  state = {whole} tuple(start, {", ".join(names)})
  ROOT w = {whole} while(state), condition=goes_on, body=body
}}
""")


def the(module: Module) -> Instruction:
    return module.entry.root


CENTRES = """
  p = f32[{n},{k},4] broadcast(a), dimensions={{0,2}}
  q = f32[{n},{k},4] broadcast(b), dimensions={{1,2}}
  d = f32[{n},{k},4] subtract(p, q)
  e = f32[{n},{k},4] multiply(d, d)
  f = f32[{n},{k}] reduce(e, zero), dimensions={{2}}, to_apply=add
  g = f32[{n}] reduce(f, zero), dimensions={{1}}, to_apply=add
  h = s32[{n}] convert(g)
  l = s32[{n},1] reshape(h)
  z = f32[{k},4] broadcast(zero), dimensions={{}}
  t = f32[{k},4] scatter(z, l, a), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add
"""


def centres(count: int, clusters: int) -> Module:
    """Each trip sums up the points that lie nearest to each centre, more or less."""
    body = CENTRES.format(n=count, k=clusters)
    return loop(f"f32[{count},4] f32[{clusters},4]", body, "a, t")


STEP = """
  s = f32[512] sine(a)
  c = f32[512] cosine(b)
  m = f32[512] multiply(s, c)
  u = f32[512] add(a, m)
  v = f32[512] subtract(b, m)
"""


def test_sums_by_computed_places_are_left_to_the_driver() -> None:
    """Every element of the next state would go through all points, and compute all distances again."""
    verdict = judge_host(the(centres(1000, 8)), always=False)
    assert verdict.decision.code == "loop-slower"
    assert "in one kernel against" in verdict.decision.words
    compared = verdict.decision.comparison
    assert compared is not None
    assert compared.fused_us > 10 * compared.unfused_us
    assert judge_host(the(centres(1000, 8)), always=True).decision


def test_a_large_array_of_which_one_element_changes_is_left_to_the_driver() -> None:
    """In one kernel all of the state is written in each trip; an update in place writes what changes."""

    def decision(size: int) -> Decision:
        body = f"""  d = f32[1] dynamic-slice(a, i), dynamic_slice_sizes={{1}}
  e = f32[1] add(d, d)
  u = f32[{size}] dynamic-update-slice(a, e, next)"""
        return judge_host(the(loop(f"f32[{size}]", body, "u")), always=False).decision

    assert decision(8)
    assert decision(2000).code == "loop-slower"


def test_units_that_keep_to_themselves_are_one_kernel() -> None:
    """Elementwise steps of a state fill vectors; so do a few numbers stepped alone."""
    verdict = judge_host(the(loop("f32[512] f32[512]", STEP, "u, v")), always=False)
    assert verdict.decision
    assert verdict.decision.comparison is not None
    assert verdict.decision.comparison.gain_us >= 0
    few = STEP.replace("512", "3").replace("cosine", "abs").replace("sine", "negate")
    assert judge_host(the(loop("f32[3] f32[3]", few, "u, v")), always=False).decision


@pytest.mark.parametrize("readers", [2, 4, 8])
def test_a_value_is_priced_as_often_as_it_is_computed(readers: int) -> None:
    """Readers at other places compute it again, where no array keeps it; those at one place share it."""

    def price(body: str, result: str) -> float:
        mapping = host_mapping(the(loop("f32[400] f32[400]", body, f"{result}, b")))
        assert not mapping.problem
        return whole_loop_ns(mapping, HOST)

    apart = ["  s = f32[400] sine(b)"]
    for at in range(1, readers + 1):
        apart += [
            f"  l{at} = f32[{at}] slice(s), slice={{[0:{at}]}}",
            f"  h{at} = f32[{400 - at}] slice(s), slice={{[{at}:400]}}",
            f"  t{at} = f32[400] concatenate(h{at}, l{at}), dimensions={{0}}",
        ]
    together = ["  s = f32[400] sine(b)"]
    together += [f"  t{at} = f32[400] negate(s)" for at in range(1, readers + 1)]
    sums = ["  n1 = f32[400] add(a, t1)"]
    sums += [f"  n{at} = f32[400] add(n{at - 1}, t{at})" for at in range(2, readers + 1)]
    turned = "  k = f32[400] reverse(b), dimensions={0}\n  s = f32[400] sine(k)"
    one = price(f"{turned}\n  n1 = f32[400] add(a, s)", "n1")
    last = f"n{readers}"
    shared = "\n".join((turned, *together[1:], *sums))
    assert price(shared, last) < 1.4 * one
    assert price("\n".join(apart + sums), last) > 0.9 * readers * one


def test_a_loop_left_to_the_driver_is_priced_as_it_stands() -> None:
    """Where nothing is fused afterwards a trip has a kernel for each op."""
    module = loop("f32[40,40]", "\n".join(CHAIN), "o19")
    fused = judge_host(the(module), always=False).decision.comparison
    called = [the(module).attributes[key] for key in ("body", "condition")]
    plain = judge_host(the(module), always=False, fused=called).decision.comparison
    assert fused is not None
    assert plain is not None
    assert plain.fused_us == fused.fused_us
    assert plain.unfused_us > 3 * fused.unfused_us


CHAIN = ["  o0 = f32[40,40] negate(a)"]
CHAIN += [f"  o{at} = f32[40,40] add(o{at - 1}, a)" for at in range(1, 20)]


def test_explanations_have_both_times() -> None:
    """A loop that stays is told with what it would take; so is one that does not."""
    plan = LoopFusion(target="host").fuse(centres(1000, 8))
    (refusal,) = plan.refusals
    assert "predicted by host" in refusal.decision.words
    made = loop("f32[512] f32[512]", STEP, "u, v")
    (facts,) = LoopFusion(target="host").fuse(made).loops
    assert facts.kernel == "native-while"


def test_blocks_have_vectors_enough_to_hide_what_they_wait_for() -> None:
    """A core that has one vector alone waits for each result; many work items are many blocks still."""

    def units(count: int) -> int:
        text = STEP.replace("512", str(count))
        module = loop(f"f32[{count}] f32[{count}]", text, "u, v")
        return block_items(host_mapping(the(module)).parallel)

    assert units(512) == 64
    assert units(1024) == 64
    assert units(65536) > 64
