"""Arguments that a kernel does nothing with but transpose."""

from __future__ import annotations

import hloopt
from hloopt.findings import Findings

DOT = """HloModule attention, entry_computation_layout={{(f32[8,128,4,32]{{3,2,1,0}}, f32[8,128,4,32]{{3,2,1,0}})->f32[8,4,128,128]{{3,2,1,0}}}}{more}
ENTRY main {{
  q = f32[8,128,4,32]{{3,2,1,0}} parameter(0)
  k = f32[8,128,4,32]{{3,2,1,0}} parameter(1)
  ROOT s = f32[8,4,128,128]{{3,2,1,0}} dot(q, k), lhs_batch_dims={{0,2}}, rhs_batch_dims={{0,2}},
      lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}
}}
"""
SORT = """HloModule m
less {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }}
ENTRY main {{
  x = f32[512,1024] parameter(0)
  t = f32[1024,512] transpose(x), dimensions={{1,0}}
  s = f32[1024,512] sort(t), dimensions={{1}}, to_apply=less
  {rest}
}}
"""


def layouts(text: str, target: str = "h200") -> Findings:
    return hloopt.why(hloopt.parse(text), target, kinds=["argument-layout"])


def test_a_product_wants_its_factors_in_another_order() -> None:
    """Batch dimensions first: both factors are found, and the results are equal."""
    found = layouts(DOT.format(more=""))
    assert {row.instruction for row in found.rows} == {"q", "k"}
    for row in found.rows:
        assert row.gain.verdict in ("equal", "within tolerance")
        assert "in the order 0, 2" in row.why
        assert "[8, 4, " in row.remedies[0].text


def test_the_module_stays_as_it_is() -> None:
    """Its layout, too."""
    module = hloopt.parse(DOT.format(more=""))
    before = module.to_text()
    hloopt.why(module, kinds=["argument-layout"])
    assert module.to_text() == before


def test_a_donated_argument_keeps_the_layout_of_its_result() -> None:
    """Their memory is the same."""
    rest = "ROOT r = (f32[512,1024], f32[1024,512]) tuple(x, s)"
    text = SORT.format(rest=rest)
    donated = text.replace(
        "HloModule m", "HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }"
    )
    assert layouts(SORT.format(rest="ROOT n = f32[1024,512] negate(s)")).rows
    assert not layouts(donated).rows


def test_an_argument_that_is_read_both_ways_stays() -> None:
    """Another order only moves the copy."""
    rest = """p = f32[512,1024] sort(x), dimensions={1}, to_apply=less
  ROOT r = (f32[512,1024], f32[1024,512]) tuple(p, s)"""
    assert not layouts(SORT.format(rest=rest)).rows


def test_the_host_is_not_asked() -> None:
    """What moves elements there pays little for where they lie."""
    assert not layouts(DOT.format(more=""), "host").rows
