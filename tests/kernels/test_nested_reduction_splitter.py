"""Fusions that would compute reductions again for each element: cut, and only those."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.backends.device_compile import compile_for_device
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.kernels.nested_reduction_splitter import NestedReductionSplitter, steps_in_loops
from hloopt.pipelines import parse_pipeline
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import judged
from tests.passes.proof import check

TRITON = 'backend_config={"fusion_backend_config":{"kind":"__triton","block_level_fusion_config":{"num_warps":"1","output_tiles":[{"sizes":["1","1","2"]}]}}}'

REDUCERS = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
largest {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}
"""


def _attention(heads: int, steps: int) -> str:
    """A step of attention in one fusion: products, a softmax of them, and columns summed."""
    h, s = heads, steps
    return f"""{REDUCERS}
attend {{
  q = f32[{h},8] parameter(0)
  k = f32[{h},{s},8] parameter(1)
  v = f32[{h},{s},8] parameter(2)
  zero = f32[] constant(0)
  least = f32[] constant(-inf)
  qb = f32[{h},{s},8] broadcast(q), dimensions={{0,2}}
  qk = f32[{h},{s},8] multiply(qb, k)
  scores = f32[{h},{s}] reduce(qk, zero), dimensions={{2}}, to_apply=add
  m = f32[{h}] reduce(scores, least), dimensions={{1}}, to_apply=largest
  mb = f32[{h},{s}] broadcast(m), dimensions={{0}}
  d = f32[{h},{s}] subtract(scores, mb)
  e = f32[{h},{s}] exponential(d)
  sum = f32[{h}] reduce(e, zero), dimensions={{1}}, to_apply=add
  sb = f32[{h},{s}] broadcast(sum), dimensions={{0}}
  p = f32[{h},{s}] divide(e, sb)
  pb = f32[{h},{s},8] broadcast(p), dimensions={{0,1}}
  pv = f32[{h},{s},8] multiply(pb, v)
  ROOT o = f32[{h},8] reduce(pv, zero), dimensions={{1}}, to_apply=add
}}

ENTRY e {{
  q = f32[{h},8] parameter(0)
  k = f32[{h},{s},8] parameter(1)
  v = f32[{h},{s},8] parameter(2)
  ROOT r = f32[{h},8] fusion(q, k, v), kind=kCustom, calls=attend, {TRITON}
}}
"""


def _fusion(body: str, result: str = "f32[64,48]", more: str = "") -> str:
    return f"""{REDUCERS}
body {{
  x = f32[64,48] parameter(0)
  zero = f32[] constant(0)
{body}
}}

ENTRY e {{
  x = f32[64,48] parameter(0)
  ROOT r = {result} fusion(x), kind=kLoop, calls=body{more}
}}
"""


ACROSS = """  s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
  t = f32[48,64] broadcast(s), dimensions={1}
  u = f32[64,48] transpose(t), dimensions={1,0}
  ROOT y = f32[64,48] subtract(x, u)"""
"""Rows reduced and used across: the kernel for whole rows does not follow a transpose."""

TWICE = """  s = f32[48] reduce(x, zero), dimensions={0}, to_apply=add
  b = f32[64,48] broadcast(s), dimensions={1}
  d = f32[64,48] subtract(x, b)
  dd = f32[64,48] multiply(d, d)
  v = f32[48] reduce(dd, zero), dimensions={0}, to_apply=add
  vb = f32[64,48] broadcast(v), dimensions={1}
  q = f32[64,48] divide(d, vb)
  ROOT t = (f32[64,48], f32[48]) tuple(q, s)"""
"""Columns normalised: a reduction within a reduction, and one of them a result, too."""

BEST = """  i = s32[64,48] iota(), iota_dimension=0
  none = s32[] constant(0)
  low = f32[] constant(-inf)
  b = (f32[48], s32[48]) reduce(x, i, low, none), dimensions={0}, to_apply=best
  v = f32[48] get-tuple-element(b), index=0
  j = s32[48] get-tuple-element(b), index=1
  vb = f32[64,48] broadcast(v), dimensions={1}
  jb = s32[64,48] broadcast(j), dimensions={1}
  at = pred[64,48] compare(i, jb), direction=EQ
  ROOT y = f32[64,48] select(at, vb, x)"""
"""A reduction with two outputs."""

BEST_REDUCER = """best {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  p = pred[] compare(a, b), direction=GE
  v = f32[] select(p, a, b)
  k = s32[] select(p, i, j)
  ROOT t = (f32[], s32[]) tuple(v, k)
}

body {"""


def _ran(text: str) -> None:
    """The emulator gives what the interpreter gives for the module as it is."""
    module = hloopt.parse(text)
    hloopt.verify(module)
    given = generate(module)
    program = compile_for_device(module, "emulator")
    try:
        got = program.run(given)
    finally:
        program.close()
    want = hloopt.evaluate(module, given)
    assert all(found.passed for found in judged(module, given, got, want))


def _split(text: str, **options: float) -> Module:
    """The pass alone, held to what all passes are held to."""
    return check(text, NestedReductionSplitter(**options), draws=2)[0]


def _fusions(module: Module) -> dict[str, list[str]]:
    """Operands of the fusions of the entry, by name."""
    return {
        one.name: [operand.name for operand in one.operands]
        for one in module.entry
        if one.opcode == "fusion"
    }


CASES = {
    "across": _fusion(ACROSS),
    "twice": _fusion(TWICE, "(f32[64,48], f32[48])"),
    "best": BEST_REDUCER.join(_fusion(BEST).split("body {", 1)).replace(
        "  zero = f32[] constant(0)\n", ""
    ),
    "attention": _attention(3, 40),
}


def test_what_is_cut() -> None:
    """Each reduction that is asked for again has a fusion of its own; those after it read its result."""
    assert _fusions(_split(CASES["across"])) == {"s": ["x"], "r": ["x", "s"]}
    found = _split(CASES["twice"])
    assert _fusions(found) == {"s": ["x"], "v": ["x", "s"], "r": ["x", "s", "v"]}
    assert _fusions(_split(CASES["best"])) == {"b": ["x"], "r": ["x", "b"]}
    found = _split(CASES["attention"])
    # The products are few enough to be summed again.
    assert list(_fusions(found)) == ["m", "sum", "r"]
    fusion = found.entry.root
    assert fusion.attributes["kind"] == "kLoop"
    assert "backend_config" not in fusion.attributes


@pytest.mark.parametrize("name", CASES)
def test_cut_fusions_compute_the_same(name: str) -> None:
    """On the emulator, every access checked."""
    _ran(CASES[name])


def test_work_grows_with_the_arrays() -> None:
    """Twice the places of a row are about twice the steps of all kernels, not four or eight times."""

    def steps(module: Module) -> float:
        bodies = [one.attributes["calls"] for one in module.entry if one.opcode == "fusion"]
        return sum(steps_in_loops(body) for body in bodies)

    for cut in (True, False):
        small, large = (hloopt.parse(_attention(2, size)) for size in (64, 256))
        if cut:
            small, large = (hloopt.optimize(module, "device") for module in (small, large))
        grown = steps(large) / steps(small)
        assert grown < 4.5 if cut else grown > 15


ROW = """  s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
  b = f32[64,48] broadcast(s), dimensions={0}
  ROOT y = f32[64,48] subtract(x, b)"""
ONCE = """  s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
  n = f32[64] negate(s)
  l = f32[64,1] reshape(n)
  ROOT y = f32[64,1] exponential(l)"""
FEW = """  f = f32[64,2] slice(x), slice={[0:64], [3:5]}
  s = f32[64] reduce(f, zero), dimensions={1}, to_apply=add
  t = f32[48,64] broadcast(s), dimensions={1}
  u = f32[64,48] transpose(t), dimensions={1,0}
  ROOT y = f32[64,48] subtract(x, u)"""

PLACED = """  s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
  line = f32[64,1] reshape(s)
  at = s32[] constant(3)
  first = s32[] constant(0)
  u = f32[64,4800] pad(x, zero), padding=0_0x0_4752
  ROOT y = f32[64,4800] dynamic-update-slice(u, line, first, at)"""


@pytest.mark.parametrize(
    "text",
    [
        _fusion(ROW),
        _fusion(ONCE, "f32[64,1]"),
        _fusion(FEW),
        _fusion(PLACED, "f32[64,4800]"),
        _fusion(ACROSS, more=', backend_config={"hloopt":{"kernel":"loop"}}'),
    ],
    ids=["a row goes on", "asked for once", "two elements", "placed once", "a kernel is written"],
)
def test_what_is_left(text: str) -> None:
    """Whole rows have a kernel; what is asked for once, or folds little, is no loss; the user's word stands."""
    module = hloopt.parse(text)
    assert not parse_pipeline("nested-reduction-splitter").run(module).changed


def test_the_limit_is_an_option() -> None:
    """What one reduction may take beside the fusion's own work."""
    text = "nested-reduction-splitter{recomputed=10}"
    assert not parse_pipeline(text).run(hloopt.parse(CASES["across"])).changed
    assert len(_fusions(_split(CASES["across"], recomputed=9))) == 2
    with pytest.raises(UsageError, match=r"recomputed=0\.0 must be above 0"):
        parse_pipeline("nested-reduction-splitter{recomputed=0}")


def test_control_edges_and_aliases_stay() -> None:
    """Cuts wait for what the fusion waits for; operands that results lie in keep their numbers."""
    text = _fusion(ACROSS).replace(
        "ROOT r = f32[64,48] fusion(x), kind=kLoop, calls=body",
        """w = f32[64,48] negate(x)
  y = f32[64,48] copy(x)
  r = f32[64,48] fusion(y), kind=kLoop, calls=body, output_to_operand_aliasing={{}: (0, {})}, control-predecessors={w}
  ROOT t = (f32[64,48], f32[64,48]) tuple(r, w)""",
    )
    module = _split(text)
    by_name = module.entry.by_name
    assert [one.name for one in by_name["s"].control_predecessors] == ["w"]
    assert [one.name for one in by_name["r"].control_predecessors] == ["w"]
    assert [one.name for one in by_name["r"].operands] == ["y", "s"]
