"""The likeliest mistakes: what is said of each, word for word, and where."""

from __future__ import annotations

import re

import pytest

from hloopt.errors import ParseError
from hloopt.text.parser import parse_module

SUM = """%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%a, %b)
}

"""
MODULE = f"""HloModule train, is_scheduled=true

{SUM}ENTRY %main (x: f32[2,3]) -> f32[2] {{
  %x = f32[2,3]{{1,0}} parameter(0)
  %zero = f32[] constant(0)
  %table = f32[2,3]{{1,0}} constant({{ {{ 1, 2, 3 }}, {{ 4, 5, 6 }} }})
  %scaled = f32[2,3]{{1,0}} multiply(%x, %table), metadata={{op_name="jit(f)/mul" source_line=3}}
  %sums = f32[2]{{0}} reduce(%scaled, %zero), dimensions={{1}}, to_apply=%sum
  ROOT %result = f32[2]{{0}} negate(%sums)
}}
"""


def swap(old: str, new: str) -> str:
    """The module with a part of it in other words."""
    assert old in MODULE
    return MODULE.replace(old, new, 1)


def cut(end: str) -> str:
    """The module up to where ``end`` stands."""
    return MODULE[: MODULE.index(end)]


def later(part: str, before: str | None) -> str:
    """The module with a part moved to before another one, or to its end."""
    rest = swap(part, "")
    at = len(rest) if before is None else rest.index(before)
    return rest[:at] + part + rest[at:]


def logged(text: str) -> str:
    """Each line with what absl puts before it."""
    prefix = "I0000 00:00:1700000000.123456   12345 hlo_pass.cc:45] "
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


SEVERAL = (
    swap("add(", "ad(")
    .replace("%table = f32[2,3]", "%table = f32[2,3")
    .replace("dimensions={1}", "dimension={1}")
    .replace("negate(%sums)", "negate(%sums), unknown=1, calls={")
)

MISTAKES = [
    (
        "a text cut off in a string",
        cut("(f)/mul"),
        [
            "13:71: the text ends within a string",
            "note: the string begins on line 13, column 67",
            "note: the text may have been cut off",
        ],
    ),
    (
        "a text cut off in a literal",
        cut(", 6 }"),
        [
            "12:56: the text ends within brackets",
            "note: the '(' begins on line 12, column 34",
            "note: the text may have been cut off",
        ],
    ),
    (
        "a text cut off between instructions",
        cut("  %sums"),
        [
            "13:94: the text ends within computation 'main': expected '}'",
            "note: computation 'main' begins on line 9",
            "note: the text may have been cut off",
        ],
    ),
    (
        "a text cut off in a list of operands",
        cut("%table), meta"),
        [
            "13:39: the text ends within brackets",
            "note: the '(' begins on line 13, column 35",
            "note: the text may have been cut off",
        ],
    ),
    (
        "a text cut off behind an opcode",
        cut("(%scaled, %zero)"),
        [
            "14:27: the text ends within computation 'main': expected '}'",
            "note: computation 'main' begins on line 9",
            "note: the text may have been cut off",
        ],
    ),
    (
        "a text cut off in the name of a computation",
        swap("ENTRY ", "")[: MODULE.index("ENTRY") + len("%ma")],
        [
            "9:4: the text ends within the heading of a computation",
            "note: the text may have been cut off",
        ],
    ),
    (
        "a text cut off in a heading",
        cut(", b: f32[])"),
        [
            "3:15: the text ends within the heading of computation 'sum'",
            "note: the text may have been cut off",
        ],
    ),
    (
        "a text cut off in the header",
        cut("true"),
        [
            "1:31: the text ends before the first computation",
            "note: the text may have been cut off",
        ],
    ),
    ("a text cut off in a comment", cut("}") + "/* open", ["7:1: the comment is not closed"]),
    (
        "no brace at the end of a computation",
        swap("b)\n}", "b)\n"),
        [
            "9:1: computation 'sum' is not closed: expected '}' before this",
            "note: computation 'sum' begins on line 3",
        ],
    ),
    (
        "no brace at the end of the text",
        MODULE.rstrip()[:-1],
        [
            "15:41: the text ends within computation 'main': expected '}'",
            "note: computation 'main' begins on line 9",
            "note: the text may have been cut off",
        ],
    ),
    (
        "no brace before the instructions",
        swap("-> f32[2] {", "-> f32[2]"),
        ["9:36: expected '{' before the instructions of computation 'main'"],
    ),
    (
        "no brace at the end of an attribute",
        swap("dimensions={1}", "dimensions={1"),
        ["14:56: this '{' is not closed"],
    ),
    (
        "no brace at the end of the last attribute",
        swap("negate(%sums)", 'negate(%sums), metadata={op_name="x"'),
        ["15:52: this '{' is not closed"],
    ),
    (
        "no brace at the beginning of a literal",
        swap("{ { 1", "{ 1"),
        ["12:46: expected ')', found ','"],
    ),
    ("no brace within a literal", swap("3 }, {", "3 , {"), ["12:35: this '{' is not closed"]),
    (
        "a brace too many within a computation",
        swap("constant(0)\n", "constant(0)\n}\n"),
        [
            "13:3: instruction 'table' stands outside of a computation",
            "note: this '}' on line 12 ends computation 'main'",
        ],
    ),
    (
        "a brace too many at the end",
        MODULE + "}\n",
        ["17:1: this '}' closes nothing", "note: computation 'main' has been closed on line 16"],
    ),
    ("no quote at the end of a string", swap('mul"', "mul"), ["13:67: the string is not closed"]),
    (
        "no parenthesis at the end",
        swap("negate(%sums)", "negate(%sums"),
        ["15:34: this '(' is not closed"],
    ),
    (
        "no parenthesis before attributes",
        swap("%zero), dim", "%zero, dim"),
        ["14:44: expected ')' before attribute 'dimensions'"],
    ),
    (
        "no parenthesis before operands",
        swap("negate(%sums", "negate %sums"),
        ["15:35: expected '(', found '%sums'"],
    ),
    (
        "a parenthesis too many",
        swap("negate(%sums)", "negate(%sums))"),
        ["15:41: this ')' closes nothing"],
    ),
    (
        "no bracket at the end of a shape",
        swap("f32[2]{0} negate", "f32[2 negate"),
        ["15:24: expected ',' or ']', found 'negate'"],
    ),
    (
        "no heading",
        swap("%sum (a: f32[], b: f32[]) -> f32[] {\n", ""),
        ["3:3: instruction 'a' stands outside of a computation"],
    ),
    (
        "an operand that nothing defines",
        swap("%x, %table", "%x, %tabel"),
        ["13:40: there is no instruction 'tabel' in 'main'; did you mean 'table'?"],
    ),
    (
        "an operand of another computation",
        swap("%x, %table", "%x, %a"),
        [
            "13:40: there is no instruction 'a' in 'main'",
            "note: that of line 4 belongs to 'sum': each computation has its own names",
        ],
    ),
    (
        "an operand before its definition",
        later("  %zero = f32[] constant(0)\n", "  ROOT %result"),
        [
            "13:37: 'zero' is used before its definition on line 14",
            "note: an instruction stands after its operands",
        ],
    ),
    (
        "an operand of itself",
        swap("negate(%sums)", "negate(%result)"),
        ["15:35: 'result' is an operand of itself"],
    ),
    (
        "a computation that nothing defines",
        swap("to_apply=%sum", "to_apply=%summ"),
        ["14:70: there is no computation 'summ'; did you mean 'sum'?"],
    ),
    (
        "a computation before its definition",
        later(SUM, None),
        [
            "8:70: computation 'sum' is called before its definition on line 11",
            "note: a computation precedes those that call it",
        ],
    ),
    (
        "a computation that calls itself",
        swap("add(%a, %b)", "call(%a), to_apply=%sum"),
        ["6:42: computation 'sum' calls itself"],
    ),
    (
        "an unknown element type",
        swap("f32[2]{0} negate", "f3[2]{0} negate"),
        ["15:18: unknown element type 'f3'; did you mean 'f32'?"],
    ),
    (
        "an element type of another system",
        swap("f32[2]{0} negate", "i32[2]{0} negate"),
        ["15:18: unknown element type 'i32'; did you mean 's32'?"],
    ),
    (
        "a negative size",
        swap("f32[2]{0} negate", "f32[-2]{0} negate"),
        ["15:22: -2 is not a dimension size"],
    ),
    (
        "a size of more than 64 bits",
        swap("f32[2]{0} negate", "f32[99999999999999999999]{0} negate"),
        ["15:22: 99999999999999999999 does not fit into 64 bits"],
    ),
    (
        "a layout of another rank",
        swap("f32[2]{0} negate", "f32[2]{1,0} negate"),
        ["15:24: the layout orders 2 dimensions, the shape has 1"],
    ),
    (
        "a layout that repeats a dimension",
        swap("f32[2,3]{1,0} mul", "f32[2,3]{1,1} mul"),
        ["13:21: the layout is not a permutation of the dimensions"],
    ),
    (
        "a name given twice",
        swap("%zero =", "%x ="),
        [
            "11:4: instruction 'x' is defined twice in 'main'",
            "note: the first is on line 10",
            "14:37: there is no instruction 'zero' in 'main'",
        ],
    ),
    (
        "a computation given twice",
        swap("ENTRY %main", "ENTRY %sum"),
        ["9:7: computation 'sum' is defined twice", "note: the first is on line 3"],
    ),
    (
        "two entries",
        swap("%sum (a", "ENTRY %sum (a"),
        ["9:1: a second computation is marked ENTRY", "note: the first is 'sum' on line 3"],
    ),
    (
        "two roots",
        swap("  %sums", "  ROOT %sums"),
        [
            "15:9: a second instruction is marked ROOT in 'main'",
            "note: the first is 'sums' on line 14",
        ],
    ),
    (
        "a computation without instructions",
        "ENTRY e {\n}\n",
        ["2:1: expected an instruction, found '}'"],
    ),
    (
        "a literal of fewer dimensions",
        swap("{ { 1, 2, 3 }, { 4, 5, 6 } }", "{ 1, 2, 3, 4, 5, 6 }"),
        ["12:37: too few levels of braces: a literal of shape f32[2,3]{1,0} has 2"],
    ),
    (
        "a literal of more dimensions",
        swap("constant(0)", "constant({0})"),
        ["11:26: a literal of shape f32[] has no braces"],
    ),
    (
        "a literal of fewer elements",
        swap("5, 6 }", "5 }"),
        ["12:50: dimension 1 of f32[2,3]{1,0} has 3 elements, found 2"],
    ),
    (
        "a literal of more elements",
        swap("5, 6 }", "5, 6, 7 }"),
        ["12:50: dimension 1 of f32[2,3]{1,0} has 3 elements, found 4"],
    ),
    (
        "a literal with an equals sign",
        swap("5, 6 }", "5, =6 }"),
        ["12:58: expected a number, a brace or ')', found '='"],
    ),
    (
        "braces too many at the end",
        MODULE + "}} }\n",
        ["17:1: this '}' closes nothing", "note: computation 'main' has been closed on line 16"],
    ),
    (
        "a literal out of range",
        swap("f32[] constant(0)", "s8[] constant(300)"),
        ["11:25: 300 is out of range for s8 (-128 to 127)"],
    ),
    (
        "a literal of another type",
        swap("f32[] constant(0)", "s32[] constant(0.5)"),
        ["11:26: a literal of type s32 takes integers, not 0.5"],
    ),
    (
        "no comma between attributes",
        swap("dimensions={1}, to", "dimensions={1} to"),
        ["14:60: expected ',' before attribute 'to_apply'"],
    ),
    (
        "no comma between operands",
        swap("%x, %table", "%x %table"),
        ["13:39: expected ')' or ',', found '%table'"],
    ),
    (
        "no comma in the header",
        swap("train, is", "train is"),
        ["1:17: expected ',' before attribute 'is_scheduled'"],
    ),
    (
        "no equals sign after a name",
        swap("%zero = f32", "%zero f32"),
        ["11:9: expected '=', found 'f32'"],
    ),
    (
        "no equals sign in an attribute",
        swap("dimensions={1}", "dimensions{1}"),
        ["14:45: expected '=' after 'dimensions'"],
    ),
    ("no opcode", swap("negate(%sums)", "%sums"), ["15:33: expected '(' after '%sums'"]),
    (
        "an attribute that is missing",
        swap(", dimensions={1}", ""),
        ["14:4: reduce needs attribute 'dimensions'"],
    ),
    (
        "an attribute of another op",
        swap("}, to_apply", "}, direction=LT, to_apply"),
        ["14:61: reduce has no attribute 'direction': it belongs to compare"],
    ),
    (
        "an attribute of the module that there is not",
        swap("is_scheduled", "is_sheduled"),
        ["1:18: a module has no attribute 'is_sheduled'; did you mean 'is_scheduled'?"],
    ),
    (
        "a comma too many behind attributes",
        swap("to_apply=%sum\n", "to_apply=%sum,\n"),
        ["14:74: expected an attribute after this ','"],
    ),
    (
        "a comma too many behind operands",
        swap("%sums)", "%sums,)"),
        ["15:40: expected an operand after this ','"],
    ),
    (
        "an unknown opcode",
        swap("multiply(", "multipy("),
        ["13:27: unknown opcode 'multipy'; did you mean 'multiply'?"],
    ),
    (
        "an operand too few",
        swap("%x, %table", "%x"),
        ["13:4: multiply takes 2 operands, 'scaled' has 1"],
    ),
    (
        "an operand written with another shape",
        swap("multiply(%x,", "multiply(f32[3,2] %x,"),
        ["13:45: operand 'x' is written with shape f32[3,2], it has f32[2,3]{1,0}"],
    ),
    (
        "parameter numbers with a gap",
        swap("parameter(1)", "parameter(2)"),
        ["5:4: parameter 2 is defined, parameter 1 is not"],
    ),
    (
        "a parameter number given twice",
        swap("parameter(1)", "parameter(0)"),
        ["5:4: parameter 0 is defined twice"],
    ),
    (
        "a result declared with another shape",
        swap("-> f32[2] {", "-> f32[3] {"),
        ["9:8: computation 'main' is declared to give f32[3], its root has shape f32[2]{0}"],
    ),
    (
        "curly quotes",
        swap('"jit(f)/mul"', "\u201cjit(f)/mul\u201d"),
        [
            '13:67: character U+201C (LEFT DOUBLE QUOTATION MARK) stands in the place of "',
            "note: there are 2 characters of this sort in the text",
        ],
    ),
    (
        "blanks that are none",
        swap("  %zero", "\u00a0\u00a0%zero"),
        [
            "11:1: character U+00A0 (NO-BREAK SPACE) stands in the place of a blank",
            "note: there are 2 characters of this sort in the text",
        ],
    ),
    (
        "instructions left out",
        swap("  %zero = f32[] constant(0)\n", "  ...\n"),
        ["11:3: a part of the text is left out here", "note: the whole text is needed"],
    ),
    (
        "computations left out",
        swap(SUM, "...\n\n"),
        ["3:1: a part of the text is left out here", "note: the whole text is needed"],
    ),
    (
        "a conflict of versions",
        swap("  %zero", "<<<<<<< HEAD\n  %zero"),
        ["11:1: this is the mark of a conflict between two versions"],
    ),
    (
        "two modules",
        MODULE + "\n" + MODULE,
        [
            "18:1: a second module begins here: one of 2 in this text",
            "note: modules begin on lines 1, 18",
            "note: this cuts the second one out: sed -n '18,33p' FILE",
        ],
    ),
    (
        "text around the module",
        "Compiling f.\n\n" + MODULE + "\ndone\n",
        [
            "1:1: this is not part of the module, which begins on line 3",
            "note: it is passed over unless read strictly",
        ],
    ),
    (
        "lines of a log",
        logged(MODULE),
        [
            "1:1: this is not part of the module, which begins on line 1",
            "note: it is passed over unless read strictly",
        ],
    ),
    (
        "two modules in a log",
        logged(MODULE + MODULE),
        [
            "17:55: a second module begins here: one of 2 in this text",
            "note: modules begin on lines 1, 17",
            "note: this cuts the second one out: sed -n '17,32p' FILE",
        ],
    ),
    (
        "several mistakes",
        SEVERAL,
        [
            "6:23: unknown opcode 'ad'; did you mean 'pad'?",
            "12:19: expected ',' or ']', found '{'",
            "14:45: reduce has no attribute 'dimension'; did you mean 'dimensions'?",
            "15:43: negate has no attribute 'unknown'",
            "16:2: the text ends within computation 'main': expected '}'",
            "note: computation 'main' begins on line 9",
            "note: the text may have been cut off",
        ],
    ),
]


def told(text: str, strict: bool = True) -> list[str]:
    """All mistakes of a text with their notes, as ``line:column: message``."""
    with pytest.raises(ParseError) as caught:
        parse_module(text, "m", strict=strict)
    lines = []
    for error in (caught.value, *caught.value.others):
        lines.append(f"{error.line}:{error.column}: {error.message}")
        lines += [f"note: {note}" for note in error.notes]
    return lines


def test_the_module_itself_is_right() -> None:
    """What the mistakes are made in has none."""
    assert not parse_module(MODULE, strict=True).warnings


@pytest.mark.parametrize(
    ("text", "expected"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES]
)
def test_each_mistake_is_told_once_and_where_it_is(text: str, expected: list[str]) -> None:
    """Place, message and notes of every one; what follows from a mistake is none of its own."""
    assert told(text) == expected


FOREIGN = [
    ("module @jit_f attributes {a.b = 1 : i32} {\n}\n", "this is MLIR (StableHLO?), not HLO text"),
    ("{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }", "this is a jaxpr, not HLO text"),
    ("; ModuleID = 'm'\nsource_filename = \"m\"\n", "this is LLVM IR, not HLO text"),
    (".version 8.0\n.target sm_90\n", "this is PTX, not HLO text"),
    ("<!DOCTYPE html>\n<html></html>\n", "this is an HTML page, not HLO text"),
    ("<?xml version='1.0'?>\n", "this is XML, not HLO text"),
    ('{"hlo": 1}', "this is JSON, not HLO text"),
    ("digraph G {\n}\n", "this is a graph in the DOT language, not HLO text"),
    (
        "BufferAssignment:\nallocation 0\n",
        "this is a report of XLA on memory (a buffer assignment), not HLO text",
    ),
    (
        "HloLiveRange (max 12):\n  InstructionSequence:\n",
        "this is a report of XLA on memory (a buffer assignment), not HLO text",
    ),
    (
        "xla_cpu_enable_fast_min_max: false\n",
        "this is the flags XLA had (debug_options), not HLO text",
    ),
    ("import jax, jax.numpy as jnp\n", "this is Python, not HLO text"),
    ('"""A program."""\n', "this is Python, not HLO text"),
    (
        'node {\n  name: "x"\n  op: "Add"\n}\n',
        "this is a TensorFlow GraphDef as text, not HLO text",
    ),
    ('hlo_module {\n  name: "m"\n}\n', "this is an HLO protocol buffer as text, not HLO text"),
    ('name: "m"\nid: 3\n', "this is a protocol buffer as text, not HLO text"),
    (
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        "this is a Git LFS pointer, not HLO text",
    ),
    (
        "Traceback (most recent call last):\n  File\n",
        "this is the traceback of a Python program, not HLO text",
    ),
    ("import jax\n", "this is Python, not HLO text"),
    ("#include <cuda.h>\n", "this is C++, not HLO text"),
    ("diff --git a/m.hlo b/m.hlo\n", "this is a patch, not HLO text"),
    ("'HloModule m\\n\\nENTRY e {}'", "this is the repr of HLO text, not HLO text"),
    ("", "the text is empty: there is no module in it"),
    ("// nothing\n/* here */\n", "the text holds comments only: there is no module in it"),
    ("hello world\n", "expected 'HloModule' or a computation, found 'hello'"),
]


@pytest.mark.parametrize(("text", "expected"), FOREIGN, ids=[row[1] for row in FOREIGN])
def test_other_languages_are_called_by_their_names(text: str, expected: str) -> None:
    """Rather than a word that HLO does not have there."""
    assert told(text)[0] == f"1:1: {expected}"


@pytest.mark.parametrize(
    "text",
    [
        "Compiling f.\n\n" + MODULE + "\ndone in 3 s\n",
        "```\n" + MODULE + "```\n",
        "I0101 10:00:00.000001       1 compiler.cc:7] Compiling\n" + logged(MODULE),
        re.sub("(?m)^", "I0101 10:00:00.000001 12345 compiler.cc:7] ", MODULE),
        "".join(
            f"2024-05-01 12:00:00.123456: I xla/a.cc:1] {line}\n" for line in MODULE.splitlines()
        ),
        "> " + MODULE.replace("\n", "\n> "),
        re.sub("(?m)^(.*)$", "\x1b[32m\\1\x1b[0m", MODULE),
    ],
    ids=["prose", "fences", "absl", "glog", "tensorflow", "mail", "colours"],
)
def test_a_module_within_a_log_is_read_with_a_warning(text: str) -> None:
    """Its instructions keep the places they have in the log."""
    module = parse_module(text)
    sums = module.entry.by_name["sums"]
    assert text[sums.offset :].startswith("sums = ")
    assert [message for _, message in module.warnings] == [
        "what surrounds the module is passed over"
    ]


def test_mistakes_within_a_log_keep_their_places() -> None:
    """The column counts what the log puts before the line."""
    text = "x\n" + logged(swap("%x, %table", "%x, %tabel"))
    assert told(text, strict=False) == [
        "14:94: there is no instruction 'tabel' in 'main'; did you mean 'table'?"
    ]


def test_a_brace_too_many_does_not_make_a_log_of_a_module() -> None:
    """What follows it is HLO, and no prose to pass over."""
    text = "x\n" + swap("constant(0)\n", "constant(0)\n}\n")
    assert told(text, strict=False)[0] == "1:1: expected 'HloModule' or a computation, found 'x'"


def test_at_most_twenty_mistakes_are_listed() -> None:
    """The first ones; the error says that there are more."""
    lines = "".join(f"  a{n} = f32[] add(x{n}, x{n})\n" for n in range(25))
    with pytest.raises(ParseError) as caught:
        parse_module(f"e {{\n{lines}}}\n")
    assert [error.line for error in caught.value.others] == list(range(3, 22))
    assert caught.value.more
    assert not caught.value.others[0].others


def test_exactly_twenty_mistakes_are_all() -> None:
    """Nothing is said of more where there are none."""
    lines = "".join(f"  a{n} = f32[] add(x{n}, x{n})\n" for n in range(20))
    with pytest.raises(ParseError) as caught:
        parse_module(f"e {{\n{lines}}}\n")
    assert len(caught.value.others) == 19
    assert not caught.value.more


def test_what_follows_from_a_mistake_is_not_told() -> None:
    """A broken instruction without a shape takes all that needs it with it, and the caller's result."""
    text = """
    f {
      p = f32[2] parameter(0)
      a = f32[2 negate(p)
      b = negate(a)
      ROOT c = add(b, a)
    }
    ENTRY e {
      x = f32[2] parameter(0)
      y = call(x), to_apply=f
      z = f33[2] negate(x)
      ROOT w = tuple(y, z)
    }
    """
    assert told(text) == [
        "4:17: expected ',' or ']', found 'negate'",
        "11:11: unknown element type 'f33'; did you mean 'f32'?",
    ]


def test_many_mistakes_cost_no_more_than_reading() -> None:
    """Every line of a long text is wrong: the pieces behind the twentieth are not looked into."""
    lines = "".join(f"  a{n} = f32[] add(x{n}, x{n}\n" for n in range(20_000))
    assert len(told(f"e {{\n{lines}}}\n")) == 20


def test_a_brace_too_many_in_a_line_ends_no_computation() -> None:
    """What follows on the line is the rest of the attribute; the instructions below it are read on."""
    text = swap("constant(0)", 'constant(0), backend_config={"a":{}}},"b":{"c":[]}}').replace(
        "%x, %table", "%x, %tabel"
    )
    assert told(text) == [
        "11:53: this '}' closes nothing",
        "13:40: there is no instruction 'tabel' in 'main'; did you mean 'table'?",
    ]


def test_a_repeated_mistake_is_told_once() -> None:
    """An element type that does not exist, on each of many lines."""
    lines = "".join(f"  a{n} = i32[2]{{0}} iota(), iota_dimension=0\n" for n in range(30))
    assert told(f"e {{\n{lines}}}\n") == ["2:8: unknown element type 'i32'; did you mean 's32'?"]


def test_a_brace_too_many_before_the_first_instruction() -> None:
    """It is the mistake, and the computation is read on behind it."""
    text = swap("-> f32[2] {\n", "-> f32[2] {\n}\n").replace("%x, %table", "%x, %tabel")
    assert told(text) == [
        "10:1: this '}' ends computation 'main' before its first instruction",
        "14:40: there is no instruction 'tabel' in 'main'; did you mean 'table'?",
    ]
