"""The arrays between kernels: who writes them, who reads them, which refusal keeps each in memory."""

from __future__ import annotations

import json
from pathlib import Path

import hloopt
from hloopt.fusion.advice import Advice
from hloopt.fusion.between import ArrayBetween, kept_arrays
from hloopt.fusion.explanation import Explanation
from hloopt.fusion.provenance import Provenance
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Controls
from tests.helpers.support import invoke

TEXT = """HloModule m
sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }

ENTRY main {
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  zero = f32[] constant(0)
  a = f32[64,64] add(x, y)
  e = f32[64,64] log(a)
  total = f32[64] reduce(e, zero), dimensions={1}, to_apply=sum
  dot = f32[64,64] dot(e, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  flat = f32[4096] reshape(dot)
  c = f32[4096] negate(flat)
  wide = f32[64,64] broadcast(total), dimensions={0}
  d = f32[64,64] divide(x, wide)
  ROOT out = (f32[4096], f32[64,64]) tuple(c, d)
}
"""

SOFTMAX = """HloModule m
sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }

ENTRY main {
  x = f32[64,64] parameter(0)
  zero = f32[] constant(0)
  dot = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  top = f32[64] reduce(dot, zero), dimensions={1}, to_apply=sum
  wide = f32[64,64] broadcast(top), dimensions={0}
  less = f32[64,64] subtract(dot, wide)
  e = f32[64,64] exponential(less)
  total = f32[64] reduce(e, zero), dimensions={1}, to_apply=sum
  over = f32[64,64] broadcast(total), dimensions={0}
  ROOT r = f32[64,64] divide(e, over)
}
"""


def kept(text: str, passes: str) -> list[ArrayBetween]:
    module, advice = hloopt.parse(text), Advice()
    provenance = Provenance(advice.histories)
    controls = Controls(remarks=True, advice=advice)
    parse_pipeline(passes).run(module, controls=controls, watchers=(provenance,))
    return kept_arrays(Explanation(provenance))


def test_each_array_has_its_readers_and_codes() -> None:
    """By size; what is returned and read by no kernel is no array between kernels."""
    rows = {row.node.name: row for row in kept(TEXT, "priority-fusion")}
    assert list(rows) == ["e", "dot", "total"]
    assert [row.node.byte_size for row in rows.values()] == [16384, 16384, 256]
    ((reader, edge),) = rows["dot"].readers
    assert "c" in reader.members
    assert [word.decision.code for word in edge.words] == ["producer-not-fusible"]
    found = {
        reader.members[0]: [word.decision.code for word in edge.words]
        for reader, edge in rows["e"].readers
    }
    assert found == {
        "total": ["not-into-all", "consumer-not-fusible"],
        "dot": ["consumer-not-fusible"],
    }


def test_views_are_looked_through() -> None:
    """Without fusion every result but a reshape's is an array; a reshape's reader reads what it was made of."""
    rows = {row.node.name: row for row in kept(TEXT, "")}
    assert set(rows) == {"a", "e", "total", "dot", "wide"}
    ((reader, edge),) = rows["dot"].readers
    assert (reader.members, edge.producer.name, edge.words) == (("c",), "dot", ())


def test_one_kernel_keeps_nothing() -> None:
    """A chain that becomes one kernel has no array between kernels."""
    chain = """HloModule m
ENTRY main {
  x = f32[64] parameter(0)
  a = f32[64] negate(x)
  b = f32[64] exponential(a)
  ROOT c = f32[64] sine(b)
}
"""
    assert [row.node.name for row in kept(chain, "")] == ["a", "b"]
    assert kept(chain, "priority-fusion") == []


def test_explain_names_the_refusals(tmp_path: Path) -> None:
    """The question of a user: what keeps this array in memory?"""
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    told = " ".join(invoke("explain", str(path), "--passes", "priority-fusion").stdout.split())
    assert "in memory written by read by not fused bytes" in told
    assert "consumer-not-fusible" in told
    assert "between kernels:" in told


def test_each_code_stands_once(tmp_path: Path) -> None:
    """A pass that refuses for several uses in one reader says one thing of it."""
    path = tmp_path / "m.hlo"
    path.write_text(SOFTMAX)
    (found,) = json.loads(invoke("explain", str(path), "--json").stdout)["modules"]
    rows = {(row["array"], row["reader"]): row["not_fused"] for row in found["fusion"]["arrays"]}
    assert rows["dot", "loop_divide_fusion"] == [
        {"pass": "priority-fusion", "code": "not-into-all"},
        {"pass": "multi-output-fusion", "code": "producer-not-loop-fusible"},
    ]
