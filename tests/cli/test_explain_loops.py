"""``hloopt explain`` about loops: brief for people, whole for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hloopt.report.rewritten import brief_shape
from tests.helpers.support import invoke

TEXT = """HloModule m

body {
  s = (s32[], f32[64], f32[64], f32[64], f32[64], f32[64], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  a = f32[64] get-tuple-element(s), index=1
  b = f32[64] get-tuple-element(s), index=2
  c = f32[64] get-tuple-element(s), index=3
  d = f32[64] get-tuple-element(s), index=4
  e = f32[64] get-tuple-element(s), index=5
  f = f32[64] get-tuple-element(s), index=6
  g = f32[64] add(a, f)
  ROOT r = (s32[], f32[64], f32[64], f32[64], f32[64], f32[64], f32[64]) tuple(next, b, c, d, e, f, g)
}

cond {
  s = (s32[], f32[64], f32[64], f32[64], f32[64], f32[64], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(50)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY main {
  x = f32[64] parameter(0)
  zero = s32[] constant(0)
  a = f32[64] negate(x)
  b = f32[64] abs(x)
  c = f32[64] cosine(x)
  d = f32[64] sine(x)
  e = f32[64] tanh(x)
  f = f32[64] sqrt(x)
  t = (s32[], f32[64], f32[64], f32[64], f32[64], f32[64], f32[64]) tuple(zero, a, b, c, d, e, f)
  loop = (s32[], f32[64], f32[64], f32[64], f32[64], f32[64], f32[64]) while(t), condition=cond, body=body
  ROOT out = f32[64] get-tuple-element(loop), index=6
}
"""


@pytest.fixture(autouse=True)
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(TEXT)


def test_a_loop_with_much_before_it_is_told_in_few_lines() -> None:
    """A long state by its first elements; all that joined for one reason in one row."""
    told = invoke("explain", "m.hlo", "loop", "--passes", "loop-fusion").stdout
    assert told.startswith("%loop = (s32[], f32[64], f32[64], f32[64], ... of 7) while\n")
    assert "%a, %b, %c, %d and 3 more  %loop  loop-fusion" in told


def test_loops_as_json() -> None:
    """Kernel, trips and refusals; none where there is one."""
    result = invoke("explain", "m.hlo", "--passes", "loop-fusion", "--json")
    (module,) = json.loads(result.stdout)["modules"]
    (loop,) = module["fusion"]["loops"]
    assert loop == {
        "computation": "main",
        "loop": "loop",
        "trips": "50 iterations",
        "kernel": "while-per-thread",
        "refusals": [],
    }
    result = invoke("explain", "m.hlo", "--passes", "loop-fusion{fuel=0}", "--json")
    (module,) = json.loads(result.stdout)["modules"]
    (loop,) = module["fusion"]["loops"]
    assert loop["kernel"] is None
    assert [row["code"] for row in loop["refusals"]] == ["out-of-fuel"]


@pytest.mark.parametrize(
    ("shape", "brief"),
    [
        ("f32[2,3]{1,0}", "f32[2,3]{1,0}"),
        ("(s32[], f32[2,3]{1,0})", "(s32[], f32[2,3]{1,0})"),
        ("(a[], b[], c[], d[], e[], /*index=5*/f[])", "(a[], b[], c[], d[], e[], f[])"),
        ("(a[2,3], (b[], b[], b[]), c[], d[], e[], f[], g[])", "(a[2,3], (b[], b[], b[]), c[], d[], ... of 7)"),
    ],
)  # fmt: skip
def test_a_shape_in_brief(shape: str, brief: str) -> None:
    """Elements of the outermost tuple are counted, whatever commas they have."""
    assert brief_shape(shape) == brief
