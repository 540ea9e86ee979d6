"""The header, and what instructions say about themselves: each constraint broken, and its valid neighbour."""

from __future__ import annotations

import pytest

from tests.helpers.neighbours import Pair, check_pair

ENTRY = """
ENTRY e {
  p = f32[4] parameter(0)
  q = (f32[4], s32[2]) parameter(1)
  x = s32[2] get-tuple-element(q), index=1
  ROOT r = (f32[4], s32[2]) tuple(p, x)
}"""


def header(attributes: str) -> str:
    """A module with two parameters and a tuple."""
    return f"HloModule m, {attributes}\n{ENTRY}"


def noted(attributes: str, instruction: str = "f32[4] negate(p)", tables: str = "") -> str:
    """An instruction in line 4, or behind the tables."""
    return (
        f"HloModule m\n{tables}ENTRY e {{\n  p = f32[4] parameter(0)\n"
        f"  ROOT r = {instruction}{attributes}\n}}"
    )


TABLES = """
FileNames
1 "f.py"

FunctionNames
1 "main"

FileLocations
1 {file_name_id=<F> function_name_id=<N> line=3}

StackFrames
1 {file_location_id=<L>}
2 {file_location_id=1 parent_frame_id=<P>}

"""


def tables(**ids: str) -> str:
    """Stack tables of two frames, in lines 2 to 14."""
    text = TABLES
    for letter in "FNLP":
        text = text.replace(f"<{letter}>", ids.get(letter, "1"))
    return text


DISAGREES = "module m: entry_computation_layout gives"

PAIRS = [
    Pair(
        "there is a replica",
        "device-count",
        header("replica_count=<>"),
        "1",
        "0",
        0,
        "module m: replica_count=0 is not a positive number",
    ),
    Pair(
        "there is a partition",
        "device-count",
        header("num_partitions=<>"),
        "2",
        "-2",
        0,
        "module m: num_partitions=-2 is not a positive number",
    ),
    Pair(
        "the header has the shapes of parameters",
        "entry-layout",
        "HloModule m, entry_computation_layout={(f32[<>])->f32[]}\nENTRY e {\n"
        "  p = f32[4] parameter(0)\n  ROOT c = f32[] constant(0)\n}",
        "4",
        "5",
        0,
        f"{DISAGREES} parameter 0 the shape f32[5], it has f32[4]",
    ),
    Pair(
        "an alias is an array",
        "alias",
        header("input_output_alias={{0}: <>}"),
        "(0, {})",
        "(1, {})",
        0,
        "module m: input_output_alias: {0} of the result is f32[4], {} of parameter 1 is "
        "(f32[4], s32[2]); both must be arrays",
    ),
    Pair(
        "an alias has the size of its parameter",
        "alias",
        header("input_output_alias={{<>}: (0, {})}"),
        "0",
        "1",
        0,
        "module m: input_output_alias: {1} of the result has 8 bytes, {} of parameter 0 has 16",
    ),
    Pair(
        "a parameter has one alias",
        "alias",
        "HloModule m, input_output_alias={{0}: (0, {}), {1}: (<>, {})}\nENTRY e {\n"
        "  p = f32[4] parameter(0)\n  q = f32[4] parameter(1)\n"
        "  ROOT r = (f32[4], f32[4]) tuple(p, q)\n}",
        "1",
        "0",
        0,
        "module m: input_output_alias: {} of parameter 0 is aliased with {0} and with {1}",
    ),
    Pair(
        "a result has one alias",
        "alias",
        "HloModule m, input_output_alias={{0}: (0, {}), {<>}: (1, {})}\nENTRY e {\n"
        "  p = f32[4] parameter(0)\n  q = f32[4] parameter(1)\n"
        "  ROOT r = (f32[4], f32[4]) tuple(p, q)\n}",
        "1",
        "0",
        0,
        "module m: input_output_alias: {0} of the result is aliased twice",
    ),
    Pair(
        "what must be aliased is in one memory space",
        "alias",
        "HloModule m, input_output_alias={{}: (0, {}, <>-alias)}, "
        "entry_computation_layout={(f32[4]{0:S(5)})->f32[4]{0}}\nENTRY e {\n"
        "  ROOT p = f32[4] parameter(0)\n}",
        "may",
        "must",
        0,
        "module m: input_output_alias: {} of the result is f32[4]{0}, {} of parameter 0 is "
        "f32[4]{0:S(5)}; must-alias needs equal shapes and layouts",
    ),
    Pair(
        "a donor is an array",
        "donor",
        header("buffer_donor={(1, {<>})}"),
        "1",
        "",
        0,
        "module m: buffer_donor: {} of parameter 1 is not an array",
    ),
    Pair(
        "a donor has no alias",
        "donor",
        header("input_output_alias={{0}: (0, {})}, buffer_donor={(<>)}"),
        "1, {0}",
        "0, {}",
        0,
        "module m: buffer_donor: {} of parameter 0 is aliased with a result",
    ),
    Pair(
        "locations are in files that are listed",
        "stack-frame",
        noted("", tables=tables(F="<>")),
        "1",
        "2",
        0,
        "module m: FileLocations 1: file_name_id=2 is not a row of FileNames",
    ),
    Pair(
        "locations are in functions that are listed",
        "stack-frame",
        noted("", tables=tables(N="<>")),
        "1",
        "3",
        0,
        "module m: FileLocations 1: function_name_id=3 is not a row of FunctionNames",
    ),
    Pair(
        "frames have locations",
        "stack-frame",
        noted("", tables=tables(L="<>")),
        "1",
        "2",
        0,
        "module m: StackFrames 1: file_location_id=2 is not a row of FileLocations",
    ),
    Pair(
        "frames have parents",
        "stack-frame",
        noted("", tables=tables(P="<>")),
        "1",
        "3",
        0,
        "module m: StackFrames 2: parent_frame_id=3 is not a row of StackFrames",
    ),
    Pair(
        "metadata names a frame that is listed",
        "stack-frame",
        noted(', metadata={op_name="stack_frame_id=9" stack_frame_id=<>}', tables=tables()),
        "2",
        "9",
        18,
        "%r: stack_frame_id=9 is not a row of StackFrames",
    ),
    Pair(
        "an origin has the tree of an array",
        "origin",
        noted(", origin={<>}"),
        '{"a" {0}}',
        '({"a"})',
        4,
        '%r: origin={({"a"})} does not have the tree of f32[4]',
    ),
    Pair(
        "an origin has the tree of a tuple",
        "origin",
        noted(", origin={<>}", "(f32[4], (f32[4])) tuple(p, t)").replace(
            "  ROOT", "  t = (f32[4]) tuple(p)\n  ROOT"
        ),
        '({"a"}, ({}))',
        '({"a"}, {})',
        5,
        '%r: origin={({"a"}, {})} does not have the tree of (f32[4], (f32[4]))',
    ),
    Pair(
        "each array is replicated or not",
        "parameter-replication",
        "HloModule m\nENTRY e {\n"
        "  ROOT p = (f32[4], (s32[])) parameter(0), parameter_replication={true<>}\n}",
        ",false",
        "",
        3,
        "%p: parameter_replication= has 1 flags, (f32[4], (s32[])) has 2 leaves",
    ),
    Pair(
        "what is exact has no accuracy",
        "result-accuracy",
        noted(", result_accuracy={mode=highest}", "f32[4] <>(p)"),
        "exponential",
        "negate",
        4,
        "%r: negate is not approximated and has no result_accuracy=",
    ),
    Pair(
        "64 bits count the bytes of a shape",
        "shape-form",
        "HloModule m\nENTRY e {\n  ROOT p = f32[<>,1048576,1048576] parameter(0)\n}",
        "1048576",
        "4194304",
        3,
        f"%p: parameter: shape f32[4194304,1048576,1048576] has {1 << 64} bytes, more than 64 bits "
        "count",
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.name for pair in PAIRS])
def test_header_and_notes(pair: Pair) -> None:
    """The neighbour passes, the broken text is refused by name and line."""
    check_pair(pair)


@pytest.mark.parametrize("value", ["{[synthetic_call]}", "{}"])
def test_an_origin_without_a_tree_is_held_to_nothing(value: str) -> None:
    """A synthetic call says nothing of the shape; a tree of another shape shows that it would be seen."""
    said = '%r: origin={({"a"})} does not have the tree of f32[4]'
    check_pair(Pair("no tree", "origin", noted(", origin=<>"), value, '{({"a"})}', 4, said))


def test_frames_are_looked_up_in_tables_that_are_there() -> None:
    """A module that was cut out of another one has frames and no tables."""
    text = noted(", metadata={stack_frame_id=9}", tables="<>")
    said = "%r: stack_frame_id=9 is not a row of StackFrames"
    check_pair(Pair("tables", "stack-frame", text, "", tables(), 18, said))
