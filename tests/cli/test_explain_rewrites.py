"""``hloopt explain`` about what passes made of an instruction before anything was fused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.support import invoke

TEXT = """HloModule heads

ENTRY main {
  x = f16[8,64] parameter(0)
  v = f16[64] parameter(1)
  one = f16[] constant(1)
  ones = f16[8,64] broadcast(one), dimensions={}
  kept = f16[8,64] multiply(x, ones)
  y = f16[8,64] negate(kept)
  value = f16[8] dot(y, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/dot"}
  ROOT out = f16[8] tanh(value)
}
"""
PASSES = "simplify{fast_math=true},dot-strength-reduction{fast_math=true},dce,priority-fusion,rename-fusions"


@pytest.fixture(autouse=True)
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(TEXT)


def explained(*words: str, passes: str = PASSES) -> Any:
    """What the JSON says of fusion."""
    result = invoke("explain", "m.hlo", *words, "--passes", passes, "--json")
    assert result.exit_code == 0, result.stderr
    (module,) = json.loads(result.stdout)["modules"]
    return module["fusion"]


def test_a_rewritten_instruction_names_rule_limit_and_ways_out() -> None:
    """The dot of the file is a convert before fusion; the pass, its limit, and what would leave the dot."""
    (found,) = explained("value")["instructions"]
    assert found["given"] == {"name": "value", "opcode": "dot", "shape": "f16[8]"}
    assert found["instruction"]["opcode"] == "convert"
    (rewrite,) = found["rewrites"]
    assert rewrite == {
        "pass": "dot-strength-reduction",
        "run": 2,
        "rule": "dot => reduce(multiply)",
        "reason": "one side is a vector, (M + N) * K = 576 is at most max_work=10000000",
        "instruction": "value",
        "opcode": "dot",
        "made": False,
        "ways": [
            "dot-strength-reduction{max_work=575}",
            "dot-strength-reduction{fast_math=false}",
            "--disable dot-strength-reduction",
        ],
    }


@pytest.mark.parametrize(
    "option",
    ["dot-strength-reduction{fast_math=true,max_work=575}", "dot-strength-reduction", "dce"],
)
def test_the_ways_out_leave_the_instruction(option: str) -> None:
    """Each of them by itself: the limit, the option, the pass left out."""
    passes = PASSES.replace("dot-strength-reduction{fast_math=true}", option)
    (found,) = explained("value", passes=passes)["instructions"]
    assert found["instruction"]["opcode"] == "dot"
    assert found["rewrites"] == []


def test_what_a_pass_made_tells_for_whom() -> None:
    """The reduce has no place in the file: the dot is what it was made for."""
    (found,) = explained("reduce")["instructions"]
    assert found["given"] is None
    (rewrite,) = found["rewrites"]
    assert rewrite["made"] is True
    assert (rewrite["instruction"], rewrite["rule"]) == ("value", "dot => reduce(multiply)")
    text = invoke("explain", "m.hlo", "reduce", "--passes", PASSES).stdout
    assert "%reduce is not in the file: passes made it" in text
    assert "run 2: dot-strength-reduction: dot => reduce(multiply) for %value (dot)" in text


def test_two_names_tell_it_of_each() -> None:
    """Only of the one that was rewritten."""
    (pair,) = explained("value", "out")["pairs"]
    first, second = pair["origins"]
    assert [rewrite["pass"] for rewrite in first["rewrites"]] == ["dot-strength-reduction"]
    assert second == {"given": {"name": "out", "opcode": "tanh", "shape": "f16[8]"}, "rewrites": []}
    text = invoke("explain", "m.hlo", "value", "out", "--passes", PASSES).stdout
    assert "%value = f16[8] dot of the file became f16[8] convert before anything was fused" in text
    assert "without it: dot-strength-reduction{max_work=575}, " in text


def test_a_rule_of_a_rule_set_is_disabled_by_its_name() -> None:
    """The name that is gone tells the rule, and the way out keeps it."""
    result = invoke("explain", "m.hlo", "kept", "--passes", PASSES)
    assert result.exit_code == 2
    assert "simplify, removed it ('A * 1 => A')" in result.stderr
    assert "--disable 'A * 1 => A' keeps it" in result.stderr
    again = invoke("explain", "m.hlo", "kept", "--passes", PASSES, "--disable", "A * 1 => A")
    assert again.exit_code == 0, again.stderr


def test_refusals_are_told_by_final_names() -> None:
    """Without a name too: what a strategy called ``fusion`` has another name after ``rename-fusions``."""
    (tmp := Path("n.hlo")).write_text("""HloModule n
ENTRY main {
  x = f32[64,512] parameter(0)
  y = f32[64,512] parameter(1)
  z = f32[64,512] parameter(2)
  a = f32[64,512] exponential(x)
  b = f32[64,512] add(a, y)
  d = f32[64,512] multiply(b, z)
  ROOT r = f32[64,512] negate(d)
}
""")
    passes = ("--passes", "priority-fusion{max_operands=2},rename-fusions")
    result = invoke("explain", str(tmp), *passes, "--json")
    (module,) = json.loads(result.stdout)["modules"]
    names = {row["producer"]: row["producer_now"] for row in module["fusion"]["refusals"]}
    assert names["fusion"] == "loop_add_fusion"
    text = invoke("explain", str(tmp), *passes, columns=120).stdout
    assert "%loop_add_fusion" in text
    assert "%fusion" not in text


def test_rewrites_are_told_where_nothing_is_fused() -> None:
    """A pipeline without a strategy explains a kernel, and what made the instruction what it is."""
    passes = ("--passes", "dot-strength-reduction{fast_math=true}")
    text = invoke("explain", "m.hlo", "value", *passes).stdout
    assert "run 1: dot-strength-reduction: dot => reduce(multiply)" in text
    assert "decided by" in text
    plain = invoke("explain", "m.hlo", "out", *passes).stdout
    assert plain.startswith("%out = f16[8]")
    assert "run 1" not in plain


def test_an_inlined_instruction_of_a_protocol_buffer_was_there() -> None:
    """No place in a text says so: its name does."""
    Path("call.hlo").write_text("""HloModule c
inner { p = f32[8] parameter(0) ROOT twice = f32[8] add(p, p) }
ENTRY main {
  x = f32[8] parameter(0)
  c = f32[8] call(x), to_apply=inner
  ROOT r = f32[8] negate(c)
}
""")
    assert invoke("optimize", "call.hlo", "-O0", "-o", "call.hlo.pb").exit_code == 0
    for name in ("call.hlo", "call.hlo.pb"):
        result = invoke("explain", name, "twice", "--passes", "call-inliner,priority-fusion")
        assert result.exit_code == 0, result.stderr
        assert "passes made it" not in result.stdout
