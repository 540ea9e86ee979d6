"""``hloopt kernels``: tables, plans, source, registers, options of kernels."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import hloopt
from hloopt.backends.nvrtc import nvrtc_for
from hloopt.cli.given import kernel_options
from hloopt.cli.kernels import command
from hloopt.errors import DeviceError
from tests.helpers.support import invoke
from tests.kernels.selecting import TEXT

LOOP = """HloModule m

body { s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[64] cosine(x)
  ROOT t = (s32[], f32[64]) tuple(j, y) }

cond { s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(7)
  ROOT p = pred[] compare(i, n), direction=LT }

ENTRY main {
  x = f32[64] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[64]) tuple(zero, x)
  loop = (s32[], f32[64]) while(start), condition=cond, body=body
  ROOT r = f32[64] get-tuple-element(loop), index=1
}
"""


def answered(*words: str, stdin: str = TEXT) -> dict[str, Any]:
    result = invoke("kernels", "-O0", *words, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["modules"]
    found: dict[str, Any] = row
    return found


def test_a_plan_is_written_with_the_text_it_is_for() -> None:
    """Its steps are of instructions that the text has."""
    row = answered("--plan", stdin=LOOP)
    module = hloopt.parse(row["hlo"])
    assert row["plan"]["steps"]
    for step in row["plan"]["steps"]:
        home, name = step["instruction"].split("/")
        assert name in module.computations[home].by_name


def test_a_text_with_its_choices_has_the_same_plan_again() -> None:
    """Nothing reads a plan: what is written in the text, or in a lock file, leads to it."""
    row = answered("--plan", "--kernel", "op:cosine=loop{threads=64}", stdin=LOOP)
    assert '"threads":64' in row["hlo"]
    again = answered("--plan", stdin=row["hlo"])
    assert again["plan"] == row["plan"]


def test_bodies_of_loops_say_where_they_are() -> None:
    """Where several computations run, their names stand before those of instructions; a plan tells trips."""
    table = invoke("kernels", "-O0", stdin=LOOP).stdout
    assert re.search(r"^body\S*/y ", table, re.MULTILINE)
    plan = invoke("kernels", "-O0", "--plan", stdin=LOOP).stdout
    assert "loop: 7 iterations" in plan
    assert "peak " in plan.splitlines()[-1]


def test_the_source_has_every_kernel() -> None:
    """As text and in JSON; each function under the instruction's name."""
    text = invoke("kernels", "-O0", "--source", stdin=TEXT).stdout
    for name in ("hlo_sum", "hlo_minus"):
        assert re.search(rf"\b{name}\(", text)
    assert answered("--source")["source"] == text


def test_what_the_compiler_says() -> None:
    """Registers of each function, without a GPU."""
    try:
        nvrtc_for("sm_90")
    except DeviceError as error:
        pytest.skip(str(error))
    rows = {row["instruction"]: row for row in answered("--compile")["choices"]}
    assert 0 < rows["sum"]["functions"]["hlo_sum"]["registers"] < 64
    assert rows["sum"]["functions"]["hlo_sum"]["spill_stores"] == 0
    header = invoke("kernels", "-O0", "--compile", stdin=TEXT).stdout.splitlines()[0]
    assert header.split()[:4] == ["instruction", "kernel", "launch", "registers"]


def test_values_that_are_left_out_do_not_hide_the_table() -> None:
    """There is no plan, and a note says why; with --plan that is the error."""
    text = TEXT.replace("y = f32[1024] parameter(1)", "y = f32[1024] constant({...})")
    result = invoke("kernels", "-O0", stdin=text)
    assert result.exit_code == 0
    assert "sum" in result.stdout
    assert "note: no plan: " in result.stderr
    assert invoke("kernels", "-O0", "--plan", stdin=text).exit_code == 4


def test_a_lock_file_of_several_modules(tmp_path: Path) -> None:
    """One file holds the kernels of all; each module takes its own entries."""
    names = []
    for number, kernel in enumerate(("64", "96")):
        path = tmp_path / f"{number}.hlo"
        path.write_text(TEXT.replace("HloModule m", f"HloModule m{number}"))
        names.append(str(path))
        assert kernel
    lock, again = str(tmp_path / "a.toml"), str(tmp_path / "b.toml")
    wish = ("--kernel", "sum=loop{threads=96}")
    first = invoke(
        "optimize", "-O0", *names, *wish, "--write-lock", lock, "-o", str(tmp_path / "1") + "/"
    )
    assert first.exit_code == 0, first.output
    second = invoke(
        "optimize", "-O0", *names, "--lock", lock, "--frozen", "--write-lock", again,
        "-o", str(tmp_path / "2") + "/",
    )  # fmt: skip
    assert second.exit_code == 0, second.output
    assert Path(again).read_text() == Path(lock).read_text()
    assert Path(lock).read_text().count("[[kernel]]") == 4
    for name in ("0.hlo", "1.hlo"):
        assert (tmp_path / "2" / name).read_text() == (tmp_path / "1" / name).read_text()
        assert '"threads":96' in (tmp_path / "2" / name).read_text()


def test_a_selection_of_the_pipeline_gets_the_options() -> None:
    """Options go to the kernel-selection that is there; no second one is added."""
    result = invoke(
        "optimize", "--passes", "kernel-selection{loop_threads=32},dce", "--kernel",
        "sum=loop{unroll=1}", "--json", stdin=TEXT,
    )  # fmt: skip
    (row,) = json.loads(result.stdout)["modules"]
    assert row["pipeline"].count("kernel-selection") == 1
    assert "loop_threads=32" in row["pipeline"]
    assert '"threads":32' in row["text"]


@pytest.mark.parametrize(
    ("name", "typed", "wanted"),
    [
        ("target", "h2", "h200"),
        ("kernel", "op:add=lo", "op:add=loop"),
        ("kernel", "op:a", None),
    ],
)
def test_completion(name: str, typed: str, wanted: str | None) -> None:
    """Devices, and kernels after the pattern."""
    import click

    (param,) = [one for one in command.params if one.name == name]
    found = [item.value for item in param.shell_complete(click.Context(command), typed)]
    assert (wanted in found) if wanted else not found


def test_options_belong_to_commands() -> None:
    """Outside of a command there is nothing to ask."""
    with pytest.raises(RuntimeError, match="no active click context"):
        kernel_options()
