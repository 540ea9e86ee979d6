"""What passes tell, as lines, YAML, JSON and SARIF."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

import hloopt
from hloopt.pipelines import parse_pipeline
from hloopt.report.remarks import PlacedRemark, findings, lines, remarks_file
from hloopt.rewrite import Controls

TEXT = """HloModule jit_f

FileNames
1 "train.py"
2 "/home/a b/lib.py"

FunctionNames
1 "main"
2 "layer"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=4 end_column=9}
2 {file_name_id=2 function_name_id=2 line=12 end_line=12 column=8 end_column=20}

StackFrames
1 {file_location_id=1 parent_frame_id=0}
2 {file_location_id=2 parent_frame_id=1}

ENTRY main {
  x = f32[4] parameter(0)
  u = f32[4] exponential(x), metadata={op_name="jit(f)/exp" stack_frame_id=2}
  v = f32[4] negate(x), metadata={source_file="old.py" source_line=7}
  w = f32[4] cosine(x)
  ROOT t = f32[4] abs(x)
}
"""
FINDING = PlacedRemark(
    "missed", "cse", "a => b", "too large", "x", "add", "main", "m", "m.hlo", 3, 5,
    "train.py", 7, 2, "f", "jit(f)/add", 2, 3,
)  # fmt: skip


def found(kinds: str = "all") -> list[PlacedRemark]:
    module = hloopt.parse(TEXT, "m.hlo")
    report = parse_pipeline("dce").run(module, controls=Controls(remarks=True))
    return findings(report, module, "m.hlo", kinds)


def test_the_source_line_comes_from_stack_tables_and_metadata() -> None:
    """The innermost frame with its column and function; old metadata; else the place in the text."""
    rows = {entry.instruction: entry for entry in found()}
    frame = rows["u"]
    assert (frame.source_file, frame.source_line, frame.source_column) == (
        "/home/a b/lib.py",
        12,
        8,
    )
    assert (frame.source_function, frame.op_name) == ("layer", "jit(f)/exp")
    assert (frame.line, frame.column) == (21, 3)
    assert (rows["v"].source_file, rows["v"].source_line) == ("old.py", 7)
    assert rows["w"].source_file == ""
    assert list(lines(found())) == [
        "m.hlo:23:3: passed: %w in %main: remove an instruction: nothing needs it [dce]",
        "old.py:7: passed: %v in %main: remove an instruction: nothing needs it [dce]",
        "/home/a b/lib.py:12: passed: %u in %main: remove an instruction: nothing needs it [dce]",
    ]
    assert found("missed") == []


def test_repeated_misses_have_a_count() -> None:
    """One line, not one a run."""
    (line,) = lines([FINDING])
    assert line == "train.py:7: missed: %x in %main: a => b: too large [cse] (3 runs)"


def test_a_rewrite_that_is_logged_late_names_no_computation() -> None:
    """What was replaced before ``log.hit`` is in none any more."""
    (line,) = lines([replace(FINDING, computation="", count=1)])
    assert line == "train.py:7: missed: %x: a => b: too large [cse]"


def test_of_many_of_a_kind_the_first_are_shown() -> None:
    """On a terminal; a file has all of them."""
    many = [replace(FINDING, instruction=f"x.{number}", count=1) for number in range(7)]
    other = replace(FINDING, rule="c => d", count=1)
    shown = list(lines([*many, other], most=3))
    assert [line.split(" ")[2] for line in shown[:4]] == ["%x.0", "%x.1", "%x.2", "%x"]
    assert shown[4:] == ["missed: a => b: 4 more [cse] (--remarks-out FILE has all)"]
    assert remarks_file(many, ".yaml", "1", 1).count("--- !Missed") == 7


def test_a_miss_names_both_and_says_what_it_costs() -> None:
    """The second by its name in the text; kernels of the output where they are called otherwise."""
    entry = replace(FINDING, count=1, into="y", kernels=("fusion.1", "y"), lost_us=2.125)
    (line,) = lines([entry])
    assert line == (
        "train.py:7: missed: %x in %main: a => b %y: too large; 2.12 us lost, predicted; in the output "
        "%fusion.1 and %y [cse]"
    )
    (line,) = lines([replace(entry, kernels=("x", "y"), lost_us=-3.0, made=True)])
    assert line == "train.py:7: missed: %x (made by passes) in %main: a => b %y: too large [cse]"


def test_misses_with_several_for_one_reason_are_one_line() -> None:
    """Of other reasons they are others."""
    rows = [replace(FINDING, count=1, into=f"y.{number}") for number in range(5)]
    shown = list(lines([*rows, replace(rows[0], reason="too slow")]))
    assert [line.split(": ", 2)[2] for line in shown] == [
        "%x in %main: a => b %y.0, %y.1, %y.2 and 2 more: too large [cse]",
        "%x in %main: a => b %y.0: too slow [cse]",
    ]
    assert len(json.loads(remarks_file(rows, ".json", "1", 1))["remarks"]) == 5


def test_yaml_is_llvms() -> None:
    """Documents with Pass, Name, DebugLoc, Function and Args, as opt-viewer reads them."""
    assert remarks_file([FINDING], ".yaml", "1", 1) == (
        "--- !Missed\n"
        'Pass:            "cse"\n'
        'Name:            "a => b"\n'
        'DebugLoc:        { File: "train.py", Line: 7, Column: 2 }\n'
        'Function:        "main"\n'
        "Args:\n"
        '  - Instruction: "%x"\n'
        '  - String: ": "\n'
        '  - Rule: "a => b"\n'
        '  - String: ": "\n'
        '  - Reason: "too large"\n'
        'Opcode:          "add"\n'
        'OpName:          "jit(f)/add"\n'
        'Module:          "m"\n'
        'HloFile:         "m.hlo"\n'
        "HloLine:         3\n"
        "Run:             2\n"
        "Count:           3\n"
        "...\n"
    )


@pytest.mark.parametrize(
    ("text", "scalar"),
    [
        ('a "b" \\ c', r'"a \"b\" \\ c"'),
        ("line\nend\ttab", r'"line\nend\ttab"'),
        ("\x00\x1f\x7f\x85\u2028\ufeff", r'"\u0000\u001f\u007F\u0085\u2028\uFEFF"'),
        ("ü 😀 - : # {", '"ü 😀 - : # {"'),
        ("\ud800", r'"\uFFFD"'),
    ],
)
def test_yaml_scalars_are_quoted(text: str, scalar: str) -> None:
    """A name in a module may hold anything; no printable character is changed, no other one stays."""
    document = remarks_file([replace(FINDING, reason=text)], ".yaml", "1", 1)
    assert f"  - Reason: {scalar}\n" in document
    document.encode()


def test_json_has_every_field() -> None:
    """With the schema's number."""
    made = json.loads(remarks_file(found(), ".json", "1", 1))
    assert made["schema"] == 1
    row = made["remarks"][2]
    assert row["pass"] == "dce"
    assert row["kind"] == "passed"
    assert row["reason"] == "nothing needs it"
    assert set(row) >= {"rule", "instruction", "computation", "source_file", "line", "run", "count"}


def test_sarif_has_what_the_standard_asks_for() -> None:
    """Version, driver, rules by index, messages, levels that go with the kinds, locations as URIs."""
    made = json.loads(remarks_file([*found(), FINDING], ".sarif", "1.2", 1))
    assert made["version"] == "2.1.0"
    (run,) = made["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("hloopt", "1.2")
    ids = [rule["id"] for rule in driver["rules"]]
    assert ids == ["dce/remove an instruction", "cse/a => b"]
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["message"]["text"]
        missed = result["message"]["text"].startswith("missed")
        assert (result["kind"], result["level"]) == (
            ("fail", "note") if missed else ("informational", "none")
        )
        for location in result["locations"] + result.get("relatedLocations", []):
            place = location["physicalLocation"]
            assert re.fullmatch(r"[A-Za-z0-9./:%_~-]+", place["artifactLocation"]["uri"])
            assert place["region"]["startLine"] >= 1
    framed = run["results"][2]
    assert framed["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "file:///home/a%20b/lib.py"},
        "region": {"startLine": 12, "startColumn": 8},
    }
    assert framed["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "jit_f/main/u"
    assert framed["relatedLocations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "m.hlo"}


def test_no_remarks_are_a_valid_file() -> None:
    """Nothing to tell is no error."""
    assert remarks_file([], ".yaml", "1", 1) == ""
    assert json.loads(remarks_file([], ".sarif", "1", 1))["runs"][0]["results"] == []
    assert json.loads(remarks_file([], ".json", "1", 1))["remarks"] == []
