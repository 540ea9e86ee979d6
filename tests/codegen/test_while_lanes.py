"""Loops whose lanes compute values of several trips at once and hand them to each other."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.analysis.parallel_loop.thread_lanes import MOST_HANDED, LaneValues
from hloopt.codegen.program import kernel_steps
from hloopt.cost_models.loop_time import best_lanes, loop_time
from hloopt.errors import UsageError
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.kernel_ir.expressions import Binary
from hloopt.kernel_ir.printer import expression_text
from hloopt.kernel_ir.statements import If, Return
from hloopt.kernels.spec import Launch
from hloopt.rewrite.pass_ import PassLog
from hloopt.runtime.inputs import generate
from tests.codegen.harness import check_kernel, planned, ran
from tests.codegen.short_loops import TARGET, fused, mapping_of, program
from tests.helpers import random_loops
from tests.helpers.kernel_code import KernelCode
from tests.helpers.rarely import one_in

KERNEL = "while-per-thread"


def check(text: str, lanes: int, **options: object) -> KernelCode:
    """Run a module's loop with so many lanes for a work item; its functions."""
    return KernelCode.of(check_kernel(fused(text), KERNEL, {"lanes": lanes}, **options))  # type: ignore[arg-type]


def shifts(code: KernelCode) -> int:
    """How many shifts to the right there are."""
    return sum(one.sign == ">>" for one in code.expressions(Binary))


def mixed(name: str, of: str, kind: str, turns: int = 4) -> str:
    """Lines that hash an integer array ``of`` thoroughly enough to be worth handing on."""
    lines, last = [], of
    for turn in range(turns):
        lines += [
            f"  {name}_s{turn} = {kind} constant({2654435761 - turn})"
            if "[]" in kind
            else f"  {name}_c{turn} = u32[] constant({2654435761 - turn})\n"
            f"  {name}_s{turn} = {kind} broadcast({name}_c{turn}), dimensions={{}}",
            f"  {name}_m{turn} = {kind} multiply({last}, {name}_s{turn})",
            f"  {name}_r{turn} = {kind} shift-right-logical({name}_m{turn}, {name}_s{turn})",
            f"  {name}_o{turn} = {kind} or({name}_m{turn}, {name}_r{turn})",
            f"  {name}_x{turn} = {kind} xor({name}_o{turn}, {last})",
        ]
        last = f"{name}_x{turn}"
    return "\n".join([*lines, f"  {name} = {kind} add({last}, {of})"])


def drawing(units: int, iterations: int, turns: int = 4) -> str:
    """A key by the trip, numbers drawn by the work item from it, a row of an input; a stream of what comes of them."""
    n, kind = units, f"u32[{units}]"
    return program(
        {
            "x": kind,
            "key": "u32[2]",
            "rows": f"f32[{iterations},{n}]",
            "path": f"f32[{iterations},{n}]",
        },
        f"""
  trip = u32[] convert(i)
  k0 = u32[1] slice(key), slice={{[0:1]}}
  k0r = u32[] reshape(k0)
  salted = u32[] xor(trip, k0r)
{mixed("now", "salted", "u32[]", turns)}
  nows = {kind} broadcast(now), dimensions={{}}
  number = {kind} iota(), iota_dimension=0
  own = {kind} xor(nows, number)
{mixed("drawn", "own", kind, turns)}
  half = {kind} broadcast(k0r), dimensions={{}}
  falls = pred[{n}] compare(drawn, half), direction=LT
  moved = {kind} add(x, drawn)
  x1 = {kind} select(falls, moved, x)
  row = f32[1,{n}] dynamic-slice(rows, i, zero), dynamic_slice_sizes={{1,{n}}}
  rr = f32[{n}] reshape(row)
  xf = f32[{n}] convert(x1)
  sum = f32[{n}] add(rr, xf)
  out = f32[1,{n}] reshape(sum)
  path1 = f32[{iterations},{n}] dynamic-update-slice(path, out, i, zero)""",
        "x1, key, rows, path1",
        iterations=iterations,
    )


@pytest.mark.parametrize(
    ("lanes", "units", "iterations"),
    one_in(
        3, [(1, 33, 7), (1, 5, 70), (2, 33, 7), (4, 40, 8), (8, 3, 1), (16, 1, 33), (32, 7, 31)]
    ),
)
def test_any_number_of_lanes_computes_the_same(lanes: int, units: int, iterations: int) -> None:
    """Lanes, work items and trips that do not divide each other give the same bits as a thread for each work item."""
    check(drawing(units, iterations), lanes, everywhere=lanes in (1, 4))


def test_the_number_of_lanes_changes_no_bit() -> None:
    """Floats that lanes compute for each other are those that one thread computes."""
    n = 40
    text = program(
        {"x": f"f32[{n}]", "rows": f"f32[6,{n}]"},
        f"""
  row = f32[1,{n}] dynamic-slice(rows, i, zero), dynamic_slice_sizes={{1,{n}}}
  rr = f32[{n}] reshape(row)
  wave = f32[{n}] sine(rr)
  scaled = f32[{n}] divide(wave, rr)
  more = f32[{n}] multiply(scaled, x)
  x1 = f32[{n}] add(more, scaled)""",
        "x1, rows",
        iterations=6,
    )
    found = set()
    for lanes in (1, 2, 32):
        module, plan, source = planned(fused(text), KERNEL, {"lanes": lanes})
        (result,) = ran(module, plan, source, generate(module, 3))
        found.add(result.tobytes())
    assert len(found) == 1


def test_few_units_are_run_by_several_lanes_each() -> None:
    """Lanes are taken where schedulers have nothing to do, not where work items keep all of them busy."""
    few, many = mapping_of(drawing(2048, 1000, 20)), mapping_of(drawing(1_000_000, 10, 20))
    lanes = best_lanes(few, TARGET)
    assert lanes > 1
    assert best_lanes(many, TARGET) == 1
    alone = loop_time(few, TARGET, lanes=1)
    together = loop_time(few, TARGET)
    assert together == loop_time(few, TARGET, lanes=lanes)
    assert together.instructions < alone.instructions
    assert together.chain_ns < alone.chain_ns
    assert together.blocks * together.threads >= lanes * 2048
    _, plan, _ = planned(fused(drawing(2048, 1000, 20)), KERNEL)
    (step,) = [one for one in kernel_steps(plan.steps) if one.spec.kernel == KERNEL]
    assert step.spec.tile["lanes"] == lanes
    launch = step.spec.steps[0]
    assert isinstance(launch, Launch)
    assert launch.grid[0] * launch.block[0] == 2048 * lanes


@pytest.mark.parametrize("seed", [2025, 2036])
def test_random_loops(seed: int) -> None:
    """Loops of random values compute with four lanes for a work item what the interpreter says."""
    module = hloopt.parse(random_loops.loop_text(random.Random(seed), (33, 40)))
    LoopFusion(always=True).run(module, PassLog())
    given = random_loops.inputs([one.array.dims for one in module.entry.parameters])
    program = check_kernel(
        module.to_text(), KERNEL, {"lanes": 4}, inputs=given, everywhere=False, twice=False
    )
    assert KernelCode.of(program).calls("shuffle_index")


def test_a_group_of_trips_is_computed_first_and_handed_on() -> None:
    """Each lane computes what its own trip draws and reads; in a trip nothing is drawn or read."""
    code = check(drawing(40, 24), 8, everywhere=False, twice=False)
    assert code.heads() == [
        "for group: int from 0 to 24 += 8",
        "for iter: int from group to group + 8 unroll 1",
    ]
    loop = code.loop("iter")
    assert code.loop("group").body[-1] is loop
    iterations = KernelCode.of_body(loop.body)
    groups = KernelCode.of_body(code.loop("group").body[:-1])
    assert code.read_at("rows_0") == groups.read_at("rows_0") == ["own * 40 + item"]
    assert len(code.calls("shuffle_index")) == len(iterations.calls("shuffle_index")) == 3
    assert shifts(code) == shifts(groups) == 8
    # One of the eight lanes writes.
    tests = code.statements(If)
    assert {expression_text(one.test) for one in tests} == {"(i % 8) == 0"}
    guarded = [KernelCode.of_body(one.body) for one in tests]
    for name in ("result_0", "result_1"):
        (written,) = code.written_at(name)
        assert [written] == [at for one in guarded for at in one.written_at(name)]


def test_one_lane_for_a_unit_shares_what_all_units_have() -> None:
    """A warp computes the keys of 32 trips at once; what differs from work item to work item is drawn in its trip."""
    code = check(drawing(64, 40), 1, everywhere=False, twice=False)
    assert code.heads()[0] == "for group: int from 0 to 40 += 32"
    iterations = KernelCode.of_body(code.loop("iter").body)
    assert len(iterations.calls("shuffle_index")) == 1
    assert shifts(iterations) == 4


def test_a_loop_without_free_values_is_as_it_was() -> None:
    """What follows from the state alone is handed on by nobody: no groups, and threads may leave early."""
    text = program({"x": "f32[40]"}, "  x1 = f32[40] cosine(x)", "x1", iterations=5)
    assert LaneValues(mapping_of(text).parallel).exchangeable(8) == frozenset()
    code = check(text, 1, everywhere=False)
    assert code.heads() == ["for iter: int from 0 to 5"]
    assert code.statements(Return)


def test_trips_that_nobody_knows_are_not_grouped() -> None:
    """A loop that ends by its data may end within a group, so its trips are run one by one."""
    known = mapping_of(drawing(33, 7)).parallel
    assert known.iterations.kind == "known"
    assert LaneValues(known).exchangeable(2)
    unknown = program(
        {"x": "u32[9]", "most": "s32[]"},
        f"""
  trip = u32[] convert(i)
{mixed("now", "trip", "u32[]")}
  nows = u32[9] broadcast(now), dimensions={{}}
  x1 = u32[9] add(x, nows)""",
        "x1, most",
        iterations="  ROOT_c = pred[] compare(i, most), direction=LT",
    )
    loop = mapping_of(unknown).parallel
    assert loop.iterations.kind != "known"
    assert LaneValues(loop).exchangeable(1) == LaneValues(loop).exchangeable(2) == frozenset()


def test_beyond_the_registers_values_are_computed_in_their_trip() -> None:
    """Of more elements than lanes hand to each other the rest is computed where it is needed."""
    n = MOST_HANDED + 6
    body = [
        f"  row = f32[1,33,{n}] dynamic-slice(rows, i, zero, zero), dynamic_slice_sizes={{1,33,{n}}}"
    ]
    last = "x"
    for at in range(n):
        body += [
            f"  e{at} = f32[1,33,1] slice(row), slice={{[0:1], [0:33], [{at}:{at + 1}]}}",
            f"  r{at} = f32[33] reshape(e{at})",
            f"  y{at} = f32[33] {'subtract' if at % 3 else 'add'}({last}, r{at})",
        ]
        last = f"y{at}"
    text = program(
        {"x": "f32[33]", "rows": f"f32[6,33,{n}]"}, "\n".join(body), f"{last}, rows", iterations=6
    )
    code = check(text, 4, everywhere=False, twice=False)
    assert len(code.calls("shuffle_index")) == MOST_HANDED


def test_types_of_every_kind_are_handed_on() -> None:
    """Lanes exchange numbers of any width: 1, 2 and 8 bytes, complex ones, truth values."""
    kinds = ("s8", "bf16", "f64", "c64", "pred", "u64")
    state = {f"x{at}": f"{kind}[300]" for at, kind in enumerate(kinds)}
    state |= {f"a{at}": f"{kind}[5,300]" for at, kind in enumerate(kinds)}
    lines = []
    for at, kind in enumerate(kinds):
        op = "xor" if kind == "pred" else "subtract"
        lines += [
            f"  slice{at} = {kind}[1,300] dynamic-slice(a{at}, i, zero), dynamic_slice_sizes={{1,300}}",
            f"  r{at} = {kind}[300] reshape(slice{at})",
            f"  n{at} = {kind}[300] {op}(r{at}, x{at})",
        ]
    following = [f"n{at}" for at in range(len(kinds))] + [f"a{at}" for at in range(len(kinds))]
    code = check(program(state, "\n".join(lines), ", ".join(following), iterations=5), 2)
    assert len(code.calls("shuffle_index")) == len(kinds)


def test_lanes_that_are_no_part_of_a_warp_are_refused() -> None:
    """Three lanes share no warp evenly; lanes that would add a work item several times are refused by name."""
    with pytest.raises(
        UsageError, match=r"3 lanes for a work item do not divide a warp: 1, 2, 4, 8, 16, 32"
    ):
        planned(fused(drawing(33, 7)), KERNEL, {"lanes": 3})
    text = program(
        {"x": "f32[40]", "sums": "f32[6]"},
        """
  x1 = f32[40] sine(x)
  nothing = f32[] constant(0)
  all = f32[] reduce(x1, nothing), dimensions={0}, to_apply=add_f32
  sum1 = f32[1] reshape(all)
  sums1 = f32[6] dynamic-update-slice(sums, sum1, i)""",
        "x1, sums1",
        iterations=6,
    )
    with pytest.raises(UsageError, match="2 lanes for a work item would add it 2 times to all"):
        planned(fused(text), KERNEL, {"lanes": 2})


def splitting(units: int, iterations: int) -> str:
    """A key that every trip replaces, numbers drawn from it by the work item, a stream of keys."""
    n, kind = units, f"u32[{units}]"
    return program(
        {"x": kind, "key": "u32[]", "other": "u32[1]", "keys": f"u32[{iterations},{n}]"},
        f"""
{mixed("next", "key", "u32[]")}
  otherr = u32[] reshape(other)
  both = u32[] xor(next, otherr)
{mixed("second", "both", "u32[]")}
  other1 = u32[1] reshape(second)
  wide = {kind} broadcast(both), dimensions={{}}
  number = {kind} iota(), iota_dimension=0
  own = {kind} xor(wide, number)
{mixed("drawn", "own", kind)}
  x1 = {kind} add(drawn, x)
  old = {kind} broadcast(key), dimensions={{}}
  row = {kind} xor(old, x)
  out = u32[1,{n}] reshape(row)
  keys1 = u32[{iterations},{n}] dynamic-update-slice(keys, out, i, zero)""",
        "x1, next, other1, keys1",
        iterations=iterations,
    )


@pytest.mark.parametrize(
    ("lanes", "units", "iterations"), [(1, 33, 7), (2, 33, 7), (4, 40, 8), (8, 3, 1), (32, 7, 70)]
)
def test_keys_of_the_state_are_advanced_by_every_lane(
    lanes: int, units: int, iterations: int
) -> None:
    """Each lane has the key before its own trip, and after the loop the key is that of the last trip."""
    text = splitting(units, iterations)
    advanced = LaneValues(mapping_of(text).parallel).advanced
    assert [one.number for one in advanced] == [2, 3]
    code = check(text, lanes, everywhere=lanes in (1, 4))
    assert bool(code.named("own_2")) == (lanes > 1)


def test_only_single_numbers_that_all_units_have_are_advanced() -> None:
    """A number that the work items make, or that follows from one, is no key; nor is an array."""
    text = program(
        {"x": "u32[40]", "a": "u32[40]", "pair": "u32[2]", "key": "u32[]"},
        f"""
{mixed("next", "key", "u32[]")}
  nexts = u32[40] broadcast(next), dimensions={{}}
  a1 = u32[40] xor(a, nexts)
  pair1 = u32[2] add(pair, pair)
  x1 = u32[40] add(x, a1)""",
        "x1, a1, pair1, next",
        iterations=9,
    )
    assert [one.number for one in LaneValues(mapping_of(text).parallel).advanced] == [4]
    check(text, 4, everywhere=False)
