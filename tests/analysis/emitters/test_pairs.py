"""The kernel of a producer and its user is the one that the fusion of both has when it is made."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.analysis.emitters.kind import has_kernel
from hloopt.analysis.emitters.pairs import Kernels, KernelShape
from hloopt.analysis.emitters.scratch import fused_apart
from hloopt.cost_models.usage import UsageAnalysis
from hloopt.fusion.apply import fuse, fuse_multi_output
from hloopt.ir import Instruction, Module
from hloopt.targets import target
from hloopt.types import TupleShape
from tests.helpers.programs import programs
from tests.helpers.rarely import examples

SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"


def _module(entry: str) -> Module:
    return hloopt.parse(f"HloModule m\n{SUM}ENTRY e {{\n{entry}\n}}\n")


LARGE = "p = f32[4096,1024]{1,0} parameter(0)\nz = f32[] constant(0)\n"


@pytest.mark.parametrize(
    ("entry", "producer", "expected"),
    [
        # The same launch as the user's own, 4 elements a thread.
        ("n = f32[4096,1024]{1,0} negate(p)\nROOT r = f32[4096,1024]{1,0} abs(n)", "n", KernelShape("loop", 8192, 128)),
        # A long window keeps threads to one element each.
        ("n = f32[4096,1024]{1,0} reduce-window(p, z), window={size=1x16 pad=0_0x15_0}, to_apply=sum\nROOT r = f32[4096,1024]{1,0} abs(n)", "n", KernelShape("loop", 32768, 128)),
        # A reduce behind elementwise ops of one operand makes the kernel, behind a broadcast it does not.
        ("n = f32[4096]{0} reduce(p, z), dimensions={1}, to_apply=sum\nROOT r = f32[4096]{0} abs(n)", "n", KernelShape("reduction", 1024, 256)),
        ("n = f32[4096]{0} reduce(p, z), dimensions={1}, to_apply=sum\nROOT r = f32[4096,4]{1,0} broadcast(n), dimensions={0}", "n", KernelShape("loop", 128, 128)),
        # A transpose worth a kernel of its own, and one that is not.
        ("n = f32[1024,4096]{1,0} transpose(p), dimensions={1,0}\nROOT r = f32[1024,4096]{1,0} abs(n)", "n", KernelShape("transpose", 4096, 128)),
        ("n = f32[1024,4096]{1,0} transpose(p), dimensions={1,0}\nROOT r = f32[512,4096]{1,0} slice(n), slice={[0:512], [0:4096]}", "n", KernelShape("loop", 4096, 128)),
        # A copy of an operand is a copy in memory; of a sum it is not.
        ("n = f32[4096,1024]{1,0} negate(p)\nROOT r = f32[4096,1024]{1,0} copy(n)", "n", KernelShape("loop", 8192, 128)),
        # An update in place, of an operand or not.
        ("i = s32[] constant(3)\nn = f32[4,1024]{1,0} slice(p), slice={[0:4], [0:1024]}\nq = f32[64,1024]{1,0} parameter(1)\nROOT r = f32[64,1024]{1,0} dynamic-update-slice(q, n, i, i)", "n", KernelShape("in-place", 32, 128)),
        ("i = s32[] constant(3)\nu = f32[4,1024]{1,0} parameter(1)\nn = f32[4096,1024]{1,0} negate(p)\nROOT r = f32[4096,1024]{1,0} dynamic-update-slice(n, u, i, i)", "n", KernelShape("loop", 8192, 128)),
    ],
)  # fmt: skip
def test_kernels_of_pairs(entry: str, producer: str, expected: KernelShape) -> None:
    """Kind, blocks and threads for an H200, with the fusion made afterwards having the same."""
    module = _module(LARGE + entry)
    root = module.entry.root
    kernels = Kernels(target("h200"))
    assert kernels.pair(module.entry.by_name[producer], root) == expected
    assert Kernels(target("h200")).of(fuse(module.entry.by_name[producer], root)) == expected


_PARTS = (
    "p = f32[64]{0} parameter(0)\nq = f32[64]{0} parameter(1)\n"
    "c = f32[128]{0} concatenate(p, q), dimensions={0}\n"
)
_FIVE = "p = f32[64]{0} parameter(0)\nc = f32[320]{0} concatenate(p, p, p, p, p), dimensions={0}\n"


@pytest.mark.parametrize(
    ("entry", "before", "kind"),
    [
        # The only one behind the result, as an op and as a fusion, into an op and into a fusion.
        ("ROOT r = f32[128]{0} negate(c)", "", "concatenate"),
        ("n = f32[128]{0} negate(c)\nROOT r = f32[128]{0} abs(n)", "c n", "concatenate"),
        ("n = f32[128]{0} negate(c)\nROOT r = f32[128]{0} abs(n)", "n r", "concatenate"),
        # What is computed of it moves elements: in the user, and in the producer.
        ("s = f32[128]{0} reverse(c), dimensions={0}\nROOT r = f32[128]{0} add(c, s)", "s r", "loop"),
        ("n = f32[128]{0} negate(c)\ns = f32[128]{0} reverse(n), dimensions={0}\na = f32[128]{0} add(n, s)\nROOT r = f32[128]{0} abs(a)", "s a,n a,c a", "loop"),
        # A second one, and nothing but a part of it.
        ("d = f32[128]{0} concatenate(q, p), dimensions={0}\nROOT r = f32[128]{0} add(c, d)", "d r", "loop"),
        ("ROOT r = f32[32]{0} slice(c), slice={[0:32]}", "", "loop"),
    ],
)  # fmt: skip
def test_a_concatenate_and_its_user(entry: str, before: str, kind: str) -> None:
    """One decides where it is the only one behind the result, and nothing behind it moves elements."""
    module = _module(_PARTS + entry)
    _check_root_pair(module, before, kind)


def test_a_concatenate_of_many_operands() -> None:
    """XLA's limit is four."""
    _check_root_pair(_module(_FIVE + "ROOT r = f32[320]{0} negate(c)"), "", "loop")


def _check_root_pair(module: Module, before: str, kind: str) -> None:
    """After some have been fused, the pair of the root and what it reads first; then the fusion of both."""
    where = dict(module.entry.by_name)
    for pair in filter(None, before.split(",")):
        first, second = pair.split()
        where[second] = fuse(where[first], where[second])
    root = module.entry.root
    producer = next(entry for entry in root.operands if entry.opcode in ("concatenate", "fusion"))
    found = Kernels(target("h200")).pair(producer, root)
    assert found.kind == kind
    assert Kernels(target("h200")).of(fuse(producer, root)) == found


def test_narrow_operands_on_blackwell() -> None:
    """Threads of a B200 compute as many elements as the widest operand of both lets them read at once."""
    module = _module(
        "p = bf16[4194304]{0} parameter(0)\nq = f64[4194304]{0} parameter(1)\n"
        "n = bf16[4194304]{0} convert(q)\nROOT r = bf16[4194304]{0} add(n, p)"
    )
    root = module.entry.root
    kernels = Kernels(target("b200"))
    assert kernels.of(root).blocks == 4194304 // 16 // 128
    found = kernels.pair(module.entry.by_name["n"], root)
    assert found.blocks == 4194304 // 8 // 128
    assert Kernels(target("b200")).of(fuse(module.entry.by_name["n"], root)) == found


def test_whole_warps_scatter() -> None:
    """XLA's cost model counts whole warps of a scatter."""
    root = _module(
        "p = f32[8,4]{1,0} parameter(0)\ni = s32[5,1]{1,0} parameter(1)\nu = f32[5,1,4]{2,1,0} parameter(2)\n"
        "ROOT r = f32[8,4]{1,0} scatter(p, i, u), update_window_dims={1,2}, inserted_window_dims={},"
        " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum"
    ).entry.root
    assert Kernels(target("h200")).of(root) == KernelShape("scatter", 1, 32)


def test_what_has_no_launch() -> None:
    """A copy in memory, a sort, a call: a thread for each element of the first result."""
    kernels = Kernels(target("h200"))
    for entry in (
        "p = f32[1000]{0} parameter(0)\nROOT r = f32[1000]{0} copy(p)",
        'p = f32[1000]{0} parameter(0)\nROOT r = f32[1000]{0} custom-call(p), custom_call_target="x"',
    ):
        found = kernels.of(_module(entry).entry.root)
        assert (found.blocks, found.threads) == (8, 128)


def test_scratch_fusions_leave_no_trace() -> None:
    """Neither users nor callers of the module know of a pair that was looked at."""
    module = _module(
        LARGE + "n = f32[4096]{0} reduce(p, z), dimensions={1}, to_apply=sum\n"
        "ROOT r = f32[4096]{0} add(n, n)"
    )
    named = module.entry.by_name
    text = module.to_text()
    callers = dict(module.computations["sum"].callers)
    users = {entry: dict(entry.users) for entry in module.entry}
    with fused_apart(named["n"], named["r"], multi_output=True) as fusion:
        body = fusion.attributes["calls"]
        assert [entry.opcode for entry in body] == [
            "parameter",
            "parameter",
            "reduce",
            "add",
            "tuple",
        ]
        assert fusion.operands == (named["p"], named["z"])
    assert module.to_text() == text
    assert dict(module.computations["sum"].callers) == callers
    assert {entry: dict(entry.users) for entry in module.entry} == users


def test_elements_of_a_tuple() -> None:
    """A user that reads the results of a fusion through elements of its tuple is linked to them."""
    module = hloopt.parse("""HloModule m
f {
  a = f32[64]{0} parameter(0)
  b = f32[64]{0} negate(a)
  c = f32[64]{0} abs(a)
  ROOT t = (f32[64]{0}, f32[64]{0}) tuple(b, c)
}
ENTRY e {
  p = f32[64]{0} parameter(0)
  q = (f32[64]{0}, f32[64]{0}) fusion(p), kind=kLoop, calls=f
  x = f32[64]{0} get-tuple-element(q), index=1
  y = f32[64]{0} get-tuple-element(q), index=0
  ROOT r = f32[64]{0} subtract(x, y)
}""")
    named = module.entry.by_name
    with fused_apart(named["q"], named["r"]) as fusion:
        root = fusion.attributes["calls"].root
        assert [operand.opcode for operand in root.operands] == ["abs", "negate"]
        assert fusion.operands == (named["p"],)


@pytest.mark.parametrize("device", ["h200", "b200"])
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=programs(), data=st.data())
def test_pairs_are_what_they_become(device: str, text: str, data: st.DataObject) -> None:
    """Whatever is fused into whatever, with results of its own or not, looked at before and after."""
    module = hloopt.parse(text)
    usage = UsageAnalysis()
    kernels = Kernels(target(device), opcodes=usage.opcodes)
    for _ in range(8):
        pairs = [
            (producer, consumer)
            for producer in module.entry
            if _joins(producer) and not producer.is_root
            for consumer in producer.users
            if _joins(consumer)
        ]
        if not pairs:
            break
        producer, consumer = data.draw(st.sampled_from(pairs))
        several = data.draw(st.booleans()) and not isinstance(consumer.shape, TupleShape)
        expected = kernels.pair(producer, consumer, multi_output=several)
        assert Kernels(target(device)).pair(producer, consumer, multi_output=several) == expected
        if several:
            try:
                fusion = fuse_multi_output(producer, consumer)
            except ValueError:
                continue
        else:
            fusion = fuse(producer, consumer)
        usage.grown(fusion)
        for changed in (producer, consumer, fusion):
            kernels.forget(changed)
        if fusion is not consumer:
            usage.forget(consumer)
        assert kernels.of(fusion) == Kernels(target(device)).of(fusion)
        if not several:
            assert kernels.of(fusion) == expected


def _joins(entry: Instruction) -> bool:
    return has_kernel(entry) or entry.opcode in ("bitcast", "constant")


def test_what_was_apart_is_no_cycle() -> None:
    """It is gone when nobody has it any more, without a search for garbage."""
    module = _module(
        LARGE + "n = f32[4096,1024]{1,0} negate(p)\nROOT r = f32[4096,1024]{1,0} abs(n)"
    )
    producer, consumer = module.entry.by_name["n"], module.entry.by_name["r"]
    with fused_apart(producer, consumer) as fusion:
        body = fusion.attributes["calls"]
        entries = list(body)
        assert len(entries) == 3
    assert not list(body)
    assert not any(entry.users or entry.computation for entry in entries)
    assert not any(entry._next or entry._previous for entry in entries)
