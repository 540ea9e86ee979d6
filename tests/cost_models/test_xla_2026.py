"""XLA's performance model of 2026: its own figures, op by op and pair by pair, and what they must mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import hloopt
from hloopt.cost_models.block_level import BlockLevelModel
from hloopt.cost_models.model import Comparison, RunTime
from hloopt.cost_models.registry import DEFAULT, find_model
from hloopt.cost_models.xla_2026 import Xla2026
from hloopt.fusion.apply import fuse, remove_producer
from hloopt.ir import Instruction, Module
from hloopt.targets import target

FOLDER = Path(__file__).parent / "xla_times"
TEST_DEVICE = replace(target("a6000"), clock_ghz=1.41)
"""Of XLA's own tests (gpu_device_info_for_tests.cc)."""

SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"


def _module(entry: str, more: str = "") -> Module:
    return hloopt.parse(f"HloModule m\n{SUM}{more}ENTRY e {{\n{entry}\n}}\n")


def _named(module: Module) -> dict[str, Instruction]:
    return dict(module.entry.by_name)


def _rows(name: str) -> list[tuple[str, list[float]]]:
    rows = []
    for line in (FOLDER / f"{name}.txt").read_text().splitlines():
        if not line.startswith("#"):
            *names, blocks, threads, flops, read, written, t1, t2, t3, t4 = line.split()
            figures = [blocks, threads, flops, read, written, t1, t2, t3, t4]
            rows.append((" ".join(names), [float(figure) for figure in figures]))
    return rows


def _figures(found: RunTime) -> list[float]:
    return [
        found.blocks,
        found.threads,
        found.flops,
        found.bytes_read,
        found.bytes_written,
        found.read_ns,
        found.write_ns,
        found.compute_ns,
        found.exec_ns,
    ]


@pytest.mark.parametrize("name", ["zoo", "zoo_fused"])
def test_every_figure_is_xlas(name: str) -> None:
    """Of ops, pairs and fusions of all kinds, for an H200, as jaxlib 0.10.2 logs them: launches and times alike.

    Flops beyond 2^24 are printed by XLA in f32.
    """
    named = _named(hloopt.parse((FOLDER / f"{name}.hlo").read_text()))
    model = Xla2026(target("h200"))
    for words, expected in _rows(name):
        first, *others = (named[word] for word in words.split(" + "))
        found = model.fused_run_time(first, others[0]) if others else model.run_time(first)
        assert _figures(found) == pytest.approx(expected, rel=1e-7), words


FULL_BROADCAST = """f {
  c = f32[] constant(123)
  ROOT b = f32[10000000]{0} broadcast(c), dimensions={}
}
"""


def test_writing_alone() -> None:
    """A broadcast constant of 10^7 elements: 53 us, XLA's test allows 10."""
    module = _module("ROOT r = f32[10000000]{0} fusion(), kind=kLoop, calls=f", FULL_BROADCAST)
    model = Xla2026(TEST_DEVICE)
    found = model.run_time(module.entry.root)
    assert (found.bytes_read, found.compute_ns) == (0, 0)
    assert (model.launch_ns + found.exec_ns) / 1000 == pytest.approx(53.08, abs=0.01)


def _sum_of_two(count: int) -> Module:
    body = (
        f"f {{\na = f32[{count}]{{0}} parameter(0)\nb = f32[{count}]{{0}} parameter(1)\n"
        f"ROOT c = f32[{count}]{{0}} add(a, b)\n}}\n"
    )
    return _module(
        f"a = f32[{count}]{{0}} parameter(0)\nb = f32[{count}]{{0}} parameter(1)\n"
        f"ROOT r = f32[{count}]{{0}} fusion(a, b), kind=kLoop, calls=f",
        body,
    )


@pytest.mark.parametrize(
    ("count", "cycles", "slack", "compute", "memory"),
    [(1000, 38.4, 0.1, 1.0, 27.25), (10_000_000, 220_284, 100, 989.5, 156_230.25)],
)
def test_addition(count: int, cycles: float, slack: float, compute: float, memory: float) -> None:
    """Few blocks do not fill the memory bus; many do.  Cycles and their slack are those of XLA's test."""
    found = Xla2026(TEST_DEVICE).run_time(_sum_of_two(count).entry.root)
    assert found.compute_ns == compute
    assert found.read_ns + found.write_ns == memory
    assert found.exec_ns * TEST_DEVICE.clock_ghz == pytest.approx(cycles, abs=slack)


@pytest.mark.parametrize(
    ("rows", "columns", "expected"), [(10_000, 1000, 107.86), (1_000_000, 10, 129.16)]
)
def test_cached_reads(rows: int, columns: int, expected: float) -> None:
    """A vector that is read again and again fits into the first cache, or into the second only.

    XLA's test wants 118 us and 123 us, give or take 12.
    """
    whole = f"f32[{rows},{columns}]{{1,0}}"
    body = (
        f"v = f32[{rows}]{{0}} parameter(0)\nm = {whole} parameter(1)\n"
        f"b = {whole} broadcast(v), dimensions={{0}}\nROOT c = {whole} add(b, m)"
    )
    module = _module(
        f"v = f32[{rows}]{{0}} parameter(0)\nm = {whole} parameter(1)\n"
        f"ROOT r = {whole} fusion(v, m), kind=kLoop, calls=f",
        f"f {{\n{body}\n}}\n",
    )
    model = Xla2026(TEST_DEVICE)
    total = model.launch_ns + model.run_time(module.entry.root).exec_ns
    assert total / 1000 == pytest.approx(expected, abs=0.01)


TRANSPOSED_SUM = """p = f32[1500,32,128]{2,1,0} parameter(0)
z = f32[] constant(0)
t = f32[1500,128,32]{2,1,0} transpose(p), dimensions={0,2,1}
ROOT r = f32[1500,32]{1,0} reduce(t, z), dimensions={1}, to_apply=sum"""


def test_a_transpose_spoils_a_reduction() -> None:
    """Reads of 4 bytes of each 64: 514 us instead of 98."""
    module = _module(TRANSPOSED_SUM)
    named = _named(module)
    model = Xla2026(TEST_DEVICE)
    found = model.compare(named["t"], [named["r"]])
    assert found.unfused_us == pytest.approx(98.28, abs=0.01)
    assert found.fused_us == pytest.approx(513.23, abs=0.01)
    assert not model.fused_run_time(named["t"], named["r"]).coalesced
    assert (
        model.fused_run_time(named["t"], named["r"]).exec_ns
        > 10 * model.run_time(named["r"]).exec_ns
    )


def test_a_transpose_of_outer_dimensions_does_not() -> None:
    """What is fastest in memory stays so: fusing gains."""
    named = _named(
        _module("""p = f32[32,1500,128]{2,1,0} parameter(0)
z = f32[] constant(0)
t = f32[1500,32,128]{2,1,0} transpose(p), dimensions={1,0,2}
ROOT r = f32[1500,32]{1,0} reduce(t, z), dimensions={2}, to_apply=sum""")
    )
    model = Xla2026(TEST_DEVICE)
    assert model.compare(named["t"], [named["r"]]).gain_us > 0
    assert model.fused_run_time(named["t"], named["r"]).coalesced


def test_unused_operands_cost_nothing() -> None:
    """A parameter that the body does not read has no bytes."""
    module = _module(
        "a = f32[1000]{0} parameter(0)\nb = f32[1000000]{0} parameter(1)\n"
        "ROOT r = f32[1000]{0} fusion(a, b), kind=kLoop, calls=f",
        "f {\na = f32[1000]{0} parameter(0)\nb = f32[1000000]{0} parameter(1)\n"
        "ROOT c = f32[1000]{0} negate(a)\n}\n",
    )
    assert Xla2026(TEST_DEVICE).run_time(module.entry.root).bytes_read == 4000


@pytest.mark.parametrize("rows", [1, 8, 64])
def test_an_update_in_place_costs_what_it_changes(rows: int) -> None:
    """The rest of the array is neither read nor written, by itself or as a fusion's result."""
    entry = f"""p = f32[1024,1024]{{1,0}} parameter(0)
u = f32[{rows},1024]{{1,0}} parameter(1)
i = s32[] parameter(2)
n = f32[{rows},1024]{{1,0}} negate(u)
ROOT r = f32[1024,1024]{{1,0}} dynamic-update-slice(p, n, i, i)"""
    module = _module(entry)
    named = _named(module)
    model = Xla2026(TEST_DEVICE)
    alone = model.run_time(named["r"])
    assert alone.bytes_written == rows * 4096
    assert alone.bytes_read == rows * 4096 + 8
    fusion = fuse(named["n"], named["r"])
    fused = model.run_time(fusion)
    assert fused.bytes_written == rows * 4096
    assert fused.bytes_read == rows * 4096 + 8


def test_a_large_sum_is_not_computed_by_every_thread() -> None:
    """A full reduction of 3072 elements is not to be fused into what divides by it."""
    named = _named(
        _module("""p = f32[3072]{0} parameter(0)
z = f32[] constant(0)
s = f32[] reduce(p, z), dimensions={0}, to_apply=sum
b = f32[3072]{0} broadcast(s), dimensions={}
ROOT r = f32[3072]{0} divide(p, b)""")
    )
    model = Xla2026(TEST_DEVICE)
    fusion = fuse(named["b"], named["r"])
    assert model.compare(named["s"], [fusion]).gain_us < 0


def test_costly_functions_go_where_they_are_computed_once() -> None:
    """An exponential is better joined to what makes its operand than to a broadcast of its result."""
    named = _named(
        _module("""p = f32[4096]{0} parameter(0)
q = f32[4096]{0} parameter(1)
m = f32[4096]{0} multiply(p, q)
e = f32[4096]{0} exponential(m)
w = f32[4096,2048]{1,0} broadcast(e), dimensions={0}
ROOT r = f32[4096,2048]{1,0} negate(w)""")
    )
    model = Xla2026(TEST_DEVICE)
    fusion = fuse(named["w"], named["r"])
    up = model.compare(named["m"], [named["e"]]).gain_us
    down = model.compare(named["e"], [fusion]).gain_us
    assert up > 0 > down


def test_several_outputs_are_written_too() -> None:
    """With its results kept, a producer's bytes are written, and nothing of it is read again."""
    named = _named(
        _module("""p = f32[1048576]{0} parameter(0)
e = f32[1048576]{0} exponential(p)
n = f32[1048576]{0} negate(e)
ROOT t = (f32[1048576]{0}, f32[1048576]{0}) tuple(e, n)""")
    )
    model = Xla2026(target("h200"))
    alone = model.fused_run_time(named["e"], named["n"])
    both = model.fused_run_time(named["e"], named["n"], multi_output=True)
    assert both.bytes_written == 2 * alone.bytes_written
    assert both.write_ns == 2 * alone.write_ns
    assert both.bytes_read == alone.bytes_read
    found = model.compare(named["e"], [named["n"]], multi_output=True)
    assert found.fused_us == 1 + both.exec_ns / 1000
    assert found.unfused_us == pytest.approx(
        2 + (model.run_time(named["e"]).exec_ns + model.run_time(named["n"]).exec_ns) / 1000
    )


def test_all_users_together() -> None:
    """n users: n + 1 launches and all kernels, against n launches and n fused kernels."""
    named = _named(
        _module("""p = f32[65536]{0} parameter(0)
e = f32[65536]{0} exponential(p)
n = f32[65536]{0} negate(e)
s = f32[65536]{0} multiply(e, e)
ROOT t = (f32[65536]{0}, f32[65536]{0}) tuple(n, s)""")
    )
    model = Xla2026(target("h200"))
    found = model.compare(named["e"], [named["n"], named["s"]])
    alone = [model.run_time(named[name]).exec_ns for name in ("e", "n", "s")]
    fused = [model.fused_run_time(named["e"], named[name]).exec_ns for name in ("n", "s")]
    assert found == Comparison((3000 + sum(alone)) / 1000, (2000 + sum(fused)) / 1000)


def test_an_operand_that_occurs_twice_is_computed_twice() -> None:
    """A square of an exponential has the exponential's flops twice, and its bytes once."""
    named = _named(
        _module("""p = f32[65536]{0} parameter(0)
e = f32[65536]{0} exponential(p)
ROOT s = f32[65536]{0} multiply(e, e)""")
    )
    model = Xla2026(target("h200"))
    exp, times = model.run_time(named["e"]).flops, model.run_time(named["s"]).flops
    found = model.fused_run_time(named["e"], named["s"])
    assert found.flops == 2 * exp + times
    assert found.bytes_read == 4 * 65536


def test_what_no_kernel_runs_takes_no_time() -> None:
    """Parameters, constants, tuples, their elements, and bitcasts."""
    module = _module("""p = f32[64,2]{1,0} parameter(0)
c = f32[64]{0} constant({...})
b = f32[128]{0} bitcast(p)
t = (f32[128]{0}, f32[64]{0}) tuple(b, c)
ROOT g = f32[128]{0} get-tuple-element(t), index=0""")
    model = Xla2026(target("h200"))
    assert {model.run_time(entry).exec_ns for entry in module.entry} == {0}


def test_figures_follow_the_module() -> None:
    """A fusion that was told of growing has the figures of one that was never asked about before."""
    named = _named(
        _module("""p = f32[512,512]{1,0} parameter(0)
v = f32[512]{0} parameter(1)
e = f32[512]{0} exponential(v)
w = f32[512,512]{1,0} broadcast(e), dimensions={0}
a = f32[512,512]{1,0} add(p, w)
ROOT n = f32[512,512]{1,0} negate(a)""")
    )
    model = Xla2026(target("h200"))
    consumer = named["n"]
    for name in ("a", "w", "e"):
        producer = named[name]
        expected = model.fused_run_time(producer, consumer)
        fusion = fuse(producer, consumer)
        if fusion is not consumer:
            model.forget(consumer)
        model.grown(fusion)
        assert remove_producer(producer)
        model.forget(producer)
        assert model.run_time(fusion) == Xla2026(target("h200")).run_time(fusion)
        assert model.run_time(fusion) == expected
        consumer = fusion


def test_a_lost_reduction_kernel_is_seen() -> None:
    """A reduce whose user repeats each result has no kernel of its own any more."""
    named = _named(
        _module("""p = f32[64,32,256]{2,1,0} parameter(0)
z = f32[] constant(0)
r = f32[64,32]{1,0} reduce(p, z), dimensions={2}, to_apply=sum
n = f32[64,32]{1,0} negate(r)
w = f32[64,32,4]{2,1,0} broadcast(r), dimensions={0,1}
ROOT t = (f32[64,32]{1,0}, f32[64,32,4]{2,1,0}) tuple(n, w)""")
    )
    model = Xla2026(target("h200"))
    assert model.kernels.of(named["r"]).kind == "reduction"
    assert model.kernels.pair(named["r"], named["n"]).kind == "reduction"
    assert model.kernels.pair(named["r"], named["w"]).kind == "loop"


class _Tiled(BlockLevelModel):
    """Believes that everything is tiled and takes a nanosecond."""

    TIME = RunTime(1, 2, 3, 0.0, 0.0, 1.0, 1.0)

    def run_time(self, instruction: Instruction) -> RunTime | None:
        """Always the same."""
        return self.TIME

    def fused_run_time(
        self, producer: Instruction, consumer: Instruction, *, multi_output: bool = False
    ) -> RunTime | None:
        """Always the same."""
        return self.TIME


def test_a_block_level_model_answers_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers are taken as they are."""
    named = _named(_module(TRANSPOSED_SUM))
    monkeypatch.setattr("hloopt.cost_models.block_level.BlockLevelModel", _Tiled)
    model = Xla2026(target("h200"))
    assert isinstance(model.block_level, _Tiled)
    assert model.compare(named["t"], [named["r"]]) == Comparison(2.002, 1.001)


def test_the_default_model() -> None:
    """Is this one."""
    assert find_model(DEFAULT) is Xla2026


def test_a_device_without_threads() -> None:
    """Has no kernels: the model says so instead of guessing."""
    module = _module(TRANSPOSED_SUM)
    with pytest.raises(ValueError, match="tpu-v4 runs no kernels"):
        Xla2026(target("tpu-v4")).run_time(module.entry.root)
