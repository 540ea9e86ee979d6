"""Looking on while passes run: what is printed, what differs, what is written into a dump directory."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloopt
from hloopt.dumps import read_dump
from hloopt.ir import Module
from hloopt.ir.canonical import fingerprint
from hloopt.pipelines import parse_pipeline
from hloopt.report.diff import unified_diff
from hloopt.report.dump_passes import DumpPasses
from hloopt.report.watch import PrintPasses
from tests.helpers.support import count_calls

TEXT = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  unused = f32[4] exponential(x)
  a = f32[4] negate(x)
  b = f32[4] negate(a)
  ROOT r = f32[4] abs(b)
}
"""
PIPELINE = "dce,cse,simplify"
SHORT = st.lists(st.sampled_from(["a", "b", "c", "%x = f32[] add(%a, %b)", ""]), max_size=12)


def patched(before: str, diff: list[str]) -> list[str]:
    """What a diff makes of a text; fails where a line is not as the diff says."""
    old, made, at = before.splitlines(), [], 0
    for line in diff:
        heading = re.fullmatch(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@", line)
        if heading:
            made += old[at : int(heading[1]) - 1]
            at = int(heading[1]) - 1
            assert len(made) == int(heading[3]) - 1
            continue
        if line[0] in " -":
            assert old[at] == line[1:]
            at += 1
        if line[0] in " +":
            made.append(line[1:])
    return made + old[at:]


@given(SHORT, SHORT)
def test_a_diff_leads_from_one_text_to_the_other(old: list[str], new: list[str]) -> None:
    """Whatever the lines are, repeated ones too; equal texts have none."""
    before, after = "\n".join(old) + "\n", "\n".join(new) + "\n"
    diff = unified_diff(before, after)
    assert patched(before, diff) == after.splitlines()
    assert bool(diff) == (before != after)


def test_a_diff_is_that_of_everybody_else() -> None:
    """Context, headings, distances: as difflib's, where lines stand once."""
    before = [f"line {number}" for number in range(40)]
    after = [*before[:5], "new", *before[6:20], *before[21:33], "more", *before[33:]]
    expected = list(difflib.unified_diff(before, after, lineterm=""))[2:]
    assert unified_diff("\n".join(before), "\n".join(after)) == expected


def test_a_diff_of_a_large_module_takes_time_in_proportion() -> None:
    """Four times the lines take four times the calls, also where every tenth line is another one."""

    def calls(count: int) -> int:
        before = "\n".join(f"%a.{number} = f32[] add(%a, %b)" for number in range(count))
        after = "\n".join(
            f"%b.{number} = f32[] multiply(%a, %b)" if number % 10 == 0 else line
            for number, line in enumerate(before.split("\n"))
        )
        return count_calls(lambda: unified_diff(before, after))

    assert calls(8000) < 4.4 * calls(2000)


def printed(**options: object) -> list[str]:
    found: list[str] = []
    watcher = PrintPasses(found.append, Module.to_text, **options)  # type: ignore[arg-type]
    parse_pipeline(PIPELINE).run(hloopt.parse(TEXT), watchers=(watcher,))
    return found


def titles(found: list[str]) -> list[str]:
    return [text.partition("\n")[0] for text in found]


def test_after_a_pass_only_where_it_changed_something() -> None:
    """By name, or all of them; cse has nothing to do here."""
    assert titles(printed(after_names=("simplify",))) == ["// after run 3: simplify"]
    assert titles(printed(after_names=("cse",))) == []
    assert titles(printed(after_names=("all",))) == [
        "// after run 1: dce",
        "// after run 3: simplify",
    ]


def test_before_each_run() -> None:
    """Nobody knows then whether it will change something."""
    found = printed(before_names=("all",))
    assert titles(found) == [
        "// before run 1: dce",
        "// before run 2: cse",
        "// before run 3: simplify",
    ]
    assert "exponential" in found[0]
    assert "exponential" not in found[1]


def test_what_changed() -> None:
    """The module at first and after each change; as a diff only the lines."""
    assert titles(printed(changed="hlo")) == [
        "// before the first run",
        "// after run 1: dce",
        "// after run 3: simplify",
    ]
    found = printed(changed="diff")
    assert titles(found) == ["// changed by run 1: dce", "// changed by run 3: simplify"]
    assert "\n-  %unused = f32[4] exponential(%x)\n" in found[0]
    assert "\n+" not in found[0]


def test_all_that_is_printed_reads_back() -> None:
    """Titles are comments, so that a piece of the output is a module."""
    for text in printed(after_names=("all",), changed="hlo"):
        hloopt.parse(text)


@pytest.fixture
def dump(tmp_path: Path) -> DumpPasses:
    return DumpPasses(tmp_path / "d", "O1", Module.to_text, write)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert not path.exists()
    path.write_text(text)


def test_a_dump_is_found_by_the_reader_of_dumps(dump: DumpPasses) -> None:
    """Stages in order with the numbers of the runs; each is the module of its time."""
    module = hloopt.parse(TEXT)
    parse_pipeline(f"{PIPELINE},dce").run(module, watchers=(dump,))
    (found,) = read_dump(dump.folder).modules
    assert [(stage.kind, stage.label, stage.step) for stage in found.stages] == [
        ("before", "before_optimizations", -1),
        ("pass", "0001.hloopt-O1.after_dce.before_cse", 1),
        ("pass", "0003.hloopt-O1.after_simplify.before_dce", 3),
        ("after", "after_optimizations", -1),
    ]
    assert (found.number, found.name) == (1, "m")
    texts = [stage.files[0].path.read_text() for stage in found.stages]
    assert fingerprint(hloopt.parse(texts[0])) == fingerprint(hloopt.parse(TEXT))
    assert texts[2] == texts[3] == module.to_text()
    assert "exponential" in texts[0]
    assert "exponential" not in texts[1]


def test_the_last_stage_is_before_the_end(dump: DumpPasses) -> None:
    """As XLA calls it."""
    parse_pipeline(PIPELINE).run(hloopt.parse(TEXT), watchers=(dump,))
    labels = [stage.label for stage in read_dump(dump.folder).modules[0].stages]
    assert labels[-2] == "0003.hloopt-O1.after_simplify.before_pipeline-end"


def test_a_dump_takes_the_next_number(dump: DumpPasses) -> None:
    """Nothing that is there is written over, or mixed with what is new."""
    for _ in range(2):
        parse_pipeline(PIPELINE).run(hloopt.parse(TEXT), watchers=(dump,))
    assert [module.number for module in read_dump(dump.folder).modules] == [1, 2]


@pytest.mark.parametrize("name", ["a/../../b", "x y[z]", "ü", "..", "a" * 500])
def test_names_of_modules_are_no_paths(dump: DumpPasses, name: str) -> None:
    """Whatever a module is called, its files lie in the directory, with names any system takes."""
    module = hloopt.parse(TEXT)
    module.name = name
    parse_pipeline(PIPELINE).run(module, watchers=(dump,))
    files = list(dump.folder.iterdir())
    assert len(files) == 4
    assert all(
        re.fullmatch(r"module_0001\.[A-Za-z0-9_.+-]{1,200}\.txt", file.name) for file in files
    )
    assert len(read_dump(dump.folder).modules) == 1
