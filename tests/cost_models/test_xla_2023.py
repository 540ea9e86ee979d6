"""XLA's model of spring 2023, beside figures worked out by hand and those XLA's authors measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hloopt
from hloopt.cost_models.model import Comparison
from hloopt.cost_models.registry import find_model
from hloopt.cost_models.xla_2023 import Xla2023
from hloopt.fusion.apply import fuse
from hloopt.ir import Instruction, Module
from hloopt.targets import target

# The device of XLA's own tests: an RTX A6000 at its base clock.
DEVICE = replace(target("a6000"), clock_ghz=1.41)
# Bytes and flops a nanosecond, as in gpu_performance_model.cc: two flops a clock and lane.
BANDWIDTH = 768.096
FLOPS = 2 * 1.41 * 84 * 128
REGION = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }"


def _ns(value: float) -> object:
    """Equal to the quarter of a nanosecond in which XLA counts, of each part."""
    return pytest.approx(value, rel=1e-6, abs=0.26)


def _us(value: float) -> object:
    return pytest.approx(value, rel=1e-6, abs=0.001)


def _module(entry: str, bodies: str = "") -> Module:
    return hloopt.parse(f"HloModule m\n{REGION}\n{bodies}\nENTRY e {{\n{entry}\n}}\n")


def _model() -> Xla2023:
    return Xla2023(DEVICE)


def _compare(
    module: Module, producer: str, *consumers: str, multi_output: bool = False
) -> Comparison:
    named = module.entry.by_name
    users: list[Instruction] = [named[name] for name in consumers]
    return _model().compare(named[producer], users, multi_output=multi_output)


def test_it_is_found_by_its_name() -> None:
    """As the option ``cost_model`` has it."""
    assert find_model("xla-2023") is Xla2023


MEASURED = [
    ("log", "f32", 21, 312, 31),
    ("log", "f64", 21, 7100, 700),
    ("divide", "s32", 20, 482, 48),
    ("divide", "f64", 1, 1100, 110),
    ("divide", "f64", 20, 20000, 2000),
    ("divide", "c128", 10, 64000, 6400),
    ("exponential", "f64", 2, 1400, 140),
    ("multiply", "f64", 20, 794, 80),
    ("multiply", "c128", 20, 4700, 470),
    ("power", "f64", 10, 36000, 3600),
    ("power", "c128", 10, 93000, 9300),
    ("tanh", "f64", 21, 14000, 1400),
    ("tanh", "f32", 21, 200, 20),
    ("sqrt", "f64", 21, 7800, 780),
    ("sqrt", "c128", 10, 83000, 8000),
    ("rsqrt", "f64", 21, 6300, 630),
]


@pytest.mark.parametrize(("opcode", "dtype", "times", "measured", "tolerance"), MEASURED)
def test_chains_that_were_measured(
    opcode: str, dtype: str, times: int, measured: int, tolerance: int
) -> None:
    """Microseconds of ten million elements on an A6000, as gpu_performance_model_test.cc of 2023 has them."""
    shape = f"{dtype}[10000000]"
    binary = opcode in ("divide", "multiply", "power")
    lines = [f"x0 = {shape} parameter(0)", f"y = {shape} parameter(1)"]
    lines += [
        f"x{at} = {shape} {opcode}(x{at - 1}{', y' if binary else ''})"
        for at in range(1, times + 1)
    ]
    body = "f {\n" + "\n".join([*lines[:-1], "ROOT " + lines[-1]]) + "\n}"
    entry = f"p = {shape} parameter(0)\nq = {shape} parameter(1)\n"
    entry += f"ROOT r = {shape} fusion(p, q), kind=kLoop, calls=f"
    module = _module(entry, body)
    model = _model()
    spent = (model.launch_ns + model.run_time(module.entry.root).exec_ns) / 1000
    assert spent == pytest.approx(measured, abs=tolerance)


def test_types_a_named_opcode_does_not_name_take_three_cycles() -> None:
    """And opcodes that are not named take more in f64 and c128 (GpuHloCostAnalysis::HandleElementwiseOp)."""
    for opcode, dtype, cycles in (
        ("exponential", "f32", 3),
        ("exponential", "c128", 3),
        ("log", "f16", 3),
        ("cosine", "f32", 3),
        ("cosine", "f64", 10),
        ("cosine", "c128", 20),
        ("subtract", "f64", 10),
    ):
        operands = "p, p" if opcode == "subtract" else "p"
        module = _module(
            f"p = {dtype}[1000] parameter(0)\nROOT r = {dtype}[1000] {opcode}({operands})"
        )
        assert _model().run_time(module.entry.root).flops == cycles * 1000, opcode


def test_moving_takes_the_sum_of_reads_and_writes() -> None:
    """Two operands of 40 MB pass the 6 MiB of L2: 120 MB at the bandwidth of memory."""
    shape = "f32[10000000]"
    module = _module(
        f"p = {shape} parameter(0)\nq = {shape} parameter(1)\nROOT r = {shape} add(p, q)"
    )
    spent = _model().run_time(module.entry.root)
    assert spent.read_ns == _ns(8e7 / BANDWIDTH)
    assert spent.write_ns == _ns(4e7 / BANDWIDTH)
    assert spent.compute_ns == _ns(3e7 / FLOPS)
    assert spent.exec_ns == spent.read_ns + spent.write_ns
    assert (spent.bytes_read, spent.bytes_written) == (80_000_000, 40_000_000)
    assert spent.bound(1000.0) == "memory"


@pytest.mark.parametrize(
    ("elements", "speed"),
    [(43007, 20.0), (43008, 2.5), (1572863, 2.5), (1572864, 1.0)],
)
def test_what_fits_in_a_cache_is_read_faster(elements: int, speed: float) -> None:
    """L1 is 2 KiB a core (84 of them), eight times as fast as L2, that two and a half times memory."""
    module = _module(f"p = f32[{elements}] parameter(0)\nROOT r = f32[{elements}] negate(p)")
    spent = _model().run_time(module.entry.root)
    assert spent.read_ns == _ns(4 * elements / (BANDWIDTH * speed))


def test_repeated_reads_are_counted_each_time() -> None:
    """40 KB read a thousand times out of L1, and one operand of 40 MB (the L1CacheEffect of XLA's tests)."""
    body = """f { p = f32[10000] parameter(0) q = f32[10000000] parameter(1)
  b = f32[10000,1000] broadcast(p), dimensions={0} c = f32[10000000] bitcast(b)
  ROOT r = f32[10000000] add(c, q) }"""
    module = _module(
        "p = f32[10000] parameter(0)\nq = f32[10000000] parameter(1)\n"
        "ROOT r = f32[10000000] fusion(p, q), kind=kLoop, calls=f",
        body,
    )
    spent = _model().run_time(module.entry.root)
    assert spent.read_ns == _ns(4e7 / (BANDWIDTH * 20) + 4e7 / BANDWIDTH)
    assert 1 + spent.exec_ns / 1000 == pytest.approx(118, abs=12)


def test_few_elements_use_few_lanes() -> None:
    """A thread an element: a tanh of 10 numbers takes what one takes."""
    for elements, lanes in ((10, 10), (10752, 10752), (107520, 10752)):
        module = _module(f"p = f32[{elements}] parameter(0)\nROOT r = f32[{elements}] tanh(p)")
        spent = _model().run_time(module.entry.root)
        assert spent.compute_ns == _ns(30 * elements / (2.82 * lanes))


def test_nothing_runs_for_a_name() -> None:
    """Parameters, constants, tuples, their elements and bitcasts."""
    module = _module("""p = (f32[8], f32[8]) parameter(0)
g = f32[8] get-tuple-element(p), index=0
b = f32[2,4] bitcast(g)
c = f32[] constant(1)
ROOT t = (f32[2,4], f32[]) tuple(b, c)""")
    assert {_model().run_time(entry).exec_ns for entry in module.entry} == {0.0}


def test_initial_values_are_read_once_and_concatenation_computes_nothing() -> None:
    """As it was counted then; a transpose through a bitcast is a use of its own."""
    module = _module("""p = f32[64,64] parameter(0)
z = f32[] constant(0)
r = f32[64] reduce(p, z), dimensions={1}, to_apply=sum
c = f32[128] concatenate(r, r), dimensions={0}
ROOT t = (f32[64], f32[128]) tuple(r, c)""")
    named, usage = module.entry.by_name, _model().usage
    assert [use.bytes for use in usage.of(named["r"]).operands] == [16384, 4]
    assert usage.of(named["r"]).flops == 3 * (64 * 64 - 64)
    assert usage.of(named["c"]).flops == 0


PAIR = """p = f32[1000000] parameter(0)
t = f32[1000000] tanh(p)
a = f32[1000000] negate(t)
{other}"""


def test_a_pair_that_keeps_indices() -> None:
    """Fused saves a launch, a write and a read; the tanh is computed as often as before."""
    module = _module(PAIR.format(other="ROOT r = f32[1000000] abs(a)"))
    times = _compare(module, "t", "a")
    size = 4e6
    move = size / (BANDWIDTH * 2.5)
    compute = 30e6 / FLOPS
    assert times.unfused_us == _us((2000 + max(compute, move + size / BANDWIDTH) + move) / 1000)
    assert times.fused_us == _us((1000 + max(compute, move)) / 1000)
    assert times.gain_us > 1


def test_two_consumers_compute_it_twice() -> None:
    """One launch more than consumers against one for each, and the producer's time for each of them."""
    both = "b = f32[1000000] abs(t)\nROOT r = (f32[1000000], f32[1000000]) tuple(a, b)"
    module = _module(PAIR.format(other=both))
    times = _compare(module, "t", "a", "b")
    move = 4e6 / (BANDWIDTH * 2.5)
    compute = 30e6 / FLOPS
    alone = max(compute, move + 4e6 / BANDWIDTH)
    assert times.unfused_us == _us((3000 + alone + 2 * move) / 1000)
    assert times.fused_us == _us((2000 + 2 * max(compute, move)) / 1000)


def test_several_outputs_write_the_producers_result_too() -> None:
    """On top of the fused time."""
    module = _module(PAIR.format(other="ROOT r = f32[1000000] abs(a)"))
    plain = _compare(module, "t", "a")
    several = _compare(module, "t", "a", multi_output=True)
    assert several.unfused_us == plain.unfused_us
    assert several.fused_us - plain.fused_us == _us(4e6 / BANDWIDTH / 1000)


def test_a_consumer_that_reads_again_and_again_computes_again_and_again() -> None:
    """Behind a broadcast by 64 a tanh is computed 64 times, by 64 times as many threads."""
    module = _module("""p = f32[1000] parameter(0)
t = f32[1000] tanh(p)
ROOT b = f32[1000,64] broadcast(t), dimensions={0}""")
    times = _compare(module, "t", "b")
    near = BANDWIDTH * 20
    alone = max(30e3 / (2.82 * 1000), 4e3 / near + 4e3 / BANDWIDTH)
    assert times.unfused_us == _us((2000 + alone + 256e3 / near) / 1000)
    again = 64 * 30e3 / (2.82 * 10752)
    assert times.fused_us == _us((1000 + max(again, 256e3 / near)) / 1000)


def test_a_consumer_that_reads_a_part() -> None:
    """A slice of a tenth: a tenth of the work and of the reads."""
    module = _module("""p = f32[1000000] parameter(0)
t = f32[1000000] tanh(p)
ROOT s = f32[100000] slice(t), slice={[0:100000]}""")
    times = _compare(module, "t", "s")
    compute = 3e6 / FLOPS
    assert times.fused_us == _us((1000 + max(compute, 4e5 / (BANDWIDTH * 2.5))) / 1000)


def test_who_reads_one_of_several_results() -> None:
    """The share of the producer's bytes it reads."""
    body = """f { p = f32[1000000] parameter(0) n = f32[1000000] negate(p) a = f32[1000000] abs(p)
  ROOT t = (f32[1000000], f32[1000000]) tuple(n, a) }"""
    module = _module(
        """p = f32[1000000] parameter(0)
f = (f32[1000000], f32[1000000]) fusion(p), kind=kLoop, calls=f
g = f32[1000000] get-tuple-element(f), index=1
h = f32[1000000] get-tuple-element(f), index=0
o = f32[1000000] add(g, h)
ROOT r = f32[1000000] tanh(o)""",
        body,
    )
    model, named = _model(), module.entry.by_name
    move = 4e6 / (BANDWIDTH * 2.5)
    write = 8e6 / BANDWIDTH
    times = model.compare(named["f"], [named["o"]])
    assert times.unfused_us == _us((2000 + move + write + 8e6 / BANDWIDTH) / 1000)
    with pytest.raises(ValueError, match="r does not use f"):
        model.compare(named["f"], [named["r"]])


def test_what_was_computed_is_remembered_until_it_is_forgotten() -> None:
    """A body that has grown counts after ``forget``."""
    body = "f { p = f32[8] parameter(0) ROOT n = f32[8] negate(p) }"
    module = _module(
        "p = f32[8] parameter(0)\nROOT r = f32[8] fusion(p), kind=kLoop, calls=f", body
    )
    model, fusion = _model(), module.entry.root
    assert model.run_time(fusion).flops == 24
    inner = module.computations["f"]
    inner.root = hloopt.ir.build.make(inner, "abs", (inner.root,))
    assert model.run_time(fusion).flops == 24
    model.forget(fusion)
    assert model.run_time(fusion).flops == 48


def test_a_fusion_that_has_grown_counts_what_has_joined() -> None:
    """As a model that never saw it before does."""
    bodies = """f { p = f32[64] parameter(0) n = f32[64] negate(p) ROOT b = f32[64,8] broadcast(n), dimensions={0} }
g { p = f32[64] parameter(0) q = f32[64] parameter(1) ROOT t = f32[64] divide(p, q) }"""
    module = _module(
        """x = f32[64] parameter(0)
y = f32[64] parameter(1)
d = f32[64] fusion(x, y), kind=kLoop, calls=g
ROOT r = f32[64,8] fusion(d), kind=kLoop, calls=f""",
        bodies,
    )
    producer, fusion = module.entry.by_name["d"], module.entry.root
    model = _model()
    before = model.run_time(fusion)
    fuse(producer, fusion)
    assert model.run_time(fusion) == before
    model.grown(fusion)
    assert model.run_time(fusion) == _model().run_time(fusion) != before


def test_times_are_whole_quarters_of_a_nanosecond() -> None:
    """4000 bytes at 768.096 a nanosecond are 5.2 ns, and XLA counts 5.25."""
    module = _module("c = f32[] parameter(0)\nROOT r = f32[1000] broadcast(c), dimensions={}")
    assert _model().run_time(module.entry.root).write_ns == 5.25


def test_a_device_without_lanes_moves_bytes_alone() -> None:
    """Nobody says how many numbers a TPU's vector unit takes at once."""
    module = _module("p = f32[1000] parameter(0)\nROOT r = f32[1000] tanh(p)")
    spent = Xla2023(target("tpu-v4")).run_time(module.entry.root)
    assert (spent.compute_ns, spent.flops) == (0.0, 30_000)
    assert spent.exec_ns == spent.read_ns + spent.write_ns > 0
