"""Loops along a dimension: what lacks it is computed once, halves share what they read; the pass that makes them."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.analysis.along import loop_along_of
from hloopt.analysis.backend_config import custom_name
from hloopt.analysis.region import region_of
from hloopt.ir import Instruction, Module
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.loop_along_fusion import LoopAlongFusion
from hloopt.kernels.registry import find_kernel
from hloopt.targets import find_target
from tests.codegen.harness import check_kernel
from tests.helpers.kernel_code import KernelCode

ROPE = """
  i = s32[{s}] iota(), iota_dimension=0
  c = f32[{s}] convert(i)
  part = f32[] constant(-0.0625)
  parts = f32[{s}] broadcast(part), dimensions={{}}
  ex = f32[{s}] multiply(c, parts)
  base = f32[] constant(10000)
  bases = f32[{s}] broadcast(base), dimensions={{}}
  p = f32[{s}] power(bases, ex)
  pos = f32[{t},{s}] iota(), iota_dimension=0
  pb = f32[{t},{s}] broadcast(p), dimensions={{1}}
  ang = f32[{t},{s}] multiply(pos, pb)
  cs = f32[{t},{s}] cosine(ang)
  sn = f32[{t},{s}] sine(ang)
  cb = f32[{b},{t},{h},{s}] broadcast(cs), dimensions={{1,3}}
  sb = f32[{b},{t},{h},{s}] broadcast(sn), dimensions={{1,3}}
  w = f32[{b},{t},{h},{d}] convert(x)
  a = f32[{b},{t},{h},{s}] slice(w), slice={{[0:{b}], [0:{t}], [0:{h}], [0:{s}]}}
  z = f32[{b},{t},{h},{s}] slice(w), slice={{[0:{b}], [0:{t}], [0:{h}], [{s}:{d}]}}
  ac = f32[{b},{t},{h},{s}] multiply(a, cb)
  zs = f32[{b},{t},{h},{s}] multiply(z, sb)
  zc = f32[{b},{t},{h},{s}] multiply(z, cb)
  as = f32[{b},{t},{h},{s}] multiply(a, sb)
  lo = f32[{b},{t},{h},{s}] subtract(ac, zs)
  hi = f32[{b},{t},{h},{s}] add(zc, as)
"""
JOINED = """
  o = f32[{b},{t},{h},{d}] concatenate(lo, hi), dimensions={{3}}
  ROOT r = {k}[{b},{t},{h},{d}] convert(o)
"""
PADDED = """
  zero = f32[] constant(0)
  left = f32[{b},{t},{h},{d}] pad(lo, zero), padding=0_0x0_0x0_0x0_{s}
  right = f32[{b},{t},{h},{d}] pad(hi, zero), padding=0_0x0_0x0_0x{s}_0
  o = f32[{b},{t},{h},{d}] add(left, right)
  ROOT r = {k}[{b},{t},{h},{d}] convert(o)
"""


PAIRED = """
  pairs = f32[{b},{t},{h},{s},2] reshape(w)
  even = f32[{b},{t},{h},{s},1] slice(pairs), slice={{[0:{b}], [0:{t}], [0:{h}], [0:{s}], [0:1]}}
  odd = f32[{b},{t},{h},{s},1] slice(pairs), slice={{[0:{b}], [0:{t}], [0:{h}], [0:{s}], [1:2]}}
  c1 = f32[{b},{t},{h},{s},1] broadcast(cs), dimensions={{1,3}}
  t1 = f32[{b},{t},{h},{s},1] broadcast(sn), dimensions={{1,3}}
  ec = f32[{b},{t},{h},{s},1] multiply(even, c1)
  os = f32[{b},{t},{h},{s},1] multiply(odd, t1)
  es = f32[{b},{t},{h},{s},1] multiply(even, t1)
  oc = f32[{b},{t},{h},{s},1] multiply(odd, c1)
  first = f32[{b},{t},{h},{s},1] subtract(ec, os)
  second = f32[{b},{t},{h},{s},1] add(es, oc)
  both = f32[{b},{t},{h},{s},2] concatenate(first, second), dimensions={{4}}
  o = f32[{b},{t},{h},{d}] reshape(both)
  ROOT r = {k}[{b},{t},{h},{d}] convert(o)
"""


def _sizes(kind: str, dims: tuple[int, ...]) -> dict[str, object]:
    return {"k": kind, **dict(zip("bthd", dims, strict=True)), "s": dims[-1] // 2}


def _rope(kind: str, dims: tuple[int, ...], end: str = JOINED, *, fused: bool = True) -> str:
    sizes = _sizes(kind, dims)
    shape = f"{kind}[{','.join(map(str, dims))}]"
    body = f"  x = {shape} parameter(0){(ROPE + end).format(**sizes)}"
    if not fused:
        return f"HloModule m\nENTRY e {{\n{body}}}\n"
    call = f"  x = {shape} parameter(0)\n  ROOT f = {shape} fusion(x), kind=kCustom, calls=body\n"
    return f"HloModule m\nbody {{\n{body}}}\nENTRY e {{\n{call}}}\n"


@pytest.mark.every_value
@pytest.mark.parametrize("end", [JOINED, PADDED])
@pytest.mark.parametrize(
    ("kind", "dims", "tile"),
    [
        ("bf16", (2, 9, 12, 32), {"steps": 4, "vector": 8}),
        ("f32", (1, 5, 3, 34), {"steps": 3, "vector": 1}),
        ("f16", (3, 17, 1, 2), {"steps": 1, "vector": 1}),
    ],
)
def test_halves_of_every_size(
    kind: str, dims: tuple[int, ...], tile: dict[str, int], end: str
) -> None:
    """Elements are read once, angles computed once, however many heads a thread has."""
    kernels = check_kernel(
        _rope(kind, dims, end),
        "loop-along",
        {"threads": 64, **tile},
        everywhere=end is JOINED and kind == "bf16",
    )
    code = KernelCode.of(kernels)
    assert code.reads("x") == 2
    assert len(code.calls("powf")) == tile["vector"]


def test_neighbours_that_are_turned_together() -> None:
    """The other style of rotary embeddings: even and odd places, not halves."""
    body = "\n".join(
        line
        for line in (ROPE + PAIRED).splitlines()
        if line.split(" = ")[0].strip()
        not in {"cb", "sb", "a", "z", "ac", "zs", "zc", "as", "lo", "hi"}
    )
    text = _rope("bf16", (2, 9, 12, 32)).replace
    sizes = _sizes("bf16", (2, 9, 12, 32))
    whole = text((ROPE + JOINED).format(**sizes), body.format(**sizes) + "\n")
    code = KernelCode.of(check_kernel(whole, "loop-along", {"steps": 4, "vector": 8}))
    assert code.reads("x") == 1
    assert len(code.calls("powf")) == 4


def test_many_parts_are_no_code_each() -> None:
    """A column that is padded to a row is not written out place by place."""
    text = """HloModule m
b {
  x = f32[6,5,1] parameter(0)
  i = f32[5] iota(), iota_dimension=0
  c = f32[5] cosine(i)
  cb = f32[6,5,1] broadcast(c), dimensions={1}
  y = f32[6,5,1] multiply(x, cb)
  zero = f32[] constant(0)
  ROOT p = f32[6,5,64] pad(y, zero), padding=0_0x0_0x3_60
}
ENTRY e {
  x = f32[6,5,1] parameter(0)
  ROOT f = f32[6,5,64] fusion(x), kind=kLoop, calls=b
}
"""
    found = loop_along_of(region_of(hloopt.parse(text).entry.root))
    assert not isinstance(found, str)
    assert (found.parts, found.along) == (1, 0)
    check_kernel(text, "loop-along", everywhere=False)


def test_special_values() -> None:
    """Infinities and NaN go where they belong, zeros keep their signs."""
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 16)).astype(np.float32)
    x[0, 1, 2, :4] = np.nan, np.inf, -np.inf, -0.0
    x[1] = -0.0
    check_kernel(_rope("f32", (2, 3, 4, 16)), "loop-along", inputs=[x])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("y = f32[8,4] add(x, x)", "every value that is spread has all dimensions"),
        ("y = f32[8,4] reverse(x), dimensions={1}", "every value that is spread"),
        ("y = f32[32] reshape(x)", "no two dimensions"),
    ],
)
def test_what_has_no_such_dimension(body: str, why: str) -> None:
    """The kernel says what it lacks."""
    shape = body.split()[2]
    text = f"HloModule m\nb {{\n  x = f32[8,4] parameter(0)\n  ROOT {body}\n}}\nENTRY e {{\n"
    text += f"  x = f32[8,4] parameter(0)\n  ROOT f = {shape} fusion(x), kind=kLoop, calls=b\n}}\n"
    site = Site(region_of(hloopt.parse(text).entry.root), find_target("h200"), Limits())
    found = find_kernel("loop-along").fits(site)
    assert not found
    assert why in found.reason


def _fused(text: str, **options: bool) -> tuple[Module, list[Instruction]]:
    module = hloopt.optimize(hloopt.parse(text), "priority-fusion,cse,dce,multi-output-fusion")
    LoopAlongFusion(**options).fuse(module)
    hloopt.verify(module)
    return module, [one for one in module.entry if one.opcode == "fusion"]


def test_a_rotary_embedding_is_one_kernel() -> None:
    """Its angles are no kernels of their own; every bit stays."""
    text = _rope("bf16", (4, 2048, 16, 128), fused=False)
    _, fusions = _fused(text)
    assert [custom_name(one) for one in fusions] == ["loop-along"]
    small = _rope("f32", (2, 3, 4, 8), fused=False)
    module, fusions = _fused(small, always=True)
    assert [custom_name(one) for one in fusions] == ["loop-along"]
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 8)).astype(np.float32)
    (want,), (got,) = hloopt.evaluate(hloopt.parse(small), [x]), hloopt.evaluate(module, [x])
    np.testing.assert_array_equal(got, want)


TABLE = """HloModule m
angles {{
  i = f32[{t},64] iota(), iota_dimension=0
  ROOT c = f32[{t},64] cosine(i)
}}
turned {{
  x = f32[{t},32,64] parameter(0)
  c = f32[{t},64] parameter(1)
  cb = f32[{t},32,64] broadcast(c), dimensions={{0,2}}
  ROOT y = f32[{t},32,64] multiply(x, cb)
}}
ENTRY e {{
  x = f32[{t},32,64] parameter(0)
  table = f32[{t},64] fusion(), kind=kLoop, calls=angles
  y = f32[{t},32,64] fusion(x, table), kind=kLoop, calls=turned
  {root}
}}
"""


def test_what_others_read_stays_a_kernel() -> None:
    """A table that is a result, too, is written anyway."""
    root = "ROOT t = (f32[2048,32,64], f32[2048,64]) tuple(y, table)"
    module = hloopt.parse(TABLE.format(t=2048, root=root))
    assert not LoopAlongFusion().fuse(module).steps
    module = hloopt.parse(TABLE.format(t=2048, root="ROOT z = f32[2048,32,64] copy(y)"))
    (step,) = LoopAlongFusion().fuse(module).steps
    assert (step.producer, step.fusion) == ("table", "y")
    assert step.comparison is not None
    assert step.comparison.gain_us > 0


def test_tables_that_several_kernels_read() -> None:
    """Queries and keys are turned by the same angles: each kernel computes them, with a body of its own."""
    root = """z = f32[2048,32,64] fusion(x, table), kind=kLoop, calls=again
  ROOT t = (f32[2048,32,64], f32[2048,32,64]) tuple(y, z)"""
    text = TABLE.format(t=2048, root=root)
    assert not LoopAlongFusion().fuse(hloopt.parse(text.replace("again", "turned"))).steps
    turned = text[text.index("turned") : text.index("ENTRY")]
    module = hloopt.parse(text.replace("ENTRY", turned.replace("turned", "again") + "ENTRY"))
    first, second = LoopAlongFusion().fuse(module).steps
    assert first.duplicated
    assert not second.duplicated
    hloopt.verify(module)
    assert [custom_name(one) for one in module.entry if one.opcode == "fusion"] == [
        "loop-along"
    ] * 2


def test_the_passes_limits() -> None:
    """No fuel, no threads; no model can be unknown."""
    text = TABLE.format(t=2048, root="ROOT z = f32[2048,32,64] copy(y)")
    plan = LoopAlongFusion(fuel=0).fuse(hloopt.parse(text))
    assert [refusal.decision.code for refusal in plan.refusals] == ["out-of-fuel"]
    assert not LoopAlongFusion(target="host").fuse(hloopt.parse(text)).steps
