"""Every kind is found in its example, with a gain whose results were compared; not in its counterexample."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import hloopt
from hloopt.cli.main import cli
from hloopt.findings import KINDS, FindingKind, kind_examples

NAMES = [kind.name for kind in KINDS]


def test_every_kind_has_an_example() -> None:
    """And every example a kind."""
    assert sorted(kind_examples()) == sorted(NAMES)


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_it_is_found_in_its_example(kind: FindingKind) -> None:
    """The gain is positive, and the results of both modules were compared, unless the text leaves values out."""
    row = kind_examples()[kind.name]
    found = hloopt.why(hloopt.parse(row.example, kind.name), row.target, kinds=[kind.name])
    assert [one.kind for one in found.rows] == [kind.name]
    gain = found.rows[0].gain
    assert gain.saved > 0
    assert gain.measure == kind.measure
    verified = ("not verified",) if "{...}" in row.example else ("equal", "within tolerance")
    assert gain.verdict in verified, gain.reason
    assert found.rows[0].remedies


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_it_is_not_found_in_its_counterexample(kind: FindingKind) -> None:
    """Which is much like the example."""
    row = kind_examples()[kind.name]
    found = hloopt.why(hloopt.parse(row.counterexample, kind.name), row.target, kinds=[kind.name])
    assert not found.rows


def test_json_is_that_of_the_record() -> None:
    """It goes through JSON, and a finding names its place, cost, cause, remedies and gain."""
    row = kind_examples()["one-hot-product"]
    found = hloopt.why(hloopt.parse(row.example), kinds=["one-hot-product"])
    made = json.loads(json.dumps(found.to_json()))
    (finding,) = made["findings"]
    assert finding["instruction"] == "r"
    assert finding["computation"] == "main"
    assert finding["cost"]["bound"] == "launch"
    assert finding["cost"]["share"] == pytest.approx(1)
    assert finding["gain"]["after"] < finding["gain"]["before"] / 5
    assert {one["way"] for one in finding["remedies"]} == {"model"}
    assert made["seconds"] == pytest.approx(sum(one["seconds"] for one in made["kernels"]))


def test_the_module_stays_as_it_is() -> None:
    """Passes and changes work on copies."""
    module = hloopt.parse(kind_examples()["loop-product"].example)
    before = module.to_text()
    hloopt.why(module)
    assert module.to_text() == before


def test_unknown_kinds_are_refused() -> None:
    """With the one that was meant."""
    module = hloopt.parse(kind_examples()["copy"].example)
    with pytest.raises(hloopt.UsageError, match="did you mean 'copy'"):
        hloopt.why(module, kinds=["copi"])


def test_the_state_of_a_loop_is_cut_where_it_is_long(tmp_path: Path) -> None:
    """The text says how many elements there are; the JSON has them all."""
    shapes = ["s32[]", *["f32[16384]"] * 8]
    state = f"({', '.join(shapes)})"
    values = ", ".join(f"y{at}" for at in range(8))
    lines = [
        f"x{at} = f32[16384] get-tuple-element(s), index={at + 1}\n  y{at} = f32[16384] sine(x{at})"
        for at in range(8)
    ]
    text = f"""HloModule steps
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  {"  ".join(line + chr(10) for line in lines)}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = {state} tuple(j, {values})
}}
condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(50)
  ROOT c = pred[] compare(i, most), direction=LT
}}
ENTRY main {{
  {"  ".join(f"p{at} = f32[16384] parameter({at}){chr(10)}" for at in range(8))}
  zero = s32[] constant(0)
  state = {state} tuple(zero, {", ".join(f"p{at}" for at in range(8))})
  ROOT loop = {state} while(state), condition=condition, body=body
}}
"""
    path = tmp_path / "steps.hlo"
    path.write_text(text)
    words = ["why", str(path), "--target", "h200", "--kind", "loop-kernels"]
    shown = " ".join(CliRunner().invoke(cli, words).stdout.split())
    assert "(while (s32[], f32[16384], f32[16384], f32[16384], ... of 9))" in shown
    (module,) = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)["modules"]
    (found,) = module["findings"]
    assert found["shape"].count("f32[16384]") == 8


def test_the_kinds_as_json() -> None:
    """Each kind once, in the order of the table."""
    made = json.loads(CliRunner().invoke(cli, ["why", "--kinds", "--json"]).stdout)
    assert [one["kind"] for one in made["kinds"]] == NAMES
    assert {one["measure"] for one in made["kinds"]} == {
        "time",
        "memory",
        "accuracy",
        "compile time",
    }


def test_the_list_of_kinds_takes_nothing_else() -> None:
    """A file, or a kind meant by ``--kinds NAME``, is not passed over."""
    for given in (["copy"], ["--kind", "copy"]):
        result = CliRunner().invoke(cli, ["why", "--kinds", *given])
        assert result.exit_code == 2
        assert "--kind NAME looks for one kind" in result.stderr
