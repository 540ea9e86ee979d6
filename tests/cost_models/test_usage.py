"""What ops and fusions compute and read: the rules op by op, utilisations in bodies, and keeping up with changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.cost_models.counting import OpCounting, narrow
from hloopt.cost_models.usage import OperandUse, Usage, UsageAnalysis
from hloopt.cost_models.xla_2026 import FALLBACK, cycles_of, profile_name
from hloopt.fusion.apply import fuse, fuse_multi_output, remove_producer
from hloopt.fusion.joining import Joiner
from hloopt.ir import Instruction
from hloopt.ir.walk import slots_of
from hloopt.targets import target
from tests.helpers.programs import programs
from tests.helpers.rarely import examples

SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"


def _root(entry: str, more: str = "") -> Instruction:
    return hloopt.parse(f"HloModule m\n{SUM}{more}ENTRY e {{\n{entry}\n}}\n").entry.root


def _fusion(parameters: str, body: str, result: str) -> Instruction:
    inner = "\n".join(
        f"p{number} = {shape} parameter({number})"
        for number, shape in enumerate(parameters.split())
    )
    operands = ", ".join(f"p{number}" for number in range(len(parameters.split())))
    return _root(
        f"{inner}\nROOT r = {result} fusion({operands}), kind=kLoop, calls=body",
        f"body {{\n{inner}\n{body}\n}}\n",
    )


def _uses(usage: Usage) -> list[tuple[int, float]]:
    return [(use.bytes, use.utilization) for use in usage.operands]


@pytest.mark.parametrize(
    ("entry", "flops", "written", "operands"),
    [
        ("p = f32[8,4] parameter(0)\nROOT r = f32[8,4] negate(p)", 96, 128, [(128, 1)]),
        ("p = f32[8,4] parameter(0)\nROOT r = f32[8,4] copy(p)", 0, 128, [(128, 1)]),
        ("p = f32[8,4] parameter(0)\nROOT r = f32[8,4] reverse(p), dimensions={0}", 0, 128, [(128, 1)]),
        ("ROOT r = s32[8,4] iota(), iota_dimension=0", 0, 128, []),
        ("p = f32[8] parameter(0)\nROOT r = f32[8,4] broadcast(p), dimensions={0}", 0, 128, [(128, 4)]),
        ("p = f32[8,4] parameter(0)\nROOT r = f32[4,8] transpose(p), dimensions={1,0}", 0, 128, [(128, 1)]),
        ("p = f32[8,4]{0,1} parameter(0)\nROOT r = f32[4,8]{1,0} transpose(p), dimensions={1,0}", 0, 0, [(0, 1)]),
        ("p = f32[8,4] parameter(0)\nROOT r = f32[32] bitcast(p)", 0, 0, [(0, 1)]),
        ("p = f32[8,4] parameter(0)\nROOT r = f32[2,4] slice(p), slice={[0:2], [0:4]}", 0, 32, [(32, 0.25)]),
        ("p = f32[8,4] parameter(0)\ni = s32[] parameter(1)\nROOT r = f32[2,4] dynamic-slice(p, i, i), dynamic_slice_sizes={2,4}", 0, 32, [(32, 0.25), (4, 1), (4, 1)]),
        ("p = f32[8,4] parameter(0)\nu = f32[2,4] parameter(1)\ni = s32[] parameter(2)\nROOT r = f32[8,4] dynamic-update-slice(p, u, i, i)", 0, 32, [(0, 0.75), (32, 1), (4, 1), (4, 1)]),
        ("p = f32[8,4] parameter(0)\ni = s32[16,1] parameter(1)\nROOT r = f32[16,4] gather(p, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}", 0, 256, [(256, 2), (64, 1)]),
        ("p = f32[8,4] parameter(0)\ni = s32[2,1] parameter(1)\nu = f32[2,1,4] parameter(2)\nROOT r = f32[8,4] scatter(p, i, u), update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum", 24, 32, [(32, 1), (8, 1), (32, 1)]),
        ("p = f32[8,4] parameter(0)\nz = f32[] parameter(1)\nROOT r = f32[8] reduce(p, z), dimensions={1}, to_apply=sum", 72, 32, [(128, 1), (32, 8)]),
        ("p = f32[8,4] parameter(0)\nz = f32[] parameter(1)\nROOT r = f32[8,3] reduce-window(p, z), window={size=1x2}, to_apply=sum", 72, 96, [(192, 1.5), (4, 1)]),
        # Every result is the whole sum: one dimension of 4, a window of 7 with 3 of padding on both sides.
        ("p = f32[8,4] parameter(0)\nz = f32[] parameter(1)\nROOT r = f32[8,4] reduce-window(p, z), window={size=1x7 pad=0_0x3_3}, to_apply=sum", 33, 128, [(512, 4), (4, 1)]),
        ("p = f32[8,32] parameter(0)\nROOT r = f32[16,32] concatenate(p, p), dimensions={0}", 3072, 2048, [(1024, 1), (1024, 1)]),
        ("p = f32[8,32] parameter(0)\nROOT r = f32[8,64] concatenate(p, p), dimensions={1}", 3072, 2048, [(1024, 1), (1024, 1)]),
        ("p = f32[8,31] parameter(0)\nROOT r = f32[8,62] concatenate(p, p), dimensions={1}", 198400, 1984, [(992, 1), (992, 1)]),
        ("p = f32[8,4] parameter(0)\nq = f32[4,5] parameter(1)\nROOT r = f32[8,5] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}", 320, 160, [(128, 1), (80, 1)]),
        ("p = f32[1,6,6,2] parameter(0)\nq = f32[3,3,2,4] parameter(1)\nROOT r = f32[1,4,4,4] convolution(p, q), window={size=3x3}, dim_labels=b01f_01io->b01f", 2304, 256, [(288, 1), (288, 1)]),
        ("p = s4[9] parameter(0)\nROOT r = s4[9] negate(p)", 27, 5, [(5, 1)]),
    ],
)  # fmt: skip
def test_ops(entry: str, flops: int, written: int, operands: list[tuple[int, float]]) -> None:
    """Flops with 3 for an element, bytes written, and of each operand bytes read and utilisation."""
    usage = UsageAnalysis().of(_root(entry))
    assert (usage.flops, usage.bytes_written, _uses(usage)) == (flops, written, operands)
    assert usage.ir_size == 1


@pytest.mark.parametrize(
    ("device", "profile"),
    [
        ("v100", "sm_70"),
        ("a100", "sm_80"),
        ("a6000", "sm_86"),
        ("h200", "sm_90"),
        ("b200", "sm_100"),
        ("mi200", FALLBACK),
    ],
)
def test_profiles(device: str, profile: str) -> None:
    """By the device's capability; devices that were not measured take the RTX A6000's."""
    assert profile_name(target(device)) == profile
    assert cycles_of(target(device)) is cycles_of(target(device))


@pytest.mark.parametrize(
    ("device", "flops"), [("h200", 102), ("a6000", 108), ("a100", 3), ("b200", 106)]
)
def test_cycles_are_the_devices(device: str, flops: int) -> None:
    """An exponential of f16; the A100's profile has none."""
    root = _root("p = f16[] parameter(0)\nROOT r = f16[] exponential(p)")
    assert UsageAnalysis(OpCounting(cycles_of(target(device)))).of(root).flops == flops


def test_counting_is_an_option() -> None:
    """The rules of 2023: no flops for a concatenate, initial values read once, bitcasts change indices."""
    old = UsageAnalysis(
        OpCounting(
            concatenate=0, uneven_concatenate=0, repeats_init=False, bitcasts_keep_indices=False
        )
    )
    concatenate = _root(
        "p = f32[8,31] parameter(0)\nROOT r = f32[8,62] concatenate(p, p), dimensions={1}"
    )
    assert old.of(concatenate).flops == 0
    reduce = _root(
        "p = f32[8,4] parameter(0)\nz = f32[] parameter(1)\n"
        "ROOT r = f32[8] reduce(p, z), dimensions={1}, to_apply=sum"
    )
    assert old.of(reduce).operands[1] == OperandUse(4, 1.0)
    fusion = _fusion(
        "f32[8]",
        "n = f32[8] negate(p0)\nb = s32[8] bitcast(n)\nROOT r = s32[8] negate(b)",
        "s32[8]",
    )
    assert old.body(fusion).group(fusion.attributes["calls"].root) is not old.body(fusion).group(
        fusion.attributes["calls"].by_name["n"]
    )
    new = UsageAnalysis()
    assert new.body(fusion).group(fusion.attributes["calls"].root) is new.body(fusion).group(
        fusion.attributes["calls"].by_name["n"]
    )


def test_repeated_rows() -> None:
    """What is behind a broadcast is computed and read for each of its copies."""
    fusion = _fusion(
        "f32[8] f32[8,16]",
        "n = f32[8] negate(p0)\nb = f32[8,16] broadcast(n), dimensions={0}\n"
        "ROOT r = f32[8,16] add(b, p1)",
        "f32[8,16]",
    )
    usage = UsageAnalysis().of(fusion)
    assert usage.flops == 3 * 128 + 16 * 3 * 8
    assert usage.operands == (OperandUse(16 * 32, 16.0, 1), OperandUse(512, 1.0, 1))
    assert usage.ir_size == 5


def test_partly_used_rows() -> None:
    """What is behind a slice is computed in part, a whole number of elements of it."""
    fusion = _fusion(
        "f32[10]",
        "n = f32[10] negate(p0)\ns = f32[3] slice(n), slice={[0:3]}\n"
        "b = f32[3,2] broadcast(s), dimensions={0}\nROOT r = f32[3,2] negate(b)",
        "f32[3,2]",
    )
    usage = UsageAnalysis().of(fusion)
    assert usage.operands == (OperandUse(24, narrow(0.6), 1),)
    assert usage.flops == 18 + 18


def test_code_that_is_written_again() -> None:
    """Two slices of one value have its code twice; ops of the same indices share it."""
    fusion = _fusion(
        "f32[10]",
        "n = f32[10] negate(p0)\na = f32[5] slice(n), slice={[0:5]}\n"
        "b = f32[5] slice(n), slice={[5:10]}\nc = f32[5] add(a, b)\nROOT r = f32[5] multiply(c, a)",
        "f32[5]",
    )
    usage = UsageAnalysis().of(fusion)
    assert usage.operands[0] == OperandUse(40, 1.0, 2)
    # parameter and negate twice; slices, add and multiply once
    assert usage.ir_size == 8


def test_what_splits_code() -> None:
    """A pad behind two slices is written twice, and each time index computations start anew."""
    fusion = _fusion(
        "f32[8] f32[]",
        "n = f32[10] pad(p0, p1), padding=1_1\na = f32[5] slice(n), slice={[0:5]}\n"
        "b = f32[5] slice(n), slice={[5:10]}\nROOT r = f32[5] add(a, b)",
        "f32[5]",
    )
    assert UsageAnalysis().of(fusion).splits == 2
    pad = "p = f32[8] parameter(0)\nz = f32[] parameter(1)\nROOT r = f32[10] pad(p, z), padding=1_1"
    assert UsageAnalysis().of(_root(pad)).splits == 1


def test_results_updated_in_place() -> None:
    """The array under a result's update is not read; read by others, it is."""
    body = (
        "n = f32[2,4] negate(p1)\nu = f32[8,4] dynamic-update-slice(p0, n, p2, p2)\n"
        "ROOT t = (f32[8,4], f32[2,4]) tuple(u, n)"
    )
    usage = UsageAnalysis().of(_fusion("f32[8,4] f32[2,4] s32[]", body, "(f32[8,4], f32[2,4])"))
    assert usage.bytes_written == 32 + 32
    # The update is computed for both results.
    assert _uses(usage) == [(0, 0.75), (64, 2.0), (8, 2.0)]
    body = "u = f32[8,4] dynamic-update-slice(p0, p1, p2, p2)\nROOT r = f32[8,4] negate(u)"
    usage = UsageAnalysis().of(_fusion("f32[8,4] f32[2,4] s32[]", body, "f32[8,4]"))
    assert usage.bytes_written == 128
    assert _uses(usage)[0] == (96, 0.75)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        # Both elementwise: one reading serves both.
        ("n = f32[8] negate(p)\nROOT r = f32[8] add(n, p)", 1.0),
        # The consumer does not read the operand.
        ("n = f32[8] negate(p)\nROOT r = f32[8] add(n, n)", 0.0),
        # The producer reads other elements than it computes.
        ("n = f32[8] reverse(p), dimensions={0}\nROOT r = f32[8] add(n, p)", 0.0),
        # The consumer reads other elements than it computes.
        ("n = f32[8] negate(p)\nROOT r = f32[16] concatenate(n, p), dimensions={0}", 0.0),
    ],
)  # fmt: skip
def test_common_reads_of_ops(entry: str, expected: float) -> None:
    """How often a kernel of both reads an element that each of them reads."""
    root = _root(f"p = f32[8] parameter(0)\n{entry}")
    named = root.computation.by_name if root.computation else {}
    assert UsageAnalysis().common_utilization(named["n"], root, named["p"]) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("ROOT r = f32[8] multiply(p0, p1)", 1.0),
        ("q = f32[8] reverse(p0), dimensions={0}\nROOT r = f32[8] multiply(q, p1)", 0.0),
        # Both behind the same broadcast, which repeats them.
        ("a = f32[8] add(p0, p1)\nb = f32[8,4] broadcast(a), dimensions={0}\nROOT r = f32[8,4] negate(b)", 4.0),
    ],
)  # fmt: skip
def test_common_reads_of_fusions(body: str, expected: float) -> None:
    """Shared are the indices under which a fusion reads both the producer and the operand."""
    result = "f32[8,4]" if "f32[8,4]" in body else "f32[8]"
    root = _root(
        f"p = f32[8] parameter(0)\nn = f32[8] negate(p)\n"
        f"ROOT r = {result} fusion(n, p), kind=kLoop, calls=body",
        f"body {{\np0 = f32[8] parameter(0)\np1 = f32[8] parameter(1)\n{body}\n}}\n",
    )
    named = root.computation.by_name if root.computation else {}
    assert UsageAnalysis().common_utilization(named["n"], root, named["p"]) == expected


def test_slots() -> None:
    """Operands that are the producer, or elements of its tuple."""
    root = _root("p = f32[8] parameter(0)\nn = f32[8] negate(p)\nROOT r = f32[8] add(n, n)")
    assert slots_of(root.operands[0], root) == (0, 1)
    assert slots_of(root, root.operands[0]) == ()
    root = _root(
        "t = (f32[8], f32[8]) parameter(0)\na = f32[8] get-tuple-element(t), index=0\n"
        "b = f32[8] get-tuple-element(t), index=1\nROOT r = f32[8] subtract(b, a)"
    )
    assert slots_of(root.operands[0].operands[0], root) == (0, 1)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=programs(), data=st.data())
def test_growing_is_like_counting_anew(text: str, data: st.DataObject) -> None:
    """Producers join consumers in any order, now and then with results of their own; figures stay right."""
    module = hloopt.parse(text)
    usage = UsageAnalysis()
    for _ in range(12):
        pairs = _pairs(module)
        if not pairs:
            break
        producer, consumer = data.draw(st.sampled_from(pairs))
        usage.of(consumer), usage.of(producer)
        if data.draw(st.booleans()):
            fusion = fuse(producer, consumer)
            usage.grown(fusion)
            if remove_producer(producer):
                usage.forget(producer)
        else:
            try:
                fusion = fuse_multi_output(producer, consumer)
            except ValueError:
                continue
            usage.grown(fusion)
            usage.forget(producer)
        if fusion is not consumer:
            usage.forget(consumer)
        assert usage.of(fusion) == UsageAnalysis().of(fusion)


def _pairs(module: Any) -> list[tuple[Instruction, Instruction]]:
    def joins(entry: Instruction) -> bool:
        return entry.op.family not in ("tuple", "control") and entry.opcode != "parameter"

    return [
        (producer, consumer)
        for producer in module.entry
        if joins(producer) and not producer.is_root
        for consumer in producer.users
        if joins(consumer)
    ]


def test_bf16_takes_what_f32_takes_where_xla_computes_in_it() -> None:
    """XLA leaves exponentials in bf16, which no table has, and makes f32 of tanh."""
    cycles = cycles_of(target("h200"))
    assert cycles["tanh", "bf16"] == cycles["tanh", "f32"]
    assert ("exponential", "bf16") not in cycles


@pytest.mark.parametrize(
    "behind",
    [
        "bf16[64] convert(x40)",
        "f32[8,64] broadcast(x40), dimensions={1}",
        "f32[32] slice(x40), slice={[0:32]}",
        "f32[64] reverse(x40), dimensions={0}",
        "f32[96] pad(x40, z), padding=16_16",
        "f32[] reduce(x40, z), dimensions={0}, to_apply=sum",
        (
            "f32[64] gather(x40, k), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
            "index_vector_dim=1, slice_sizes={1}"
        ),
    ],
)
def test_what_follows_a_long_kernel_is_like_counting_anew(behind: str) -> None:
    """The kernel stays as it is, and what comes behind its result joins it, whatever it reads and writes."""
    shape, _ = behind.split(" ", maxsplit=1)
    steps = [f"x{at + 1} = f32[64] sine(x{at})" for at in range(40)]
    lines = [
        "x0 = f32[64] parameter(0)",
        "k = s32[64] parameter(1)",
        "z = f32[] parameter(2)",
        *steps,
        f"y0 = {behind}",
        f"y1 = {shape} negate(y0)",
        f"ROOT y2 = {shape} add(y1, y1)",
    ]
    total = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }"
    entry = hloopt.parse("HloModule m\n" + total + "\nENTRY e {\n" + "\n".join(lines) + "\n}").entry
    usage, joiner, producer = UsageAnalysis(), Joiner(), entry.by_name["x1"]
    for name in [*(f"x{at}" for at in range(2, 41)), "y0", "y1", "y2"]:
        consumer = entry.by_name[name]
        usage.of(consumer), usage.of(producer)
        fusion = joiner.fuse(producer, consumer)
        usage.grown(fusion)
        for gone in (producer, consumer):
            if gone is not fusion and (gone is consumer or remove_producer(gone)):
                usage.forget(gone)
        assert usage.of(fusion) == UsageAnalysis().of(fusion)
        producer = fusion
