"""What may join a Triton fusion, and what becomes of its backend_config."""

from __future__ import annotations

import json

import pytest

import hloopt
from hloopt.analysis.backend_config import (
    BlockParameters,
    backend_kind,
    block_parameters,
    is_triton,
    written_parameters,
)
from hloopt.cost_models.registry import find_model
from hloopt.fusion.decision import Decision
from hloopt.fusion.limits import KernelLimits
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.fusion.triton import TritonFusions, block_level_of
from hloopt.fusion.triton_support import unsupported_by_triton, unsupported_target
from hloopt.ir import Module
from hloopt.targets import Target, target
from hloopt.types import Verbatim

H200, A100 = target("h200"), target("a100")
CONFIG = (
    '{"operation_queue_id":"0","fusion_backend_config":{"kind":"__triton","block_level_fusion_config":'
    '{"num_warps":"1","output_tiles":[{"sizes":["1","32"]}],"num_ctas":1,"num_stages":1,'
    '"is_tma_allowed":false,"is_warp_specialization_allowed":false,"waves_per_eu":0}},'
    '"force_earliest_schedule":false,"reification_cost":[],"device_type":"DEVICE_TYPE_INVALID"}'
)
# Each row of p by its sum, as XLA's softmax rewriter makes it.
TRITON = """region { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
body {
  p = f32[48,100] parameter(0)
  z = f32[] constant(0)
  r = f32[48] reduce(p, z), dimensions={1}, to_apply=region
  w = f32[48,100] broadcast(r), dimensions={0}
  ROOT d = f32[48,100] divide(p, w)
}
"""
FUSION = f"fusion(q), kind=kCustom, calls=body, backend_config={CONFIG}"


def _module(entry: str, more: str = "") -> Module:
    return hloopt.parse(f"HloModule m\n{more}{TRITON}ENTRY e {{\n{entry}\n}}\n")


def _into(producer: str, *operands: str, more: str = "", device: str = "h200") -> Decision:
    """Whether ``q``, made by ``producer``, may join the Triton fusion that reads it."""
    parameters = "\n".join(
        f"x{number} = {shape} parameter({number})" for number, shape in enumerate(operands)
    )
    module = _module(f"{parameters}\nq = {producer}\nROOT f = f32[48,100] {FUSION}", more)
    named = module.entry.by_name
    model = find_model("xla-2026")(target(device))
    return TritonFusions(model, KernelLimits()).decide(named["q"], named["f"])


def test_an_elementwise_producer_joins() -> None:
    """It is computed for each tile that is read."""
    decision = _into("f32[48,100] exponential(x0)", "f32[48,100]")
    assert decision


def test_others_are_none_of_its_business() -> None:
    """Without a Triton fusion there are no tiles; other custom fusions are somebody else's."""
    entry = """x = f32[48,100] parameter(0)
q = f32[48,100] negate(x)
ROOT f = f32[48,100] fusion(q), kind=kCustom, calls=body"""
    model = find_model("xla-2026")(H200)
    named = _module(entry).entry.by_name
    assert TritonFusions(model, KernelLimits()).parameters(named["q"], named["f"]) is None
    other = f"{entry}, backend_config={CONFIG.replace('__triton', '__triton_gemm')}"
    named = _module(other).entry.by_name
    assert TritonFusions(model, KernelLimits()).parameters(named["q"], named["f"]) is None


REFUSED = {
    "a gather": (
        """f32[48,100] gather(x0, x1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
  index_vector_dim=1, slice_sizes={1,100}""",
        ("f32[90,100]", "s32[48,1]"),
        "triton-unsupported",
        "Triton kernels have no gather",
    ),
    "an unsigned source": (
        "f32[48,100] convert(x0)",
        ("u32[48,100]",),
        "triton-unsupported",
        "Triton kernels have no conversion from u32[48,100] to f32[48,100]",
    ),
    "a function it lacks": (
        "f32[48,100] logistic(x0)",
        ("f32[48,100]",),
        "triton-unsupported",
        "Triton kernels have no logistic of f32",
    ),
    "a dynamic slice": (
        "f32[48,100] dynamic-slice(x0, x1, x1), dynamic_slice_sizes={48,100}",
        ("f32[90,200]", "s32[]"),
        "triton-unsupported",
        "Triton kernels have no dynamic-slice",
    ),
    "a sum of two dimensions": (
        "f32[48,100] reduce(x0, x1), dimensions={0,2}, to_apply=region",
        ("f32[3,48,4,100]", "f32[]"),
        "triton-unsupported",
        "Triton kernels have no reduce of several dimensions",
    ),
    "a product over pairs": (
        "f32[48,100] reduce(x0, x1), dimensions={0}, to_apply=other",
        ("f32[3,48,100]", "f32[]"),
        "triton-unsupported",
        "Triton kernels have no reduce with sign of f32",
    ),
    "rows made of others": (
        "f32[48,100] reshape(x0)",
        ("f32[75,64]",),
        "triton-not-tiled",
        (
            "the kernel of both cannot be cut into tiles: no tile of reshape q is one at"
            " (((d0 * 100 + d1) / 64), ((d0 * 100 + d1) % 64))"
        ),
    ),
}  # fmt: skip
OTHER = """other { a = f32[] parameter(0) b = f32[] parameter(1) s = f32[] sign(a) ROOT c = f32[] add(s, b) }
"""


@pytest.mark.parametrize("name", REFUSED)
def test_what_triton_cannot_do_stays_outside(name: str) -> None:
    """Ops, element types, and indices that are no tiles."""
    producer, operands, code, words = REFUSED[name]
    decision = _into(producer, *operands, more=OTHER)
    assert (decision.code, decision.reason) == (code, words)


def test_a_fusion_joins_with_its_whole_body() -> None:
    """And does not where one of its ops is not Triton's."""
    inner = """inner {{ a = f32[48,100] parameter(0) b = f32[48,100] negate(a)
  ROOT c = f32[48,100] {}(b) }}
"""
    call = "f32[48,100] fusion(x0), kind=kLoop, calls=inner"
    decision = _into(call, "f32[48,100]", more=inner.format("tanh"))
    assert decision
    decision = _into(call, "f32[48,100]", more=inner.format("sign"))
    assert decision.reason == "Triton kernels have no sign of f32"


def test_older_and_other_devices_run_no_triton() -> None:
    """Before Ampere, and on anything but a GPU."""
    assert not unsupported_target(A100)
    assert not unsupported_target(target("mi200"))
    assert "V100" in unsupported_target(target("v100"))
    assert unsupported_target(target("tpu-v4"))
    decision = _into("f32[48,100] negate(x0)", "f32[48,100]", device="v100")
    assert decision.code == "triton-unsupported"


TYPES = [
    ("f8e4m3fn[4] convert(x)", "f32[4]", H200, ""),
    ("f8e4m3fn[4] convert(x)", "f32[4]", A100, "conversion from f32[4] to f8e4m3fn[4]"),
    ("f8e5m2[4] convert(x)", "f32[4]", A100, ""),
    ("f8e5m2[4] convert(x)", "f8e4m3fn[4]", H200, ""),
    ("s32[4] convert(x)", "f8e5m2[4]", H200, "conversion from f8e5m2[4] to s32[4]"),
    ("s8[4] convert(x)", "s4[4]", H200, ""),
    ("s32[4] convert(x)", "s4[4]", H200, "conversion from s4[4] to s32[4]"),
    ("s4[4] convert(x)", "s8[4]", H200, "conversion from s8[4] to s4[4]"),
    ("pred[4] not(x)", "pred[4]", H200, ""),
    ("pred[4] compare(x, x), direction=LT", "s16[4]", H200, ""),
    ("pred[4] compare(x, x), direction=LT", "u16[4]", H200, "compare with u16[4]"),
    ("f16[4] divide(x, x)", "f16[4]", H200, ""),
    ("f16[4] sign(x)", "f16[4]", H200, "sign of f16"),
    ("bf16[4] round-nearest-even(x)", "bf16[4]", H200, ""),
    ("bf16[4] round-nearest-afz(x)", "bf16[4]", H200, "round-nearest-afz of bf16"),
    ("f32[4] divide(x, x)", "f32[4]", H200, ""),
    ("s32[4] divide(x, x)", "s32[4]", H200, ""),
    ("s32[4] remainder(x, x)", "s32[4]", H200, ""),
    ("s32[4] shift-left(x, x)", "s32[4]", H200, "shift-left of s32"),
    ("c64[4] negate(x)", "c64[4]", H200, "negate with c64[4]"),
    ("f8e5m2[4] negate(x)", "f8e5m2[4]", H200, "negate of f8e5m2"),
    ("f8e5m2[4] abs(x)", "f8e5m2[4]", H200, ""),
    ("s4[2,2] reshape(x)", "s4[4]", H200, "reshape of s4"),
    ("f32[4] iota(), iota_dimension=0", "f32[4]", H200, ""),
    ("f8e5m2[4] iota(), iota_dimension=0", "f32[4]", H200, "iota of f8e5m2"),
    ("f32[2] constant({1,2})", "f32[4]", H200, "constants like f32[2]"),
    ("f32[1,1] constant({{1}})", "f32[4]", H200, ""),
    ("f16[8] bitcast(x)", "f32[4]", H200, "bitcast to another number of elements"),
]


@pytest.mark.parametrize(("op", "operand", "device", "words"), TYPES)
def test_ops_by_element_type(op: str, operand: str, device: Target, words: str) -> None:
    """As in XLA's table; what compare is about is its operands' type."""
    module = hloopt.parse(f"HloModule m\nENTRY e {{ x = {operand} parameter(0) ROOT r = {op} }}\n")
    assert unsupported_by_triton(module.entry.root, device) == words


def test_a_pair_has_a_limit_of_operands() -> None:
    """Four operands and two results; shared memory and the number of reductions mean nothing here."""
    more = """four { a = f32[48,100] parameter(0) b = f32[48,100] parameter(1)
  c = f32[48,100] parameter(2) d = f32[48,100] parameter(3) e = f32[48,100] add(a, b)
  g = f32[48,100] add(c, d) ROOT h = f32[48,100] add(e, g) }
"""
    entry = f"""x0 = f32[48,100] parameter(0)
x1 = f32[48,100] parameter(1)
x2 = f32[48,100] parameter(2)
x3 = f32[48,100] parameter(3)
q = f32[48,100] fusion(x0, x1, x2, x3), kind=kLoop, calls=four
ROOT f = f32[48,100] {FUSION}"""
    named = _module(entry, more).entry.by_name
    model = find_model("xla-2026")(H200)
    five = TritonFusions(model, KernelLimits(max_operands=5))
    decision = five.decide(named["q"], named["f"])
    assert (decision.code, decision.limit, decision.actual) == ("operands", 5, 6)
    six = KernelLimits(max_operands=6, max_reductions=0, shared_memory=0)
    assert TritonFusions(model, six).decide(named["q"], named["f"])


def test_a_constant_of_one_element_has_a_kernel() -> None:
    """Of more elements there is none: Triton's blocks are computed, not read from the code."""
    one = hloopt.parse("HloModule m\nENTRY e { ROOT c = f32[1] constant({1}) }\n").entry.root
    two = hloopt.parse("HloModule m\nENTRY e { ROOT c = f32[2] constant({1,2}) }\n").entry.root
    assert not unsupported_by_triton(one, H200)
    assert unsupported_by_triton(two, H200)


def test_any_model_can_be_asked() -> None:
    """One that prices no Triton kernels gets a block-level model of its own."""
    old, new = find_model("xla-2023")(H200), find_model("xla-2026")(H200)
    assert block_level_of(new) is block_level_of(new)
    assert block_level_of(old) is not block_level_of(old)
    named = _module(f"x = f32[48,100] parameter(0)\nq = f32[48,100] negate(x)\n"
                    f"ROOT f = f32[48,100] {FUSION}").entry.by_name  # fmt: skip
    assert TritonFusions(old, KernelLimits()).decide(named["q"], named["f"])


def test_fused_pairs_have_the_best_tiles() -> None:
    """Whole rows, once the exponentials are computed in the kernel: reading them twice would cost them twice."""
    module = _module(f"""x = f32[48,100] parameter(0)
q = f32[48,100] exponential(x)
ROOT f = f32[48,100] {FUSION}""")
    PriorityFusion().fuse(module)
    hloopt.verify(module)
    fusion = module.entry.root
    assert [operand.name for operand in fusion.operands] == ["x"]
    assert is_triton(fusion)
    want = CONFIG.replace('"sizes":["1","32"]', '"sizes":["1","100"]')
    assert str(fusion.attributes["backend_config"]) == want


def test_a_user_of_a_triton_fusion_becomes_one() -> None:
    """A new fusion has the configuration XLA writes, whatever form the producer's has."""
    entry = f"""q = f32[48,100] parameter(0)
f = f32[48,100] {FUSION}
ROOT n = f32[48,100] negate(f)"""
    module = _module(entry)
    PriorityFusion().fuse(module)
    hloopt.verify(module)
    fusion = module.entry.root
    assert (fusion.opcode, fusion.attributes["kind"]) == ("fusion", "kCustom")
    parameters = block_parameters(fusion)
    assert parameters is not None
    expected = CONFIG.replace(
        '"sizes":["1","32"]', f'"sizes":["1","{parameters.output_tiles[0][1]}"]'
    )
    assert str(fusion.attributes["backend_config"]) == expected


def test_what_is_refused_is_reported() -> None:
    """With the reason, by the strategy."""
    module = _module(f"""x = u32[48,100] parameter(0)
q = f32[48,100] convert(x)
ROOT f = f32[48,100] {FUSION}""")
    plan = PriorityFusion().fuse(module)
    assert [(entry.producer, entry.decision.code) for entry in plan.refusals] == [
        ("q", "triton-unsupported")
    ]
    assert not plan.steps


def test_other_parts_of_a_configuration_stay() -> None:
    """Also where it is a string, as older dumps have it."""
    module = _module(f"q = f32[48,100] parameter(0)\nROOT f = f32[48,100] {FUSION}")
    fusion = module.entry.root
    own = json.loads(CONFIG) | {"operation_queue_id": "3", "hloopt": {"kernel": "row"}}
    for text in (json.dumps(own), json.dumps(json.dumps(own))):
        fusion.attributes["backend_config"] = Verbatim(text)
        written = written_parameters(fusion, BlockParameters(((2, 64),), 4))
        assert str(written).startswith('"') == text.startswith('"')
        fusion.attributes["backend_config"] = written
        assert block_parameters(fusion) == BlockParameters(((2, 64),), 4)
        value = json.loads(str(written))
        value = json.loads(value) if isinstance(value, str) else value
        assert value["operation_queue_id"] == "3"
        assert value["hloopt"] == {"kernel": "row"}
        assert value["fusion_backend_config"].keys() == {"kind", "block_level_fusion_config"}


@pytest.mark.parametrize("config", [
    "{}",
    '{"fusion_backend_config":{"kind":"__triton"}}',
    '{"fusion_backend_config":[]}',
    '{"fusion_backend_config":{"kind":"__triton","block_level_fusion_config":{"num_warps":"1"}}}',
    CONFIG.replace('"32"', '"none"'),
    CONFIG.replace('"32"', '"0"'),
    CONFIG.replace('"num_warps":"1"', '"num_warps":"0"'),
    "no JSON",
])  # fmt: skip
def test_parameters_that_make_no_sense_are_none(config: str) -> None:
    """Kind and parameters are read apart: without parameters it is a Triton fusion all the same."""
    module = _module(f"q = f32[48,100] parameter(0)\nROOT f = f32[48,100] {FUSION}")
    fusion = module.entry.root
    assert block_parameters(fusion) == BlockParameters(((1, 32),))
    fusion.attributes["backend_config"] = Verbatim(config)
    assert block_parameters(fusion) is None
    assert backend_kind(fusion) == ("__triton" if "__triton" in config else "")
