"""An instruction made of several names the lines of all of them, in the graph, in texts and in reports."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.ir import Instruction, build
from hloopt.ir.canonical import fingerprint
from hloopt.proto import read_proto, write_module
from hloopt.rewrite.source_lines import MOST_LINES, kernel_lines
from tests.helpers.support import count_calls

TABLES = """FileNames
1 "model.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=5}
2 {file_name_id=1 function_name_id=1 line=8}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
"""


def at(line: int, name: str = "op") -> str:
    return f'metadata={{op_name="{name}" source_file="a.py" source_line={line}}}'


def optimized(body: str, passes: str, before: str = "") -> hloopt.Module:
    text = f"HloModule m\n{before}\nENTRY e {{\n{body}\n}}\n"
    module = hloopt.optimize(hloopt.parse(text), pipeline=passes)
    hloopt.verify(module)
    return module


def lines_of(module: hloopt.Module, instruction: Instruction) -> tuple[str, ...]:
    return module.user_lines(instruction.metadata)


EQUALS = f"""  x = f32[3] parameter(0)
  a = f32[3] negate(x), {at(1, "first")}
  b = f32[3] negate(x), {at(2, "second")}
  c = f32[3] negate(x), {at(1, "third")}
  d = f32[3] negate(x), metadata={{op_name="frame" stack_frame_id=2}}
  ROOT t = (f32[3], f32[3], f32[3], f32[3]) tuple(a, b, c, d)"""


def test_equal_instructions_name_each_line_once() -> None:
    """The first line is the kept instruction's own; its other fields stay."""
    module = optimized(EQUALS, "cse", TABLES)
    kept = module.entry.by_name["a"]
    assert set(module.entry.root.operands) == {kept}
    assert lines_of(module, kept) == ("a.py:1", "a.py:2", "model.py:8")
    assert kept.metadata is not None
    assert kept.metadata.text == '{op_name="first" source_file="a.py:1,a.py:2,model.py:8"}'


def test_a_file_without_a_name_is_no_line() -> None:
    """Front ends that know no file write an empty one."""
    nameless = 'metadata={op_name="n" source_file="" source_line=7}'
    module = optimized(
        f"x = f32[3] parameter(0)\na = f32[3] negate(x), {nameless}\n"
        f"b = f32[3] negate(x), {at(2)}\nc = f32[3] negate(a), {nameless}\n"
        "ROOT t = (f32[3], f32[3], f32[3]) tuple(a, b, c)",
        "cse",
    )
    assert lines_of(module, module.entry.by_name["a"]) == ("a.py:2",)
    assert lines_of(module, module.entry.by_name["c"]) == ()


def test_a_stack_frame_stays_first() -> None:
    """What has a frame keeps it beside the list, and the frame's line comes first."""
    module = optimized(
        'x = f32[3] parameter(0)\na = f32[3] negate(x), metadata={op_name="n" stack_frame_id=1}\n'
        f"b = f32[3] negate(x), {at(2)}\nROOT t = (f32[3], f32[3]) tuple(a, b)",
        "cse",
        TABLES,
    )
    metadata = module.entry.by_name["a"].metadata
    assert metadata is not None
    assert metadata.text == '{op_name="n" source_file="model.py:5,a.py:2" stack_frame_id=1}'
    assert module.user_line(metadata) == "model.py:5"


def test_what_had_no_metadata_takes_that_of_the_other() -> None:
    """Word for word; without a line of its own a name is kept, and the line added."""
    module = optimized(
        f"x = f32[3] parameter(0)\na = f32[3] negate(x)\nb = f32[3] negate(x), {at(2)}\n"
        'c = f32[3] sine(x), metadata={op_name="c"}\n'
        f"d = f32[3] sine(x), {at(4)}\nROOT t = (f32[3], f32[3]) tuple(b, d)",
        "cse",
    )
    shown = [entry.metadata.text for entry in module.entry.root.operands if entry.metadata]
    assert shown == [
        '{op_name="op" source_file="a.py" source_line=2}',
        '{op_name="c" source_file="a.py:4"}',
    ]


@pytest.mark.parametrize("way", ["text", "proto", "copy"])
def test_lines_survive(way: str) -> None:
    """Printed and read, as a protocol buffer, and in a copy."""
    module = optimized(EQUALS, "cse", TABLES)
    if way == "text":
        again = hloopt.parse(module.to_text())
    elif way == "proto":
        again = read_proto(write_module(module), "m")
    else:
        again = build.clone_module(module)
    assert lines_of(again, again.entry.by_name["a"]) == ("a.py:1", "a.py:2", "model.py:8")


def test_modules_with_other_lines_are_the_same() -> None:
    """Hashes and the canonical form do not look at lines."""
    merged = optimized(EQUALS, "cse", TABLES)
    plain = hloopt.optimize(hloopt.parse(merged.to_text(metadata=False)), pipeline="O0")
    assert fingerprint(merged) == fingerprint(plain)
    assert merged.to_text(canonical=True) == plain.to_text(canonical=True)


def test_a_rewrite_names_what_it_did_away_with() -> None:
    """``(x + 2) + 1`` is ``x + 3`` of both lines; the number 3 is of one."""
    module = optimized(
        "x = s32[3] parameter(0)\ntwo = s32[] constant(2)\n"
        f"twos = s32[3] broadcast(two), dimensions={{}}, {at(8)}\na = s32[3] add(x, twos), {at(8)}\n"
        f"one = s32[] constant(1)\nones = s32[3] broadcast(one), dimensions={{}}, {at(5)}\n"
        f"ROOT b = s32[3] add(a, ones), {at(5)}",
        "fix(simplify,constant-folding)",
    )
    assert lines_of(module, module.entry.root) == ("a.py:5", "a.py:8")
    assert lines_of(module, module.entry.root.operands[1]) == ("a.py:5",)


def test_what_stays_and_what_is_dropped_is_not_named() -> None:
    """An inner instruction with another reader keeps its line to itself, as does one that nobody needs."""
    module = optimized(
        f"x = f32[3] parameter(0)\na = f32[3] negate(x), {at(1)}\nb = f32[3] negate(a), {at(2)}\n"
        f"p = pred[] constant(true)\nq = pred[3] broadcast(p), dimensions={{}}\n"
        f"s = f32[3] sine(x), {at(3)}\nc = f32[3] select(q, x, s), {at(4)}\n"
        f"d = f32[3] cosine(c), {at(5)}\nROOT t = (f32[3], f32[3], f32[3]) tuple(a, b, d)",
        "simplify,dce",
    )
    found = {entry.opcode: lines_of(module, entry) for entry in module.entry if entry.metadata}
    assert found == {"negate": ("a.py:1",), "cosine": ("a.py:5",)}


def test_numbers_are_from_where_they_were_first() -> None:
    """Zeros of a hundred lines are one, and no kernel that reads them is of a hundred lines."""
    body = ["x = f32[3] parameter(0)"]
    for k in range(3):
        body.append(f"n{k} = f32[] constant(0), {at(10 + k)}")
        body.append(f"z{k} = f32[3] broadcast(n{k}), dimensions={{}}, {at(10 + k)}")
        body.append(f"m{k} = f32[3] maximum(x, z{k}), {at(10 + k)}")
    body.append("ROOT t = (f32[3], f32[3], f32[3]) tuple(m0, m1, m2)")
    module = optimized("\n".join(body), "cse,dce")
    found = {entry.opcode: lines_of(module, entry) for entry in module.entry if entry.metadata}
    first = ("a.py:10",)
    every = ("a.py:10", "a.py:11", "a.py:12")
    assert found == {"constant": first, "broadcast": first, "maximum": every}


def test_dots_that_are_merged() -> None:
    """The wide dot does the work of both; each slice is of its own line."""
    module = optimized(
        "x = f32[8,4] parameter(0)\nu = f32[4,5] parameter(1)\nv = f32[4,6] parameter(2)\n"
        "a = f32[8,5] dot(x, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        f"{at(1)}\n"
        "b = f32[8,6] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        f"{at(2)}\n"
        "ROOT t = (f32[8,5], f32[8,6]) tuple(a, b)",
        "dot-merger",
    )
    first, second = module.entry.root.operands
    assert (lines_of(module, first), lines_of(module, second)) == (("a.py:1",), ("a.py:2",))
    assert lines_of(module, first.operands[0]) == ("a.py:1", "a.py:2")


def test_transposes_that_a_dot_reads_through() -> None:
    """The transpose's line goes with it only where the transpose goes."""
    text = (
        f"x = f32[4,8] parameter(0)\ny = f32[4,5] parameter(1)\n"
        f"m = f32[8,4] transpose(x), dimensions={{1,0}}, {at(1)}\n"
        "%s d = f32[8,5] dot(m, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        f"{at(2)}\n"
    )
    alone = optimized(text % "ROOT", "transpose-folding,dce")
    assert lines_of(alone, alone.entry.root) == ("a.py:2", "a.py:1")
    shared = optimized(
        text % "" + "ROOT t = (f32[8,5], f32[8,4]) tuple(d, m)", "transpose-folding,dce"
    )
    assert lines_of(shared, shared.entry.by_name["d"]) == ("a.py:2",)


def branches(result: str) -> str:
    parts = [
        f"b{k} {{\n  p = (f32[3]) parameter(0)\n  x = f32[3] get-tuple-element(p), index=0\n"
        f"  n = f32[3] exponential(x), {at(10 + k)}\n  w = f32[3] {('sine', 'cosine')[k]}(n)\n"
        f"  v = f32[3] sqrt(w), {at(20 + k)}\n  ROOT t = (f32[3]) tuple({result})\n}}\n"
        for k in range(2)
    ]
    return "\n".join(parts)


@pytest.mark.parametrize(
    ("result", "opcode", "lines"),
    [("w", "exponential", ("a.py:10", "a.py:11")), ("v", "sqrt", ("a.py:20", "a.py:21"))],
    ids=["before", "after"],
)
def test_what_all_branches_compute(result: str, opcode: str, lines: tuple[str, ...]) -> None:
    """Outside of the conditional it is of the lines of every branch."""
    module = optimized(
        "i = pred[] parameter(0)\nx = f32[3] parameter(1)\ny = (f32[3]) tuple(x)\n"
        "c = (f32[3]) conditional(i, y, y), true_computation=b0, false_computation=b1\n"
        "ROOT r = f32[3] get-tuple-element(c), index=0",
        "conditional-simplifier{ops=0},dce",
        branches(result),
    )
    (found,) = (entry for entry in module.entry if entry.opcode == opcode)
    assert lines_of(module, found) == lines


def test_elements_of_a_loop_that_are_one() -> None:
    """What the loop computed for both is computed for both lines."""
    loop = f"""
body {{
  s = (s32[], f32[3], f32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[3] get-tuple-element(s), index=1
  b = f32[3] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  c = f32[3] sine(a), {at(1)}
  d = f32[3] sine(b), {at(2)}
  ROOT t = (s32[], f32[3], f32[3]) tuple(j, c, d)
}}
condition {{
  s = (s32[], f32[3], f32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] parameter(1)
  ROOT l = pred[] compare(i, i), direction=LT
}}
""".replace("  n = s32[] parameter(1)\n", "  n = s32[] constant(9)\n").replace(
        "compare(i, i)", "compare(i, n)"
    )
    module = optimized(
        "x = f32[3] parameter(0)\nz = s32[] constant(0)\n"
        "y = (s32[], f32[3], f32[3]) tuple(z, x, x)\n"
        "w = (s32[], f32[3], f32[3]) while(y), condition=condition, body=body\n"
        "a = f32[3] get-tuple-element(w), index=1\nb = f32[3] get-tuple-element(w), index=2\n"
        "ROOT r = f32[3] add(a, b)",
        "while-loop-simplifier,dce",
        loop,
    )
    (sine,) = (entry for entry in module.instructions() if entry.opcode == "sine")
    assert lines_of(module, sine) == ("a.py:1", "a.py:2")


def test_shared_computations() -> None:
    """Of two equal callees one stays, of the lines of both."""
    callees = "".join(
        f"f{k} {{\n  p = f32[3] parameter(0)\n  ROOT n = f32[3] negate(p), {at(k)}\n}}\n"
        for k in (1, 2)
    )
    module = optimized(
        "x = f32[3] parameter(0)\ny = f32[3] parameter(1)\na = f32[3] call(x), to_apply=f1\n"
        "b = f32[3] call(y), to_apply=f2\nROOT r = f32[3] add(a, b)",
        "cse{computations=true}",
        callees,
    )
    (kept,) = (entry for entry in module.instructions() if entry.opcode == "negate")
    assert lines_of(module, kept) == ("a.py:1", "a.py:2")


def test_a_fusion_is_of_the_lines_of_all_it_computes() -> None:
    """Its own first, its numbers aside."""
    module = optimized(
        f"x = f32[300] parameter(0)\nn = f32[] constant(2), {at(9)}\n"
        f"m = f32[300] broadcast(n), dimensions={{}}, {at(9)}\na = f32[300] multiply(x, m), {at(1)}\n"
        f"b = f32[300] sine(a), {at(2)}\nROOT c = f32[300] negate(b), {at(3)}",
        "priority-fusion",
    )
    assert kernel_lines(module, module.entry.root) == ("a.py:3", "a.py:2", "a.py:1")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('source_file="a.py" source_line=3', ("a.py:3",)),
        ('source_file="a.py"', ("a.py:0",)),
        ('source_file="a,b.py" source_line=3', ("a,b.py:3",)),
        ('source_file="a,b.py:3,c.py:5"', ("a,b.py:3", "c.py:5")),
        ('source_file="a.py:3,b.py"', ("a.py:3,b.py:0",)),
        ('source_file="C:/a.py:3,C:/a.py:3"', ("C:/a.py:3",)),
        ('op_name="x"', ()),
    ],
)
def test_what_metadata_may_say(text: str, lines: tuple[str, ...]) -> None:
    """A file and its line, or the list that XLA writes for collectives it combined."""
    module = hloopt.parse(f"ENTRY e {{ x = f32[] parameter(0), metadata={{{text}}} }}")
    assert lines_of(module, module.entry.root) == lines


@pytest.mark.parametrize(("kind", "most"), [("equal", 5_000), ("chain", 1_000)])
def test_many_merges_into_one_are_linear(kind: str, most: int) -> None:
    """Ten times the merges, ten times the calls, and a list that stays short."""

    def module(size: int) -> hloopt.Module:
        body = ["x = s32[3] parameter(0)", "n = s32[] constant(1)"]
        body.append("m = s32[3] broadcast(n), dimensions={}")
        names = [f"a{k}x" for k in range(size)]
        for k, name in enumerate(names):
            before = "x" if kind == "equal" or not k else names[k - 1]
            body.append(f"{name} = s32[3] add({before}, m), {at(k)}")
        if kind == "equal":
            shapes = ", ".join(["s32[3]"] * size)
            body.append(f"ROOT t = ({shapes}) tuple({', '.join(names)})")
        text = "\n".join(body)
        return hloopt.parse(f"HloModule m\nENTRY e {{\n{text}\n}}\n")

    passes = {"equal": "cse", "chain": "simplify,constant-folding,dce"}[kind]
    small, large = module(most // 10), module(most)
    few = count_calls(lambda: hloopt.optimize(small, pipeline=passes))
    many = count_calls(lambda: hloopt.optimize(large, pipeline=passes))
    assert many < 11 * few
    result = hloopt.optimize(large, pipeline=passes)
    kept = max(len(lines_of(result, entry)) for entry in result.entry)
    assert kept == MOST_LINES
