"""Options about passes: what they write, and that they hold for every command that runs a pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np
import pytest

import hloopt
from hloopt.cli.help import GroupedCommand
from hloopt.cli.main import cli
from hloopt.dumps import read_dump
from hloopt.pipelines import PASSES, PIPELINES, parse_pipeline
from hloopt.presets import XLA_PRESETS, preset_rows
from hloopt.report.passes import find_rule, rule_json
from hloopt.simplify import RULES
from tests.helpers.support import invoke

TEXT = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  unused = f32[4] exponential(x), metadata={source_file="a.py" source_line=3}
  n = f32[4] negate(x)
  p = f32[4] negate(n)
  ROOT r = f32[4] abs(p)
}
"""


@pytest.mark.parametrize("name", ["optimize", "run"])
def test_help_is_in_groups(name: str) -> None:
    """Every option under one title, none lost."""
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    assert isinstance(command, GroupedCommand)
    text = invoke(name, "--help").stdout
    titles = [line for line in text.splitlines() if line.endswith(":") and line[0] not in " -"]
    assert titles[:1] == ["Passes:"]
    assert {*command.groups, "Options"} == {title.rstrip(":") for title in titles}
    for param in command.params:
        if isinstance(param, click.Option) and param.hidden:
            continue
        options = [option for option in param.opts if option.startswith("-")]
        assert all(f" {option}" in text for option in options), param.name
    assert {name for names in command.groups.values() for name in names} <= {
        str(param.name) for param in command.params
    }


def test_a_dump_directory_is_read_by_every_command(tmp_path: Path) -> None:
    """Written whole, found again: by ls, and by a stage's name."""
    folder = tmp_path / "stages"
    for _ in range(2):
        made = invoke("optimize", "--passes", "dce,simplify", "--dump-dir", str(folder), stdin=TEXT)
        assert made.exit_code == 0
    assert [module.number for module in read_dump(folder).modules] == [1, 2]
    listed = invoke("ls", str(folder), "--module", "module_0001")
    assert "0001.hloopt-passes.after_dce.before_simplify" in listed.stdout
    again = invoke("optimize", str(folder), "--module", "0001", "--stage", "after_dce", "-O0")
    assert "exponential" not in again.stdout
    assert again.stdout.count("negate(") == 2
    assert not [file for file in folder.iterdir() if not file.name.startswith("module_")]


def test_a_dump_directory_that_is_a_file(tmp_path: Path) -> None:
    """A usage error, and no output."""
    (tmp_path / "file").write_text("")
    result = invoke("optimize", "--dump-dir", str(tmp_path / "file"), stdin=TEXT)
    assert result.exit_code == 2
    assert "not a directory" in result.stderr.lower()


@pytest.mark.parametrize("end", ["yaml", "json", "sarif"])
def test_remarks_of_several_modules_come_together(tmp_path: Path, end: str) -> None:
    """One file for all, each remark with its module; nothing on stderr."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.hlo").write_text(TEXT.replace("HloModule m", f"HloModule {name}"))
    out = tmp_path / f"remarks.{end}"
    files = [str(tmp_path / f"{name}.hlo") for name in ("one", "two")]
    result = invoke(
        "optimize", *files, "-o", f"{tmp_path}/made/", "--passes", "dce", "--remarks-out", str(out)
    )
    assert (result.exit_code, result.stderr) == (0, "")
    text = out.read_text()
    assert "one" in text
    assert "two" in text
    count = {"yaml": "--- !Passed", "json": '"kind": "passed"', "sarif": '"ruleId"'}[end]
    assert text.count(count) == 2


def test_statistics_of_nothing_are_no_empty_table() -> None:
    """In words, and the counts all the same."""
    shown = invoke("optimize", "--passes", "defuse", "--stats", "-o", "/dev/null", stdin=TEXT)
    assert shown.stderr == "no rewrites\ninstructions: 5 before, 5 after\n"


def test_json_tells_every_run() -> None:
    """Number, pass, round, what it did and how long it took."""
    result = invoke("optimize", "--passes", "fix(dce,simplify)", "--json", stdin=TEXT)
    (row,) = json.loads(result.stdout)["modules"]
    assert [(run["number"], run["pass"], run["round"], run["changed"]) for run in row["runs"]] == [
        (1, "dce", 1, True),
        (2, "simplify", 1, True),
        (3, "dce", 2, False),
    ]
    assert row["runs"][0]["hits"] == {"remove an instruction": 1}
    assert row["runs"][1]["instructions"] == 2
    assert all(run["seconds"] >= 0 for run in row["runs"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-O1", "--only", "dce"), "fix(dce)"),
        (("-O1", "--disable", "simplify", "--disable", "dce"), None),
        (("-O0", "--fast-math"), ""),
        (("--passes", "cse,simplify", "--fast-math"), "cse,simplify{fast_math=true}"),
        (("--passes", "simplify", "--disable", "A+0=>A"), 'simplify{disable=["A + 0 => A"]}'),
        (("--passes", "dce,simplify", "--disable", "A + 0 => A"), 'dce,simplify{disable=["A + 0 => A"]}'),
        (("--passes", 'simplify{disable=["A + 0 => A"]}', "--disable", "A * 1 => A"),
         'simplify{disable=["A + 0 => A","A * 1 => A"]}'),
        (("--passes", "fix(cse,fix(dce)),cse", "--disable", "cse"), "fix(fix(dce))"),
    ],
)  # fmt: skip
def test_passes_and_rules_are_left_out(words: tuple[str, ...], text: str | None) -> None:
    """The pipeline that ran is in the JSON; empty groups go."""
    result = invoke("optimize", *words, "--json", stdin=TEXT)
    (row,) = json.loads(result.stdout)["modules"]
    if text is None:
        passes = [instance.name for instance in parse_pipeline(row["pipeline"]).passes()]
        assert passes == [
            instance.name
            for instance in parse_pipeline("O1").passes()
            if instance.name not in ("simplify", "dce")
        ]
    else:
        assert row["pipeline"] == text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--fuel", "dce"), "'dce' is not of the form PASS=NUMBER"),
        (("--fuel", "dce=-1"), "'dce=-1' is not of the form PASS=NUMBER"),
        (("--fuel", "dce=1", "--fuel", "dce=2"), "the fuel of dce is given twice"),
        (("--only", "dc"), "cannot run only 'dc'"),
        (("--print-before", "xyz"), "cannot print before 'xyz'"),
        (("--print-changed=html",), "'html' is not one of 'hlo', 'diff'"),
        (("--stop-after", "-1"), "-1 is not in the range"),
        (("--passes", "dce", "--fast-math"), "no pass of the pipeline has the option 'fast_math'"),
        (("--passes", "O0{limit=1}"), "no pass of O0 has the option 'limit' (there are none)"),
        (("--passes", "none.toml"), "none.toml: No such file"),
    ],
)
def test_mistakes_stop_before_anything_runs(words: tuple[str, ...], message: str) -> None:
    """Exit 2, nothing on stdout."""
    result = invoke("optimize", *words, stdin=TEXT)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr


def test_fuel_ends_and_passes_stop(tmp_path: Path) -> None:
    """To find the pass, and then the rewrite, that changes a result."""
    path = tmp_path / "p.toml"
    path.write_text('pipeline = "dce,simplify,cse"\n')
    common = ("optimize", "--json", "--passes", str(path))
    result = invoke(*common, "--fuel", "dce=0", "--stop-after", "2", "--verify-each", stdin=TEXT)
    (row,) = json.loads(result.stdout)["modules"]
    assert row["pipeline"] == "dce,simplify,cse"
    assert "dce: out of fuel after 0 rewrites" in row["notes"]
    assert "stopped after run 2: simplify" in row["notes"]
    folder = tmp_path / "stages"
    assert invoke(*common, "--dump-dir", str(folder), "--only", "dce", stdin=TEXT).exit_code == 0
    assert len(list(folder.iterdir())) == 3


def test_a_dump_of_fast_math_is_named_after_the_pipeline_alone(tmp_path: Path) -> None:
    """No braces in the names of files."""
    folder = tmp_path / "stages"
    words = ("--fast-math", "--dump-dir", str(folder), "-o", str(tmp_path / "m.hlo"))
    assert invoke("optimize", *words, stdin=TEXT).exit_code == 0
    stages = [path.name for path in folder.iterdir() if ".after_" in path.name]
    assert any(".hloopt-O2.after_simplify." in name for name in stages)
    assert not any("{" in name for name in stages)


def test_a_pipeline_is_called_as_it_was_typed() -> None:
    """Unless it was changed, or has comments."""

    def shown(*words: str) -> str:
        result = invoke("run", "--repeat", "1", *words, "-", stdin=TEXT)
        return result.stderr + result.stdout

    assert "passes: O1{fast_math=true}\n" in shown("--passes", " O1{fast_math=true}")
    without = shown("--passes", "fix(dce,cse)", "--disable", "cse")
    assert "passes: fix(dce)\n" in without
    assert "passes: dce,cse\n" in shown("--passes", "dce, cse # both")


def test_python_takes_texts_files_and_passes(tmp_path: Path) -> None:
    """One after the other, in lists too; the given module stays as it is."""
    path = tmp_path / "p.toml"
    path.write_text('pipeline = "dce"\n')
    module = hloopt.parse(TEXT)
    (simplify,) = hloopt.parse_pipeline("simplify").entries
    fix = hloopt.Fix((simplify,))
    for pipeline in (
        "simplify,dce",
        ["simplify", path],
        hloopt.Pipeline((simplify, *hloopt.parse_pipeline("dce").entries)),
        [simplify, [path]],
        [fix, hloopt.parse_pipeline("dce")],
    ):
        assert hloopt.optimize(module, pipeline).instruction_count() == 2
    assert hloopt.optimize(module, simplify).instruction_count() == 3
    assert module.instruction_count() == 5
    with pytest.raises(hloopt.UsageError, match="not of int"):
        hloopt.optimize(module, [3])  # type: ignore[list-item]


@pytest.mark.parametrize("name", PIPELINES)
def test_a_preset_is_printed_as_a_text_that_reads_back(name: str) -> None:
    """One entry a line; the same pipeline, with comments and line ends."""
    text = invoke("passes", "--preset", name).stdout
    assert parse_pipeline(text) == parse_pipeline(name)
    entries = [line for line in text.splitlines() if not line.lstrip().startswith(("#", ")"))]
    assert all(
        len(line.partition("#")[0].rstrip(" ,").split(",")) == 1 or "{" in line for line in entries
    )
    found = json.loads(invoke("passes", "--preset", name, "--json").stdout)
    assert parse_pipeline(found["passes"]) == parse_pipeline(name)


@pytest.mark.parametrize("name", XLA_PRESETS)
def test_every_pass_of_xla_has_a_counterpart_or_a_reason(name: str) -> None:
    """A pipeline entry, or words that say why there is none; each group of XLA's is one here."""
    for _, step in preset_rows(XLA_PRESETS[name]):
        assert step.entry or len(step.reason.split()) > 3, step
    shown = invoke("passes", "--preset", name).stdout
    assert all(step.xla in shown for _, step in preset_rows(XLA_PRESETS[name]))


def test_every_rule_can_be_shown() -> None:
    """With its example before and after it was applied."""
    names = {name for kind in PASSES.values() for name in kind.rules}
    assert names >= {rule.name for rule in RULES.rules}
    for name in names:
        rule = find_rule(name)
        assert rule is not None, name
        row = rule_json(rule)
        assert row["example"]["before"] != row["example"]["after"], name
        assert row["passes"], name
    assert "left alone" in invoke("passes", "simplify", "A + 0 => A").stdout
    assert invoke("passes", "A+0=>A").stdout == invoke("passes", "simplify", "A + 0 => A").stdout


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_is_explained_in_80_columns(name: str) -> None:
    """Its tables, and its example, run now."""
    shown = invoke("passes", name).stdout
    assert "\nexample\n" in shown
    assert "\nbecomes\n" in shown
    table, _, _ = shown.partition("\nexample\n")
    assert all(len(line) <= 80 or line.startswith("  ") for line in table.splitlines())
    row = json.loads(invoke("passes", name, "--json").stdout)["pass"]
    assert row["example"]["before"] != row["example"]["after"]
    after = row["example"]["after"].strip().splitlines()
    shown_after = shown.partition("\nbecomes\n")[2].splitlines()
    assert shown_after[-1].strip() == after[-1].strip()
    assert len(shown_after) == (len(after) if len(after) <= 60 else 45)


def test_words_in_a_column_are_options_only_where_they_are_names() -> None:
    """What a formula is called stands in the text; what a field is called, in the table."""
    row = json.loads(invoke("passes", "batch-norm-expander", "--json").stdout)["pass"]
    assert "    training    mean = sum(x) / n" in row["doc"]
    assert [option["name"] for option in row["options"]] == ["short"]
    assert "short   as XLA" not in row["doc"]


def test_the_list_of_pipelines_says_where_long_ones_are_printed() -> None:
    """And only XLA's are said to be in its order."""
    lines = [line.rstrip() for line in invoke("passes").stdout.splitlines()]
    assert "O3               more passes: hloopt passes --preset O3" in lines
    order = "xla-gpu-2026     passes in XLA's order: hloopt passes --preset xla-gpu-2026"
    assert order in lines


def test_the_list_of_xlas_rules_is_printed() -> None:
    """All of them, in 80 columns, and as JSON."""
    shown = invoke("passes", "--xla-rules").stdout
    rows = json.loads(invoke("passes", "--xla-rules", "--json").stdout)["xla_rules"]
    numbers = [line.split()[0] for line in shown.splitlines() if line[:1].isdigit()]
    assert numbers == [str(row["number"]) for row in rows]
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_misspelt_names_get_a_suggestion() -> None:
    """Passes, rules, presets."""
    assert "did you mean 'cse'?" in invoke("passes", "csee").stderr
    assert "did you mean 'A + 0 => A'?" in invoke("passes", "A + O => A").stderr
    assert "did you mean 'xla-gpu-2026'?" in invoke("passes", "--preset", "xla-gpu-206").stderr
    for words in (("cse", "dce", "x"), ("cse", "--xla-rules"), ("--preset", "O1", "--xla-rules")):
        assert invoke("passes", *words).exit_code == 2


def test_results_that_differ_in_fast_math_say_so(tmp_path: Path) -> None:
    """log(exp(x)) is infinite where exp(x) is; fast math makes it x."""
    path = tmp_path / "m.hlo"
    path.write_text(
        "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  e = f32[2] exponential(x)\n"
        "  ROOT r = f32[2] log(e)\n}\n"
    )
    np.savez(tmp_path / "in.npz", in_0=np.array([200.0, 1.0], np.float32))
    words = ("run", str(path), "--inputs", str(tmp_path / "in.npz"), "--repeat", "1", "-O1")
    assert invoke(*words).exit_code == 0
    result = invoke(*words, "--fast-math")
    assert result.exit_code == 1
    assert "note fast_math lets passes change roundings" in result.stdout + result.stderr


def test_a_removed_option_names_its_successor() -> None:
    """``--pipeline FILE`` was ``--passes FILE``."""
    result = invoke("optimize", "--pipeline", "p.toml", stdin=TEXT)
    assert result.exit_code == 2
    assert "No such option '--pipeline'. Type --passes." in result.stderr
