"""Mistakes: line, column and message of each are pinned."""

from __future__ import annotations

import pytest

from hloopt.errors import ParseError
from hloopt.text.parser import parse_module

HEAD = "HloModule m\n\nENTRY %main (a: f32[2]) -> f32[2] {\n  %a = f32[2]{0} parameter(0)\n"


def message(text: str) -> str:
    with pytest.raises(ParseError) as caught:
        parse_module(text, "m", strict=True)
    error = caught.value
    assert str(error).startswith(f"m:{error.line}:{error.column}: error: ")
    return f"{error.line}:{error.column}: {error.message}"


# One line of the entry, which begins in line 5; columns count from the line's start.
LINES = [
    ("ROOT %x = f33[2] add(%a, %a)", "5:11: unknown element type 'f33'; did you mean 'f32'?"),
    ("ROOT %x = f32[2] ad(%a, %a)", "5:18: unknown opcode 'ad'; did you mean 'pad'?"),
    (
        "ROOT %x = f32[2] negat-start(%a)",
        "5:18: unknown opcode 'negat-start'; did you mean 'negate-start'?",
    ),
    ("ROOT %x = f32[2 add(%a, %a)", "5:17: expected ',' or ']', found 'add'"),
    ("ROOT %x = f32[2]{0 add(%a, %a)", "5:20: expected ',', ':' or '}', found 'add'"),
    ("ROOT %x = f32[2]{1} negate(%a)", "5:17: the layout is not a permutation of the dimensions"),
    ("ROOT %x = f32[2]{1,0} negate(%a)", "5:17: the layout orders 2 dimensions, the shape has 1"),
    ("ROOT %x = f32[2]{0:S(1)T(2)} negate(%a)", "5:24: expected 'M', 'P', 'SC' or '}', found 'T'"),
    ("ROOT %x = f32[2] add(%a, %b)", "5:26: there is no instruction 'b' in 'main'"),
    ("ROOT %x = f32[2] add(%a, %a", "5:21: this '(' is not closed"),
    ("ROOT %x = f32[2] add(%a %a)", "5:25: expected ')' or ',', found '%a'"),
    ("ROOT %x f32[2] add(%a, %a)", "5:9: expected '=', found 'f32'"),
    ("ROOT %x = f32[2] add %a, %a", "5:22: expected '(', found '%a'"),
    ("ROOT %x = f32[2] add(%a, %a),", "5:29: expected an attribute after this ','"),
    (
        "ROOT %x = f32[2] negate(%a), metadat={}",
        "5:30: negate has no attribute 'metadat'; did you mean 'metadata'?",
    ),
    (
        'ROOT %x = f32[2] negate(%a), metadata={opname="x"}',
        "5:40: metadata has no 'opname'; did you mean 'op_name'?",
    ),
    ("ROOT %x = f32[2] broadcast(%a), dimensions={0,x}", "5:47: expected an integer, found 'x'"),
    ("ROOT %x = f32[2] broadcast(%a), dimensions=0", "5:44: expected '{', found '0'"),
    (
        "ROOT %x = f32[2] broadcast(%a) dimensions={0}",
        "5:32: expected ',' before attribute 'dimensions'",
    ),
    (
        "ROOT %x = f32[2] broadcast(%a), dimensions={0} metadata={}",
        "5:48: expected ',' before attribute 'metadata'",
    ),
    (
        "ROOT %x = f32[2] broadcast(%a), dimension={0}",
        "5:33: broadcast has no attribute 'dimension'; did you mean 'dimensions'?",
    ),
    (
        "ROOT %x = f32[2] broadcast(%a), dimensions={0}, dimensions={0}",
        "5:49: attribute 'dimensions' is given twice",
    ),
    (
        "ROOT %x = f32[2] negate(%a), metadata={}, metadata={}",
        "5:43: attribute 'metadata' is given twice",
    ),
    ("ROOT %x = f32[2] transpose(%a)", "5:7: transpose needs attribute 'dimensions'"),
    ("%a = f32[2] negate(%a)", "5:2: instruction 'a' is defined twice in 'main'"),
    ("f32 = f32[2] negate(%a)", "5:1: 'f32' cannot be a name"),
    ("%__x = f32[2] negate(%a)", "5:2: '__x' cannot be a name"),
    ("ROOT = f32[2] negate(%a)", "5:1: 'ROOT' cannot be a name"),
    ("%f32 = f32[2] negate(%a)", "5:2: 'f32' cannot be a name"),
    (
        "c= f32[2] negate(%a)",
        "5:1: expected a blank between 'c' and '=', or ',' before an attribute",
    ),
    ("1x = f32[2] negate(%a)", "5:1: expected an instruction, found '1x'"),
    (
        "ROOT %x = f32[2] negate(f32[3] %a)",
        "5:32: operand 'a' is written with shape f32[3], it has f32[2]{0}",
    ),
    ("ROOT %x = f32[2] negate(%a, %a)", "5:7: negate takes 1 operand, 'x' has 2"),
    ("ROOT %x = add(%a)", "5:7: add takes 2 operands, 'x' has 1"),
    ("ROOT %x = reshape(%a)", "5:7: 'x' needs a shape: that of reshape cannot be inferred"),
    ("ROOT %x = constant(1)", "5:7: 'x' needs a shape: that of a constant cannot be inferred"),
    ("ROOT %x = f32[2] constant()", "5:27: constant needs a literal"),
    ("ROOT %x = f32[2] constant({1,2,3})", "5:27: dimension 0 of f32[2] has 2 elements, found 3"),
    (
        "ROOT %x = f32[2] constant({1 0.5-2})",
        "5:30: a literal of type f32 takes numbers, not 0.5-2",
    ),
    ("ROOT %x = f32[2] constant({1,true})", "5:30: a literal of type f32 takes numbers, not true"),
    (
        "ROOT %x = f32[2] constant({1,y})",
        "5:30: expected a number or braces, found 'y'",
    ),
    ("ROOT %x = s8[2] constant({1,300})", "5:29: 300 is out of range for s8 (-128 to 127)"),
    ("ROOT %x = s8[2] constant({1,1.5})", "5:29: a literal of type s8 takes integers, not 1.5"),
    ("ROOT %x = u8[] constant(-1)", "5:25: -1 is out of range for u8 (0 to 255)"),
    ("ROOT %x = f16[] constant(65520)", "5:26: 65520 is out of range for f16"),
    ("ROOT %x = f64[] constant(1e999)", "5:26: 1e999 is out of range for f64"),
    (
        "ROOT %x = u64[] constant(18446744073709551616)",
        "5:26: 18446744073709551616 is out of range for u64 (0 to 18446744073709551615)",
    ),
    ("ROOT %x = pred[] constant(1.5)", "5:27: a pred is true, false or an integer, not 1.5"),
    ("ROOT %x = f32[] constant(nan(0x0))", "5:26: f32 has no nan(0x0)"),
    ("ROOT %x = f8e4m3fn[] constant(nan(0x1))", "5:31: f8e4m3fn has no nan(0x1)"),
    ("ROOT %x = c64[] constant(1)", "5:26: a complex number is written (real, imaginary)"),
    (
        "ROOT %x = (f32[], s32[]) constant((1))",
        "5:36: expected 2 elements for (f32[], s32[]), found 1",
    ),
    (
        "ROOT %x = f32[2,2] constant({{1,2},{3}})",
        "5:36: dimension 1 of f32[2,2] has 2 elements, found 1",
    ),
    (
        "ROOT %x = f32[2,2] constant({1,2})",
        "5:30: too few levels of braces: a literal of shape f32[2,2] has 2",
    ),
    (
        "ROOT %x = f32[2] constant({{1},{2}})",
        "5:28: too many levels of braces: a literal of shape f32[2] has 1",
    ),
    ("ROOT %x = f32[] constant({1})", "5:26: a literal of shape f32[] has no braces"),
    ("ROOT %x = token[] constant(1)", "5:28: token[] has no literals"),
    (
        "ROOT %x = pred[2] compare(%a, %a), direction=LTT",
        "5:46: direction cannot be 'LTT'; did you mean 'LT'?",
    ),
    ("ROOT %x = f32[2] call(%a), to_apply=%foo", "5:37: there is no computation 'foo'"),
    (
        "ROOT %x = f32[2] call(%a), to_apply={ b = f32[2] negat(a) }",
        "5:50: unknown opcode 'negat'; did you mean 'negate'?",
    ),
    (
        "ROOT %x = f32[2] negate(%a), control-predecessors={%z}",
        "5:52: there is no instruction 'z' in 'main'",
    ),
    (
        'ROOT %x = f32[2] negate(%a), metadata={op_name="\\q"}',
        "5:49: unknown escape \\q in a string",
    ),
    (
        "ROOT %x = f32[2] custom-call(%a), custom_call_target=foo",
        "5:54: expected a string, found 'foo'",
    ),
    ("ROOT %x = f32[2] get-tuple-element(%a), index=a", "5:47: expected an integer, found 'a'"),
    ("ROOT %x = f32[2] pad(%a, %a), padding=0_0_", "5:42: expected nothing more, found '_'"),
    (
        "ROOT %x = f32[2] reduce-window(%a, %a), window={size=2 pad=1x2}, to_apply=%main",
        "5:60: pad= wants low_high pairs, as in 0_1x0_1",
    ),
    (
        "ROOT %x = f32[2] all-reduce(%a), replica_groups=[1,4]<=[18446744073709551615], to_apply=%main",
        "5:49: a list of devices has no dimension of -1",
    ),
    (
        "ROOT %x = f32[2] reduce-window(%a, %a), window={stride=2}, to_apply=%main",
        "5:49: a window needs size=",
    ),
    (
        "ROOT %x = f32[2] convolution(%a, %a), dim_labels=bf0_0io->b1f",
        "5:59: 'b1f' must have b, f and the spatial digits from 0, once each",
    ),
    ("%p = f32[] parameter(2)", "5:2: parameter 2 is defined, parameter 1 is not"),
    ("%p = f32[] parameter(0)", "5:2: parameter 0 is defined twice"),
    ("%p = f32[] parameter(x)", "5:22: expected an integer, found 'x'"),
    ("%p = f32[] parameter(-1)", "5:22: a parameter's number cannot be negative"),
    (
        "ROOT %x = f32[2] negate-start(%a)",
        "5:7: negate-start needs a shape ((operands), result, ...)",
    ),
]


@pytest.mark.parametrize(("line", "expected"), LINES, ids=[line for line, _ in LINES])
def test_one_wrong_line(line: str, expected: str) -> None:
    """Each mistake is reported where it is."""
    assert message(f"{HEAD}{line}\n}}\n") == expected


ONE = "{ a = f32[] parameter(0) }"
TEXTS = [
    ("", "1:1: the text is empty: there is no module in it"),
    (" \n\n", "1:1: the text is empty: there is no module in it"),
    ("\0\1\2", "1:1: the text contains a NUL byte: it is not HLO text"),
    ("hello world", "1:1: expected 'HloModule' or a computation, found 'hello'"),
    ("HloModule", "1:10: expected the name of the module, found the end of the text"),
    ("HloModule m\n", "1:12: the text ends before the first computation"),
    (HEAD, "4:30: the text ends within computation 'main': expected '}'"),
    (HEAD + "/* open", "5:1: the comment is not closed"),
    (HEAD + '%x = f32[2] negate(%a), metadata={op_name="x}\n}', "5:43: the string is not closed"),
    (
        HEAD
        + "%x = f32[2] broadcast(%a), dimensions={0, metadata={}\n  %y = f32[2] negate(%x)\n}\n",
        "5:39: this '{' is not closed",
    ),
    (
        HEAD
        + '%x = f32[2] negate(%a), metadata={op_name="x}\n  %y = f32[2] negate(%x), backend_config="a"\n}\n',
        "5:43: the string is not closed",
    ),
    (
        f"HloModule m, is_schedule=true\nENTRY e {ONE}",
        "1:14: a module has no attribute 'is_schedule'; did you mean 'is_scheduled'?",
    ),
    (
        f"HloModule m, is_scheduled=maybe\nENTRY e {ONE}",
        "1:27: expected 'false' or 'true', found 'maybe'",
    ),
    (
        f"HloModule m, num_partitions=1, num_partitions=1\ne {ONE}",
        "1:32: attribute 'num_partitions' is given twice",
    ),
    ("HloModule m\nENTRY e { }", "2:11: expected an instruction, found '}'"),
    (f"ENTRY e {ONE}\nENTRY f {ONE}", "2:1: a second computation is marked ENTRY"),
    (f"e {ONE}\ne {ONE}", "2:1: computation 'e' is defined twice"),
    (
        f"ENTRY e (a: f32[]) -> s32[] {ONE}",
        "1:7: computation 'e' is declared to give s32[], its root has shape f32[]",
    ),
    (f"ENTRY e (a: f23[]) -> f32[] {ONE}", "1:13: unknown element type 'f23'; did you mean 'f32'?"),
    (f"ENTRY {ONE}", "1:7: expected a name, found '{'"),
    (
        f'e {ONE}, execution_tread="x"',
        "1:31: a computation has no attribute 'execution_tread'; did you mean 'execution_thread'?",
    ),
    (f"e {ONE} }}", "1:30: this '}' closes nothing"),
    (
        "e { ROOT a = f32[] parameter(0) ROOT b = f32[] negate(a) }",
        "1:38: a second instruction is marked ROOT in 'e'",
    ),
]


MLIR = "this is MLIR (StableHLO?), not HLO text"
FOREIGN = [
    ("module @jit_f attributes {a.b = 1 : i32} {\n}\n", f"1:1: {MLIR}"),
    ("module attributes {a.b = 1 : i32} {\n}\n", f"1:1: {MLIR}"),
    ("// a comment\n\n#loc = loc(unknown)\nmodule @m {\n}\n", f"3:1: {MLIR}"),
    ("module {\n  func.func @main() {\n  }\n}\n", f"1:1: {MLIR}"),
    ("func.func public @main() {\n}\n", f"1:1: {MLIR}"),
    ('"builtin.module"() ({\n}) : () -> ()\n', f"1:1: {MLIR}"),
    ("{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }", "1:1: this is a jaxpr, not HLO text"),
    (
        f"HloModule a\ne {ONE}\n\nHloModule b\ne {ONE}\n",
        "4:1: a second module begins here: one of 2 in this text",
    ),
    ("module {\n ROOT x = f32[] ad() }", "2:17: unknown opcode 'ad'; did you mean 'pad'?"),
]


@pytest.mark.parametrize(("text", "expected"), FOREIGN, ids=range(len(FOREIGN)))
def test_what_is_not_one_module_is_called_by_its_name(text: str, expected: str) -> None:
    """Rather than a list of what could begin a module; a computation may be called module."""
    assert message(text) == expected


@pytest.mark.parametrize(("text", "expected"), TEXTS, ids=range(len(TEXTS)))
def test_one_wrong_text(text: str, expected: str) -> None:
    """Mistakes of modules and computations, cut off and empty texts."""
    assert message(text) == expected


MANY = 20_000
DEEP = [
    "e { a = f32[" + "{" * MANY,
    "e { a = " + "(" * MANY,
    "e { a = " + "(" * MANY + ")" * MANY + " tuple() }",
    "e { a = f32[] add(" + "add(" * MANY,
    "e { a = f32[] add(" + "add(" * MANY + ")" * (MANY + 1) + "}",
    "e { a = f32[] parameter(0), metadata=" + "{" * MANY,
    "e { a = f32[] constant(" + "(" * MANY,
    "e { a = () constant(" + "(" * MANY + ")" * MANY + ") }",
    "e { a = f32[] constant(" + "{" * MANY + "}" * MANY + ") }",
    "e { " + "a = f32[] call(), to_apply={ " * 500 + "}" * 501,
    "{" * MANY,
]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_deep_nesting_is_an_error(text: str) -> None:
    """Twenty thousand brackets neither crash nor hang."""
    assert message(text)


def test_the_caret_stands_below_the_mistake() -> None:
    """The message shows the line and marks the word."""
    with pytest.raises(ParseError) as caught:
        parse_module(HEAD + "  ROOT %x = f32[2] ad(%a)\n}\n", "dir/m.hlo", strict=True)
    assert str(caught.value).splitlines() == [
        "dir/m.hlo:5:20: error: unknown opcode 'ad'; did you mean 'pad'?",
        "  ROOT %x = f32[2] ad(%a)",
        "                   ^^",
    ]


def test_words_are_listed() -> None:
    """A wrong word is answered with the words there are."""
    with pytest.raises(ParseError) as caught:
        parse_module(HEAD + "  ROOT %x = pred[2] compare(%a, %a), direction=BIGGER\n}\n")
    assert str(caught.value).splitlines()[-1] == "note: it can be EQ, NE, GE, GT, LE, LT"
