"""Two compilations side by side: which module loses, and the first decision that differs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import hloopt
from hloopt.cli.main import cli
from hloopt.report.console import capturing
from hloopt.report.parted import PlansParted
from hloopt.report.parted_text import show_parted

_LINE = 'metadata={op_name="jit(f)/exp" source_file="f.py" source_line=7}'
_GIVEN = f"""HloModule jit_f

ENTRY main {{
  x = f32[1000,1000] parameter(0)
  one = f32[] constant(1)
  ones = f32[1000,1000] broadcast(one), dimensions={{}}
  same = f32[1000,1000] multiply(x, ones)
  e = f32[1000,1000] exponential(same), {_LINE}
  ROOT r = f32[1000,1000] negate(e), metadata={{op_name="jit(f)/neg" source_file="f.py" source_line=8}}
}}
"""
_SIMPLE = f"""HloModule jit_f

ENTRY main {{
  x = f32[1000,1000] parameter(0)
  e = f32[1000,1000] exponential(x), {_LINE}
  ROOT r = f32[1000,1000] negate(e), metadata={{op_name="jit(f)/neg" source_file="f.py" source_line=8}}
}}
"""
_FUSED = f"""HloModule jit_f, is_scheduled=true

body {{
  p = f32[1000,1000] parameter(0)
  e = f32[1000,1000] exponential(p), {_LINE}
  ROOT n = f32[1000,1000] negate(e), metadata={{op_name="jit(f)/neg" source_file="f.py" source_line=8}}
}}

ENTRY main {{
  x = f32[1000,1000] parameter(0)
  ROOT r = f32[1000,1000] fusion(x), kind=kLoop, calls=body
}}
"""
_APART = _SIMPLE.replace("HloModule jit_f", "HloModule jit_f, is_scheduled=true")
_SIMPLIFIED = "simplification.after_algsimp.before_dce"
_JOINED = "fusion.after_priority-fusion.before_cse"
_NUMBERED = "fusion.after_pipeline-start.before_priority-fusion"


def dump(folder: Path, stages: dict[str, str], last: str, first: str = _GIVEN) -> Path:
    """A dump directory with the module before optimisation, after passes, and in the end."""
    folder.mkdir()
    start = folder / "module_0003.jit_f"
    Path(f"{start}.before_optimizations.txt").write_text(first)
    for number, (label, text) in enumerate(stages.items()):
        Path(f"{start}.{number:04d}.{label}.txt").write_text(text)
    Path(f"{start}.sm_9.0_gpu_after_optimizations.txt").write_text(last)
    return folder


def parted(before: Path | hloopt.Module, after: Path | hloopt.Module) -> PlansParted:
    """Both, compared for a GPU."""
    found = hloopt.why(before, after=after)
    assert isinstance(found, PlansParted)
    return found


def shown(found: PlansParted) -> str:
    """What is printed, in 80 columns, with single spaces."""
    console = capturing(80)
    show_parted(found, console)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    return " ".join(text.split())


def test_a_pass_of_one_side_alone(tmp_path: Path) -> None:
    """One compilation fuses and the other does not: the pass, what it made, and where time is lost."""
    one = dump(tmp_path / "one", {_SIMPLIFIED: _SIMPLE, _JOINED: _FUSED}, _FUSED)
    other = dump(tmp_path / "other", {_SIMPLIFIED: _SIMPLE, _NUMBERED: _SIMPLE}, _APART)
    (row,) = parted(one, other).rows
    assert row.first is not None
    assert row.first.parting is not None
    assert row.first.kind == "fusion"
    assert row.first.parting.common == (1, 2)  # the last, with the schedule, is the same program
    assert row.first.parting.after is None
    text = shown(parted(one, other))
    assert "by priority-fusion (pipeline fusion)" in text
    assert "where %r becomes %e, %r at f.py:8" in text
    assert "%e and %r at f.py:8 are in one kernel before only" in text


def test_sides_that_meet_again(tmp_path: Path) -> None:
    """A pass at another time is no difference: both part behind the last stage that both have."""
    late = _GIVEN.replace("negate(e)", "negate(e), sharding={replicated}")
    one = dump(tmp_path / "one", {_SIMPLIFIED: _SIMPLE, _JOINED: _FUSED}, _FUSED)
    stages = {"early.after_annotate.before_algsimp": late, _SIMPLIFIED: _SIMPLE}
    other = dump(tmp_path / "other", stages, _APART)
    (row,) = parted(one, other).rows
    assert row.first is not None
    assert row.first.parting is not None
    assert row.first.parting.common == (1, 3)
    assert row.first.parting.before is not None
    assert row.first.parting.before.pass_name == "priority-fusion"


def test_the_same_pass_with_another_result(tmp_path: Path) -> None:
    """Both run it: what either result has is told, with the line."""
    wide = _SIMPLE.replace("exponential(x)", "exponential-minus-one(x)")
    last = wide.replace("HloModule jit_f", "HloModule jit_f, is_scheduled=true")
    one = dump(tmp_path / "one", {_SIMPLIFIED: _SIMPLE}, _APART)
    other = dump(tmp_path / "other", {_SIMPLIFIED: wide}, last)
    (row,) = parted(one, other).rows
    assert row.first is not None
    assert row.first.parting is not None
    assert (row.first.kind, row.first.parting.same_pass) == ("rewriting", True)
    text = shown(parted(one, other))
    assert "both run this pass, with different results" in text
    assert "%e: opcode exponential before, exponential-minus-one after at f.py:7" in text


def test_passes_in_another_order(tmp_path: Path) -> None:
    """Both sides run both, with other results, and one a third behind them: what comes next on either is told."""
    tanh, sine = (_SIMPLE.replace("exponential(x)", f"{op}(x)") for op in ("tanh", "sine"))
    last = tanh.replace("HloModule jit_f", "HloModule jit_f, is_scheduled=true")
    first, second = "one.after_first.before_second", "one.after_second.before_third"
    stages = {first: _SIMPLE, second: sine, "one.after_third.before_end": tanh}
    one = dump(tmp_path / "one", stages, last)
    other = dump(
        tmp_path / "other", {second: _FUSED, first: _APART.replace("negate", "abs")}, _FUSED
    )
    (row,) = parted(one, other).rows
    assert row.first is not None
    parting = row.first.parting
    assert parting is not None
    assert [made and made.pass_name for made in (parting.before, parting.after)] == [
        "first",
        "second",
    ]
    assert "third" in parting.alone[0]
    assert "by first (pipeline one)" in shown(parted(one, other))


def test_programs_that_differ_before_any_pass(tmp_path: Path) -> None:
    """Then no decision of a compiler comes first."""
    changed = _GIVEN.replace("constant(1)", "constant(2)")
    one = dump(tmp_path / "one", {_SIMPLIFIED: _SIMPLE}, _APART)
    other = dump(tmp_path / "other", {_SIMPLIFIED: changed}, changed, first=changed)
    (row,) = parted(one, other).rows
    assert row.first is not None
    assert row.first.kind == "program"
    assert "the programs differ before any pass" in shown(parted(one, other))


def test_stages_that_do_not_begin_with_the_program(tmp_path: Path) -> None:
    """Nothing is known of what was given then: the final modules say what they can."""
    one = dump(tmp_path / "one", {_SIMPLIFIED: _SIMPLE, _JOINED: _FUSED}, _FUSED)
    other = dump(tmp_path / "other", {_SIMPLIFIED: _SIMPLE}, _APART)
    (one / "module_0003.jit_f.before_optimizations.txt").unlink()
    (row,) = parted(one, other).rows
    assert row.first is not None
    assert (row.first.kind, row.first.parting) == ("fusion", None)


def test_two_modules_that_have_nothing_in_common() -> None:
    """They were given as a pair."""
    other = _GIVEN.replace("jit_f", "jit_g").replace("[1000,1000]", "[1000]")
    (row,) = parted(hloopt.parse(_FUSED), hloopt.parse(other)).rows
    assert row.first is not None


def test_final_modules_alone() -> None:
    """Without stages: the pair that one side fuses, with hloopt's own decision and its prices."""
    (row,) = parted(hloopt.parse(_FUSED), hloopt.parse(_APART)).rows
    assert row.first is not None
    assert row.first.pair is not None
    assert row.first.kind == "fusion"
    assert row.first.pair.names == ("e", "r")
    assert row.first.pair.seconds[0] < row.first.pair.seconds[1]
    assert row.first.pair.own.startswith("fuses them: ")
    assert not parted(hloopt.parse(_FUSED), hloopt.parse(_FUSED)).rows


def test_a_rewriting_in_final_modules() -> None:
    """What differs without fusions was decided before these."""
    other = _FUSED.replace("exponential(p)", "tanh(p)")
    (row,) = parted(hloopt.parse(_FUSED), hloopt.parse(other)).rows
    assert row.first is not None
    assert row.first.kind == "rewriting"


def test_the_command(tmp_path: Path) -> None:
    """Dumps are compared after optimisation, flags that differ are named, and JSON has it all."""
    one = dump(tmp_path / "one", {_SIMPLIFIED: _SIMPLE, _JOINED: _FUSED}, _FUSED)
    other = dump(tmp_path / "other", {_SIMPLIFIED: _SIMPLE}, _APART)
    flags = other / "module_0003.jit_f.debug_options"
    flags.write_text('xla_disable_hlo_passes: "priority-fusion"\n')
    (one / flags.name).write_text("")
    result = CliRunner().invoke(cli, ["why", str(one), str(other), "--json"])
    assert result.exit_code == 0, result.output
    (pair,) = json.loads(result.stdout)["pairs"]
    assert pair["lost_seconds"] > 0
    assert pair["flags"][0]["flag"] == "xla_disable_hlo_passes"
    assert pair["first_decision"]["parting"]["before"]["pass"] == "priority-fusion"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["third"], "two to compare"),
        (["--kind", "copy"], "not for two compilations"),
    ],
)
def test_what_two_compilations_do_not_take(tmp_path: Path, more: list[str], message: str) -> None:
    """A third module, and options of findings."""
    path = tmp_path / "m.hlo"
    path.write_text(_APART)
    result = CliRunner().invoke(cli, ["why", str(path), str(path), *more])
    assert result.exit_code == 2
    assert message in result.stderr


def test_plans_of_a_gpu_are_not_priced_on_a_cpu(tmp_path: Path) -> None:
    """Neither two nor one: the kernel that no CPU has is named.  Without such a kernel they are priced."""
    kind = 'kind=kCustom, backend_config={"fusion_backend_config":{"kind":"__triton"}}'
    paths = []
    for name, text in (("loop", _FUSED), ("triton", _FUSED.replace("kind=kLoop", kind))):
        paths.append(tmp_path / f"{name}.hlo")
        paths[-1].write_text(text)
    for words in (paths, paths[1:]):
        result = CliRunner().invoke(cli, ["why", *map(str, words), "--target", "host"])
        assert result.exit_code == 2
        assert not result.stdout
        assert "is planned for a GPU (%r is __triton), which says nothing" in result.stderr
    assert CliRunner().invoke(cli, ["why", *map(str, paths), "--target", "h200"]).exit_code == 0
    assert CliRunner().invoke(cli, ["why", str(paths[0]), "--target", "host"]).exit_code == 0
