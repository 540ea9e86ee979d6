"""Forms that are rare, newer than this parser, or read by XLA for no good reason."""

from __future__ import annotations

import re

import pytest

from hloopt.errors import ParseError, UnsupportedError
from hloopt.interpret import supported
from hloopt.ir import Instruction, Module
from hloopt.pipelines import optimize_module
from hloopt.text.parser import parse_module
from hloopt.text.printer import print_instruction
from hloopt.types import AliasEntry, TupleShape, Verbatim, array
from hloopt.verifier import verify_module

SUM = "%sum { %a = f32[] parameter(0) %b = f32[] parameter(1) ROOT %c = f32[] add(%a, %b) }\n"


def body(*lines: str, strict: bool = False) -> Module:
    """The parameters p: f32[2] and t: (f32[2], (s32[], f32[3])) and the given lines."""
    return parse_module(
        f"HloModule m\n{SUM}ENTRY %main {{\n  %p = f32[2]{{0}} parameter(0)\n"
        "  %t = (f32[2], (s32[], f32[3])) parameter(1)\n  " + "\n  ".join(lines) + "\n}\n",
        "m",
        strict=strict,
    )


def root(line: str, *, strict: bool = False) -> Instruction:
    return body(f"ROOT %r = {line}", strict=strict).entry.root


def message(text: str, *, strict: bool = False) -> str:
    with pytest.raises(ParseError) as caught:
        parse_module(text, "m", strict=strict)
    error = caught.value
    return f"{error.line}:{error.column}: {error.message}"


def refused(*lines: str, strict: bool = False) -> str:
    """The message for the lines of ``body``, the first of which is line 6."""
    with pytest.raises(ParseError) as caught:
        body(*lines, strict=strict)
    error = caught.value
    return f"{error.line}:{error.column}: {error.message}"


def warnings(module: Module) -> list[str]:
    """Warnings with the text they stand at."""
    assert module.source is not None
    text = module.source.text
    return [f"{text[offset : offset + 6]!r}: {found}" for offset, found in module.warnings]


# ---- what XLA does not have -------------------------------------------------------------------------

UNKNOWN = """HloModule m, new_flag={a=1}, other=[2,4]<=[8]

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %main (p: f32[8]) -> (f32[8], f32[8]) {
  %p = f32[8]{0} parameter(0)
  %x = f32[8]{0} multiply(%p, %p), colour=max{'x','y'}, list=[1,2], pair=(1,2), region=%sum
  %one = f32[8]{0} frobnicate(%x, %p), dimensions={0}, to_apply=%sum, metadata={op_name="f" new_key=7}
  %two = f32[8]{0} frobnicate(%x, %p), dimensions={0}, to_apply=%sum
  %unused = f32[8]{0} other-op(%x)
  %start = ((f32[8]), f32[8]) frobnicate-start(%x), sharding={devices=[2]<=[2] new_part=7}
  %done = f32[8] frobnicate-done(%start)
  ROOT %r = (f32[8]{0}, f32[8]{0}) tuple(%one, %two)
}
"""


def test_unknown_things_are_printed_back_as_they_were() -> None:
    """Opcodes and attributes of a newer XLA survive, and the text stays the same."""
    module = parse_module(UNKNOWN)
    verify_module(module)
    assert module.to_text() == UNKNOWN + "\n"
    assert module.attributes["new_flag"] == Verbatim("{a=1}")
    x, one = module.entry.by_name["x"], module.entry.by_name["one"]
    assert x.attributes["colour"] == Verbatim("max{'x','y'}")
    assert x.attributes["region"] is module.computations["sum"]
    assert one.attributes["to_apply"] is module.computations["sum"]
    assert one.op.side_effect
    assert one.metadata is not None
    assert one.metadata.fields["new_key"] == "7"


def test_unknown_things_are_named_once() -> None:
    """Each is one warning at its first place, however often it occurs."""
    assert warnings(parse_module(UNKNOWN)) == [
        "'new_fl': a module has no attribute 'new_flag'",
        "'other=': a module has no attribute 'other'",
        "'colour': multiply has no attribute 'colour'",
        "'list=[': multiply has no attribute 'list'",
        "'pair=(': multiply has no attribute 'pair'",
        "'region': multiply has no attribute 'region'; did you mean 'origin'?",
        "'frobni': unknown opcode 'frobnicate'",
        "'new_ke': metadata has no 'new_key'",
        "'other-': unknown opcode 'other-op'",
        "'frobni': unknown opcode 'frobnicate-start'",
        (
            "'new_pa': sharding=: expected 'T', 'device', 'devices', 'last_tile_dim_replicate', "
            "'last_tile_dims', 'manual', 'maximal', 'metadata', 'replicated', 'shard_as', "
            "'shard_like', 'unknown', 'unreduced' or '}', found 'new_part='"
        ),
        "'frobni': unknown opcode 'frobnicate-done'",
    ]


@pytest.mark.parametrize("pipeline", ["O0", "O1", "O2", "O3"])
def test_unknown_ops_stay_where_they_are(pipeline: str) -> None:
    """They are not merged, though equal, not removed, though unused, and not fused."""
    found = optimize_module(parse_module(UNKNOWN), pipeline, None)
    verify_module(found)
    opcodes = [instruction.opcode for instruction in found.entry]
    assert [name for name in opcodes if "frob" in name or "other" in name] == [
        *("frobnicate", "frobnicate", "other-op", "frobnicate-start", "frobnicate-done"),
    ]
    assert "sum" in found.computations


def test_unknown_ops_are_not_run() -> None:
    """The interpreter refuses them, and what has attributes nobody knows, before anything runs."""
    with pytest.raises(UnsupportedError, match="x: multiply has no attribute 'colour'") as caught:
        supported(parse_module(UNKNOWN))
    assert caught.value.line == 11
    known = re.sub(r"(multiply\(%?p, %?p\)).*", r"\1", UNKNOWN)
    with pytest.raises(UnsupportedError, match="one: frobnicate has no evaluation") as caught:
        supported(parse_module(known))
    assert caught.value.line == 12


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%r = f32[2] negat(%p)", "6:15: unknown opcode 'negat'; did you mean 'negate'?"),
        ("%r = f32[2] a-start(%p)", "6:15: unknown opcode 'a-start'"),
        ("%r = f32[2] copy-update(%p)", "6:15: unknown opcode 'copy-update'"),
        ("%r = f32[2] add(%p, negat(%p))", "6:23: unknown opcode 'negat'; did you mean 'negate'?"),
        ("%r = f32[2] negate(%p), colour=1", "6:27: negate has no attribute 'colour'"),
        (
            "%r = f32[2] negate(%p), metadata={opname=3}",
            "6:37: metadata has no 'opname'; did you mean 'op_name'?",
        ),
        (
            "%r = f32[2] negate(%p), result_accuracy={mode=highest}",
            "6:27: negate has no attribute 'result_accuracy': it belongs to acos, acosh, asin, ...",
        ),
    ],
)
def test_unknown_things_are_errors_in_strict_readings(line: str, expected: str) -> None:
    """With their place and what may be meant."""
    assert refused(line, strict=True) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%r = negat(%p)", "6:8: unknown opcode 'negat'; did you mean 'negate'?"),
        (
            "%r = f32[] reduce(%p, %p), dimension={0}, to_apply=%sum",
            "6:30: reduce has no attribute 'dimension'; did you mean 'dimensions'?",
        ),
        ("%r = f32[2] frob(%q)", "6:20: there is no instruction 'q' in 'main'"),
        ("%r = f32[2] negate(%p), colour={", "7:2: the text ends within"),
        ("%r = f32[2] negate(%p), colour=", "6:34: expected a value"),
    ],
)
def test_not_everything_unknown_can_be_kept(line: str, expected: str) -> None:
    """A shape must be there, required attributes must not be misspelt, the rest is sound."""
    assert refused(line).startswith(expected)


def test_forms_of_newer_versions_are_no_mistakes() -> None:
    """What XLA has learned since is read strictly, without a warning."""
    module = parse_module(
        """HloModule m, debug_attributes={
  {"constant"}:({log_mode=default,callback_id=123,partitioned=true})
}
FileNames
1 "f.py"
FunctionNames
1 "g"
FileLocations
1 {file_name_id=1 function_name_id=1 line=10}
StackFrames
1 {file_location_id=1}
ENTRY e {
  p = f32[8,8] parameter(0), sharding={mesh['x'=2,'y'=2], [{}, {}], unreduced=max{'x', 'y'}}
  ROOT k = (f32[8,2], s32[8,2]) topk(p), k=2, largest=true, is_stable=true
}
""",
        strict=True,
    )
    assert module.warnings == []
    again = parse_module(module.to_text(), strict=True)
    assert again.to_text() == module.to_text()


# ---- one instruction --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'ROOT %c = f32[4] add(f32[4] %x, f32[4] %y), metadata={op_name="a"}',
            ["%x = f32[4] parameter(0)", "%y = f32[4] parameter(1)",
             'ROOT %c = f32[4] add(%x, %y), metadata={op_name="a"}'],
        ),
        (
            "f32[4] add(f32[4], f32[4])",
            ["%_0 = f32[4] parameter(0)", "%_1 = f32[4] parameter(1)",
             "ROOT %_ = f32[4] add(%_0, %_1)"],
        ),
        (
            "// a comment\nc = add(f32[4] x, x)",
            ["%x = f32[4] parameter(0)", "ROOT %c = f32[4] add(%x, %x)"],
        ),
        (
            "f32[4] add(f32[4] _0, f32[4])",
            ["%_0 = f32[4] parameter(0)", "%_1 = f32[4] parameter(1)",
             "ROOT %_ = f32[4] add(%_0, %_1)"],
        ),
        (
            "f32[4] negate(add(f32[4] a, f32[4]))",
            ["%a = f32[4] parameter(0)", "%_1 = f32[4] parameter(1)",
             "%add = f32[4] add(%a, %_1)", "ROOT %_ = f32[4] negate(%add)"],
        ),
        (
            "(f32[1]) tuple(f32[1])",
            ["%_0 = f32[1] parameter(0)", "ROOT %_ = (f32[1]) tuple(%_0)"],
        ),
        ("f32[2] constant({1,2})", ["ROOT %_ = f32[2] constant({1, 2})"]),
    ],
)  # fmt: skip
def test_a_text_may_be_one_instruction(text: str, expected: list[str]) -> None:
    """Operands that are written with a shape are its parameters, with a name or without."""
    module = parse_module(text, strict=True)
    verify_module(module)
    assert (module.name, module.entry.name) == ("_", "_")
    assert module.attributes == {"is_scheduled": True}
    assert [print_instruction(instruction) for instruction in module.entry] == expected


def test_one_instruction_may_call_computations() -> None:
    """They stand in braces."""
    module = parse_module(
        "f32[4] fusion(f32[4] x), kind=kLoop, calls={ a = f32[4] parameter(0) b = negate(a) }"
    )
    called = module.entry.root.attributes["calls"]
    assert [instruction.opcode for instruction in called] == ["parameter", "negate"]
    assert parse_module(module.to_text()).to_text() == module.to_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32[4] add(x, f32[4] x)", "1:12: no instruction 'x' before this one"),
        (
            "f32[4] add(f32[4] x, f32[5] x)",
            "1:29: operand 'x' is written with shape f32[5], it has f32[4]",
        ),
        (
            "a = negate(f32[4]) b = negate(a)",
            "1:20: a second instruction, and no computation around them",
        ),
        ("f32[2] add(f32[2] parameter(1), f32[2])", "1:19: parameter 1 is defined"),
        ("f32[4] add(f32[4], f32[4]", "1:26: expected"),
        ("f32[4] negate(f32[4] %t#1)", "1:22: no instruction 't' before this one"),
    ],
)
def test_one_instruction_has_to_be_one(text: str, expected: str) -> None:
    assert message(text).startswith(expected)


# ---- operands ---------------------------------------------------------------------------------------


def test_unknown_ops_in_place_get_names_that_can_be_read() -> None:
    """Opcodes that cannot be names: those of element types, and XLA's own."""
    module = body("ROOT %r = f32[2] add(f32[2] f32(%p), f32[2] __q(%p))")
    assert [one.name for one in module.entry.root.operands] == ["op.f32", "op.__q"]
    assert parse_module(module.to_text()).to_text() == module.to_text()


def test_elements_of_tuples_by_number() -> None:
    """``%t#1#0`` is an element of an element; the same element is one instruction."""
    module = body(
        "%x = s32[] negate(%t#1#0)",
        "%y = f32[2] add(f32[2] t#0, %t #0)",
        "ROOT %r = (s32[], (s32[], f32[3])) tuple(%x, (s32[], f32[3]) %t#1)",
        strict=True,
    )
    assert [print_instruction(one) for one in module.entry][2:] == [
        "%get-tuple-element = (s32[], f32[3]) get-tuple-element(%t), index=1",
        "%get-tuple-element.1 = s32[] get-tuple-element(%get-tuple-element), index=0",
        "%x = s32[] negate(%get-tuple-element.1)",
        "%get-tuple-element.2 = f32[2] get-tuple-element(%t), index=0",
        "%y = f32[2] add(%get-tuple-element.2, %get-tuple-element.2)",
        "ROOT %r = (s32[], (s32[], f32[3])) tuple(%x, %get-tuple-element)",
    ]
    verify_module(module)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%r = f32[2] negate(%p#0)", "6:24: 'p' has shape f32[2]{0}: it has no elements"),
        ("%r = f32[2] negate(%t#2)", "6:24: 't' has 2 elements, there is no 2"),
        (
            "%r = f32[2] negate(f32[3] %t#0)",
            "6:29: operand 't' is written with shape f32[3], it has f32[2]",
        ),
        ("%r = f32[2] negate(%q#0)", "6:22: there is no instruction 'q' in 'main'"),
        ("%r = f32[2] negate(%p#)", "6:24: expected"),
    ],
)
def test_elements_that_are_not_there(line: str, expected: str) -> None:
    assert refused(line).startswith(expected)


def test_an_operand_that_is_only_a_shape_is_passed_over() -> None:
    """XLA does so; a warning says it."""
    module = body("ROOT %r = f32[2] add(%p, f32[7], %p)", strict=True)
    assert print_instruction(module.entry.root) == "ROOT %r = f32[2] add(%p, %p)"
    assert warnings(module) == [
        "'f32[7]': this operand is only a shape: it is passed over, as XLA does"
    ]
    assert refused("ROOT %r = f32[2] negate(f32[2])") == "6:9: negate takes 1 operand, 'r' has 0"


# ---- values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (r'"\a\b\f\n\r\t\v\\\'\"\?"', "\a\b\f\n\r\t\v\\'\"?"),
        (r'"\101\0\18\377"', "A\0\x018\udcff"),
        (r'"\x41\X42\x00043"', "ABC"),
        (r'"\u00e9\U0001F600"', "é\U0001f600"),
        (r'"\303\251"', "é"),
        ("'it\"s'", 'it"s'),
        ('"a\nb\0c"', "a\nb\0c"),
    ],
)
def test_escapes(written: str, value: str) -> None:
    """C's, of bytes and of characters, as XLA reads them."""
    line = f"f32[2] custom-call(%p), custom_call_target={written}"
    target = root(line, strict=True).attributes["custom_call_target"]
    assert target == value
    printed = print_instruction(root(line))
    assert printed.isascii()
    again = root(printed.partition(" = ")[2].replace("%p", "p")).attributes["custom_call_target"]
    assert again == value


@pytest.mark.parametrize(
    "escape",
    [r"\q", r"\400", r"\777", r"\x", r"\x100", r"\u12", r"\ud800", r"\U0000dfff", r"\U00110000"],
)
def test_escapes_that_are_none(escape: str) -> None:
    """They are named where they stand."""
    line = f'%r = f32[2] custom-call(%p), custom_call_target="ab{escape}"'
    assert refused(line) == f"6:54: unknown escape {escape} in a string"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("HloModule m\nENTRY e {\n \0 ROOT p = f32[] parameter(0) }", "3:2"),
        ("HloModule m\n// a \0 b\nENTRY e { ROOT p = f32[] parameter(0) }", "2:6"),
        ("HloModule m\n/* a \0 b */\nENTRY e { ROOT p = f32[] parameter(0) }", "2:6"),
        ("HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }\n\0", "3:1"),
    ],
)
def test_a_nul_byte_is_an_error_outside_of_strings(text: str, place: str) -> None:
    assert message(text).startswith(f"{place}: the text contains a NUL byte")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("18446744073709551615", -1),
        ("9223372036854775808", -(1 << 63)),
        ("9223372036854775807", (1 << 63) - 1),
        ("-9223372036854775808", -(1 << 63)),
        ("000000000000000000000000000000007", 7),
        ("-0", 0),
    ],
)
def test_integers_wrap(written: str, value: int) -> None:
    """64 bits are read into a signed number of 64 bits."""
    found = root(f"f32[2] get-tuple-element(%t), index={written}").attributes["index"]
    assert found == value


@pytest.mark.parametrize("written", ["18446744073709551616", "-9223372036854775809", "9" * 5000])
def test_integers_beyond_64_bits(written: str) -> None:
    """They are an error in every place, whatever their length."""
    shown = written if len(written) < 30 else "9" * 23 + "…"
    expected = f"{shown} does not fit into 64 bits"
    for line, column in (
        (f"%r = f32[2] get-tuple-element(%t), index={written}", 44),
        (f"%r = f32[{written}] negate(%p)", 12),
        (f"%r = f32[2]{{0:T({written})}} negate(%p)", 19),
        (f"%r = f32[2] slice(%p), slice={{[0:{written}]}}", 36),
        (f"%r = f32[2] pad(%p, %p), padding={written}_0", 36),
        (f"%r = f32[2] negate(%p), metadata={{source_line={written}}}", 49),
        (f"%r = f32[2] parameter({written})", 25),
    ):
        assert refused(line) == f"6:{column}: {expected}", line


def test_reversals_are_as_many_as_there_are() -> None:
    """XLA fills up or cuts ``rhs_reversal=``; only 1 reverses."""
    for written, expected in (("1", [1, 0]), ("0x1x1", [0, 1]), ("2x1", [0, 1]), ("1x1", [1, 1])):
        line = f"f32[2,2] convolution(%p, %p), window={{size=1x1 rhs_reversal={written}}}"
        window = root(f"{line}, dim_labels=b01f_01io->b01f").attributes["window"]
        assert [dim.reversal for dim in window.dims] == expected


def test_aliases_in_short() -> None:
    """``{}: 0`` is ``{}: (0, {})``, which XLA's documents show and its parser does not read."""
    text = "HloModule m, input_output_alias={ {}: 0, {1}: (1, {}) }\nENTRY e { p = f32[] parameter(0) }"
    module = parse_module(text)
    aliases = module.attributes["input_output_alias"]
    assert aliases == (AliasEntry((), 0, (), ""), AliasEntry((1,), 1, (), ""))
    assert "input_output_alias={ {}: (0, {}), {1}: (1, {}) }" in module.to_text()
    expected = "1:39: parameter 0 is written without parentheses: (0, {})"
    assert message(text, strict=True) == expected


def test_mixed_floats_in_a_window_without_a_shape() -> None:
    """Where no shape is written the initial value's type decides, and no types are compared."""
    line = "reduce-window(%p, bf16[] constant(1)), window={size=2}, to_apply=%sum"
    assert root(line, strict=True).shape == array("bf16", (1,))


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        ("mesh['x'=2,'y'=2] {'z'}", "the mesh has no axis 'z'"),
        ("mesh['x'=2,'y'=2] {'5'}", "the mesh has no axis '5'"),
        (
            "mesh['x'=2], device_ids=(0,1,2) {'x'}",
            "the mesh has 2 positions, device_ids= lists 3 devices",
        ),
    ],
)
def test_meshes_have_the_axes_and_devices_they_name(mesh: str, expected: str) -> None:
    assert refused(f"%r = f32[2] all-reduce(%p), replica_groups={mesh}, to_apply=%sum").endswith(
        expected
    )


def test_good_meshes() -> None:
    """Axes by name or number, devices as a list or as an iota."""
    for mesh in (
        "mesh['x'=2,'y'=2] {'x','1'}",
        "mesh['x'=2,'y'=2, device_ids=(0,1,2,3)] {'x'}",
        "mesh['x'=2,'y'=2], device_ids=(0,1,2,3) {'x'}",
        "mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'}",
    ):
        line = f"f32[2] all-reduce(%p), replica_groups={mesh}, to_apply=%sum"
        assert root(line, strict=True).attributes["replica_groups"] == Verbatim(mesh)


# ---- size -------------------------------------------------------------------------------------------

DEEP = 5000


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("f32[2] negate(%p), backend_config=" + "{" * DEEP + "}" * DEEP, "braces are nested"),
        ("f32[2] negate(%p), backend_config=" + "{" * DEEP, "the text ends within brackets"),
        ("f32[2] negate(%p), colour=" + "(" * DEEP + ")" * DEEP, "expected"),
        ("f32[2] negate(%p), colour=" + "[" * DEEP + "]" * DEEP, "expected"),
        ("f32[2] transpose(%p), dimensions=" + "{" * DEEP + "}" * DEEP, "braces are nested more than"),
        ("f32[2] call(%p), to_apply=" + "{" * DEEP + "}" * DEEP, "braces are nested more than"),
        ("f32[2] negate(%p), metadata=" + "{" * DEEP + "}" * DEEP, "braces are nested more than"),
        ("f32[2] negate(%p), origin={" + "(" * DEEP + ")" * DEEP + "}", ""),
        ("(" * DEEP + "f32[]" + ")" * DEEP + " negate(%p)", "a shape is nested more than 64 levels"),
        ("(" * DEEP + "f32[]", "this '(' is not closed"),
        ("f32[2] constant(" + "{" * DEEP + "1" + "}" * DEEP + ")", "a literal is nested more than"),
        ("f32[2] constant(" + "(" * DEEP + "1" + ")" * DEEP + ")", "expected"),
        ("f32[2] " + "negate(" * DEEP + "%p" + ")" * DEEP, "instructions are nested more than 100"),
        ("f32[2] " + "negate(" * DEEP, "this '(' is not closed"),
        (
            "f32[2] " + "call(%p), to_apply={ %p = f32[2] parameter(0) %r = f32[2] " * DEEP
            + "negate(%p)" + "}" * DEEP,
            "braces are nested more than 1000",
        ),
        ('f32[2] custom-call(%p), custom_call_target="' + "x" * 1_000_000, "the string is not closed"),
        ("f32[2] custom-call(%p), custom_call_target=" + repr("x" * 1_000_000), ""),
        ("f32[2] negate(/*" + "*" * 1_000_000, "the comment is not closed"),
        ("f32[2] negate(" + "," * 100_000 + ")", "expected"),
        ("f32[2] negate(%p" + "#0" * DEEP + ")", "'p' has shape f32[2]{0}: it has no elements"),
        ("f32[2] negate(" + "f32[2], " * 20_000 + "%p)", ""),
    ],
    ids=map(str, range(21)),
)  # fmt: skip
def test_nesting_and_length_do_not_hurt(line: str, expected: str) -> None:
    """Whatever is too deep is an ordinary error, and none of it takes long."""
    line = f"ROOT %r = {line}"
    if expected:
        place, _, found = refused(line).partition(": ")
        assert found.startswith(expected)
        assert int(place.partition(":")[0]) >= 6
    else:
        assert body(line).entry.root.name == "r"


def test_many_unknown_opcodes() -> None:
    """Looking for what is meant by each of them would take long."""
    module = body(*(f"%x{number} = f32[2] op{number}(%p)" for number in range(3000)))
    assert len(module.warnings) == 1000
    assert len(module.entry) == 3002


def test_a_tuple_of_the_result_is_not_taken_for_elements() -> None:
    """A shape in parentheses in front of an operand is its shape."""
    module = body("ROOT %r = (f32[2], (s32[], f32[3])) copy((f32[2], (s32[], f32[3])) %t)")
    assert isinstance(module.entry.root.shape, TupleShape)


# ---- what XLA prints and few programs have ----------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        r'f32[2] custom-call(%p), custom_call_target="t", backend_config={"a": "\7F\A4"}',
        r'f32[2] custom-call(%p), custom_call_target="t", backend_config={"a": "\u00e9\/}", "b": {"\z": 1}}',
        r'f32[2] negate(%p), frontend_attributes={a={b="\7F\A4{"}, c="d"}',
        r'f32[2] custom-call(%p), custom_call_target="t", backend_config={{{{{{{{"a": "\7F\A4"}}}}}}}}',
    ],
)
def test_strings_of_json_have_escapes_of_their_own(line: str) -> None:
    """They are kept as they are written; a brace in them closes nothing."""
    one = root(line, strict=True)
    written = line.partition("config=")[2] or line.partition("frontend_attributes=")[2]
    name = "backend_config" if "config=" in line else "frontend_attributes"
    assert str(one.attributes[name]) == written
    assert f"{name}={written}" in print_instruction(one)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (r'f32[2] custom-call(%p), custom_call_target="t", backend_config="\7F\A4"', r"\A"),
        (r'f32[2] negate(%p), metadata={op_name="\7F\A4"}', r"\A"),
        (r'f32[2] negate(%p), frontend_attributes={c="\9"}', r"\9"),
    ],
)
def test_strings_of_hlo_have_the_escapes_of_c(line: str, expected: str) -> None:
    """In braces that hold no JSON, too."""
    at = 11 + line.index(expected)
    assert refused(f"ROOT %r = {line}") == f"6:{at + 2}: unknown escape {expected} in a string"


@pytest.mark.parametrize(
    "literal",
    [
        "s32[] 2",
        "s32[2,2]{0,1} { { 1, 2 }, { 3, 4 } }",
        "( s32[4]{0} {128, 128, 64, 3}, pred[] false )",
        "( ( s32[4]{0} {1, 2, 3, 4}, ( c64[] (1, -0.0) ) ), (), bf16[1]{0} {1} )",
        "()",
    ],
)
def test_literals_of_custom_calls(literal: str) -> None:
    """A tuple's elements come each with its shape, as XLA prints them; any order of attributes is read."""
    target = r'custom_call_target="foo\"bar"'
    for attributes in ((target, f"literal={literal}"), (f"literal={literal}", target)):
        one = root(f"f32[2] custom-call(%p), {', '.join(attributes)}", strict=True)
        assert one.attributes["custom_call_target"] == 'foo"bar'
        assert f"literal={literal}" in print_instruction(one)


@pytest.mark.parametrize(
    ("literal", "expected"),
    [
        ("(s32[], s32[]) (1, 2)", "expected a number, '(' or '{', found ','"),
        ("( s32[2]{0} {1} )", "dimension 0 of s32[2]{0} has 2 elements, found 1"),
        ("( {1, 2} )", "expected a shape, '(' or ')', found '{'"),
    ],
)
def test_literals_of_custom_calls_that_are_none(literal: str, expected: str) -> None:
    """The place is that of the mistake."""
    line = f'%r = f32[2] custom-call(%p), custom_call_target="t", literal={literal}'
    assert refused(line).endswith(expected)


@pytest.mark.parametrize(
    "config",
    [
        "{rhs={sparsity=1x1 dimension=0 stride=1}}",
        "{ rhs={ sparsity=1x1  dimension=0 } }",
        "{lhs={sparsity=2x4 dimension=1} rhs={dimension=0 sparsity=1x1 /* of the kernel */}}",
        "{}",
    ],
)
def test_blanks_separate_what_a_convolution_says_of_its_sparsity(config: str) -> None:
    """Fields and operands; in any order."""
    line = (
        "f32[1,2] convolution(%x, %w), sparsity_config=%s, dim_labels=bf_io->bf, window={}"
    ).replace("%s", config)
    module = body("%x = f32[1,3] parameter(2)", "%w = f32[3,2] parameter(3)", f"ROOT %r = {line}")
    verify_module(module)
    assert f"sparsity_config={config}" in print_instruction(module.entry.root)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            "{rhs={sparsity=1x1, dimension=0}}",
            "expected sparsity=, dimension= or stride= or '}', found ','",
        ),
        ("{lhs={}, rhs={}}", "expected lhs= or rhs= or '}', found ','"),
        ("{both={}}", "expected lhs= or rhs= or '}', found 'both='"),
    ],
)
def test_sparsity_of_another_form(config: str, expected: str) -> None:
    """As XLA refuses it."""
    line = f"%r = f32[2,2] convolution(%p, %p), dim_labels=bf_io->bf, sparsity_config={config}"
    assert refused(line).endswith(expected)
