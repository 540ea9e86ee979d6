"""Times of loops in one kernel, counted by hand where that can be done, and never shorter for more work."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hloopt
from hloopt.analysis.parallel_loop import LoopMapping, parallel_loop
from hloopt.analysis.trip_count import IterationCounts
from hloopt.cost_models.instructions import latencies_of
from hloopt.cost_models.loop_time import LoopTime, better_mapping, loop_time
from hloopt.ir import Instruction
from hloopt.targets import find_target

H200 = find_target("h200")


def loop(
    body: str, state: str = "f32[2048]", iterations: int = 100, size: str = "f32[2048]"
) -> str:
    """A module whose loop carries a counter and ``x``; ``body`` makes ``y`` of it."""
    return f"""HloModule m
body {{
  state = (s32[], {state}) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(trip, one)
  x = {size} get-tuple-element(state), index=1
  {body}
  ROOT result = (s32[], {state}) tuple(next, y)
}}

condition {{
  state = (s32[], {state}) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  most = s32[] constant({iterations})
  ROOT goes_on = pred[] compare(trip, most), direction=LT
}}

ENTRY main {{
  x = {size} parameter(0)
  zero = s32[] constant(0)
  init = (s32[], {state}) tuple(zero, x)
  loop = (s32[], {state}) while(init), condition=condition, body=body
  ROOT r = {size} get-tuple-element(loop), index=1
}}
"""


def mapping_of(text: str, kind: str = "thread") -> LoopMapping:
    """The loop of a module by a thread for each work item, or by a block."""
    module = hloopt.parse(text)
    found: Instruction = next(one for one in module.instructions() if one.opcode == "while")
    return LoopMapping("thread" if kind == "thread" else "block", parallel_loop(found))


def timed(text: str, kind: str = "thread", target: str = "h200", **options: int) -> LoopTime:
    """Its time."""
    return loop_time(mapping_of(text, kind), find_target(target), **options)


def cycles(nanoseconds: float) -> float:
    """Of the H200's clock."""
    return round(nanoseconds * H200.clock_ghz, 6)


def test_a_chain_of_three_multiplications_and_a_branch() -> None:
    """Each waits five cycles for the one before, and the branch back takes five."""
    text = loop(
        "a = f32[2048] multiply(x, x)\n b = f32[2048] multiply(a, x)\n y = f32[2048] multiply(b, x)"
    )
    found = timed(text)
    assert cycles(found.chain_ns) == 3 * 5 + 5
    assert cycles(found.recurrence_ns) == 15
    assert (found.bound, found.counted) == ("chain", IterationCounts(100, "exact"))
    # 2048 work items are 64 warps, one on each of 64 cores.
    assert (found.blocks, found.threads, found.cores, found.waves) == (64, 32, 64, 1)
    # Three multiplications, the counter's addition and comparison, one a cycle.
    assert cycles(found.issue_ns) == 3 + 1 + 1
    assert found.launch_ns == 1000
    assert found.ns == pytest.approx(1000 + found.ends_ns + 100 * found.chain_ns)


def test_what_runs_beside_the_chain_does_not_lengthen_it() -> None:
    """Two products of the state and their sum are a chain of two."""
    text = loop(
        "a = f32[2048] multiply(x, x)\n b = f32[2048] add(x, x)\n y = f32[2048] subtract(a, b)"
    )
    assert cycles(timed(text).chain_ns) == 2 * 5 + 5


def test_unrolled_trips_overlap_what_the_state_does_not_wait_for() -> None:
    """The branch is paid once for all trips written behind each other."""
    text = loop("a = f32[2048] multiply(x, x)\n y = f32[2048] add(a, x)")
    assert cycles(timed(text).chain_ns) == 15
    assert cycles(timed(text, unrolled=5).chain_ns) == pytest.approx(11)


def test_unknown_trips_count_as_one_and_are_said_to_be_the_least() -> None:
    """A loop that runs until its data say so."""
    text = loop("y = f32[2048] add(x, x)").replace(
        "trip, most), direction=LT", "trip, limit), direction=LT"
    )
    text = text.replace(
        "most = s32[] constant(100)", "limit = s32[] get-tuple-element(state), index=1"
    )
    text = text.replace("f32[2048]", "s32[]")
    found = timed(text)
    assert found.counted == IterationCounts(1, "at least")
    assert "at least 1 iteration of" in found.words


@pytest.mark.parametrize("kind", ["thread", "block"])
def test_more_of_anything_is_never_faster(kind: str) -> None:
    """Ops, trips and work items each only add."""
    one = "y = f32[2048] multiply(x, x)"
    two = "a = f32[2048] multiply(x, x)\n y = f32[2048] sine(a)"
    assert timed(loop(one), kind).ns < timed(loop(two), kind).ns
    assert timed(loop(one, iterations=10), kind).ns < timed(loop(one, iterations=11), kind).ns
    sizes = [1, 31, 2048, 65536, 1_000_003, 100_000_000]
    times = [timed(loop(one).replace("2048", str(size)), kind).ns for size in sizes]
    assert times == sorted(times)


def test_many_threads_are_bound_by_what_the_schedulers_issue() -> None:
    """A full device shares its lanes: twice the work items take twice as long."""
    text = loop("y = f32[2048] sine(x)")
    once = timed(text.replace("2048", str(1 << 24)))
    twice = timed(text.replace("2048", str(1 << 25)))
    assert once.bound == "issue"
    assert twice.waves == pytest.approx(2 * once.waves, rel=0.02)


def test_streams_are_bound_by_memory() -> None:
    """Each trip writes what all work items give to a stacked result."""
    text = STREAM.replace("2048", str(1 << 20))
    found = timed(text)
    assert found.memory_ns == pytest.approx(4 * (1 << 20) / 4800)
    assert found.bound == "memory"


STREAM = """HloModule m
body {
  state = (s32[], f32[2048], f32[50,2048]) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(trip, one)
  x = f32[2048] get-tuple-element(state), index=1
  y = f32[2048] add(x, x)
  all = f32[50,2048] get-tuple-element(state), index=2
  row = f32[1,2048] reshape(y)
  update = f32[50,2048] dynamic-update-slice(all, row, trip, zero)
  ROOT result = (s32[], f32[2048], f32[50,2048]) tuple(next, y, update)
}

condition {
  state = (s32[], f32[2048], f32[50,2048]) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  most = s32[] constant(50)
  ROOT goes_on = pred[] compare(trip, most), direction=LT
}

ENTRY main {
  x = f32[2048] parameter(0)
  all = f32[50,2048] parameter(1)
  zero = s32[] constant(0)
  init = (s32[], f32[2048], f32[50,2048]) tuple(zero, x, all)
  ROOT loop = (s32[], f32[2048], f32[50,2048]) while(init), condition=condition, body=body
}
"""


def test_registers_limit_the_blocks_of_a_core() -> None:
    """255 registers leave room for two blocks of 128 threads; four times the blocks are two waves."""
    mapping = replace(mapping_of(loop("y = f32[2048] sine(x)")), threads=128, registers=255)
    found = loop_time(mapping, H200, blocks=4 * 132)
    assert (found.blocks_per_core, found.waves) == (2, 2)


def test_units_that_a_thread_runs_one_after_the_other_take_their_time() -> None:
    """A fourth of the blocks: each thread runs four loops."""
    mapping = mapping_of(loop("y = f32[2048] sine(x)"))
    once, four = (loop_time(mapping, H200, threads=32, blocks=blocks) for blocks in (64, 16))
    assert (once.waves, four.waves) == (1, 4)
    assert four.exec_ns - four.ends_ns == 4 * (once.exec_ns - once.ends_ns)


def test_the_better_way_is_the_one_whose_kernel_takes_less() -> None:
    """Threads for many small work items; what does not fit is not asked."""
    text = loop("y = f32[2048] sine(x)")
    thread, block = mapping_of(text), mapping_of(text, "block")
    chosen = better_mapping((thread, block), H200)
    assert chosen is not None
    assert chosen[0] is thread
    only = better_mapping((replace(thread, problem="too large"), block), H200)
    assert only is not None
    assert only[0] is block
    assert better_mapping((replace(thread, problem="too large"),), H200) is None


@pytest.mark.parametrize("target", ["v100", "a100", "a6000", "h100", "h200", "b200"])
def test_every_cuda_device_has_latencies(target: str) -> None:
    """Chains take some nanoseconds on each, within a factor of two of each other."""
    found = timed(loop("y = f32[2048] sine(x)"), target=target)
    assert 50 < found.chain_ns < 100


def test_devices_without_known_instructions_are_refused() -> None:
    """No latencies of AMD's and Google's are known."""
    mapping = mapping_of(loop("y = f32[2048] sine(x)"))
    with pytest.raises(ValueError, match="mi200 is not a CUDA device"):
        latencies_of(find_target("mi200"))
    with pytest.raises(ValueError, match="tpu-v4 runs no kernels"):
        loop_time(mapping, find_target("tpu-v4"))


def test_branches_keep_what_is_beside_the_chain_from_filling_its_waits() -> None:
    """A checked division branches: products beside it come on top.  Without it they cost nothing."""
    beside = "\n".join(
        f"b{number} = f32[2048] multiply(x, x)\n c{number} = f32[2048] add(b{number}, x)"
        for number in range(20)
    )
    total = "\n".join(f"d{number + 1} = f32[2048] add(d{number}, a)" for number in range(20))
    straight = loop(
        f"a = f32[2048] sqrt(x)\n{beside}\n d0 = f32[2048] add(c0, a)\n{total}\n y = f32[2048] add(d20, c19)"
    )
    branchy = straight.replace("sqrt(x)", "divide(x, x)")
    plain = straight.replace("sqrt(x)", "floor(x)")
    latencies = latencies_of(H200)
    for text, opcode in ((branchy, "divide"), (plain, "floor")):
        chain = latencies.works[opcode, "f32"].chain + 22 * 5 + 5
        found = cycles(timed(text).chain_ns)
        assert (found > chain) == (opcode == "divide")
