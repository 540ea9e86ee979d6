"""Syntax errors in plain words: what was expected, what was found, where."""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress

from hloopt.text.lalr import END, Parser, Unexpected
from hloopt.text.problem import Expected, Problem, shortened

__all__ = ["PHRASES", "PLAIN", "Odd", "explain", "first_unclosed", "found_at", "odd_character"]

# Terminals that are patterns, in words.  (Those that are fixed strings are quoted.)  The empty phrase
# is for terminals that another one of the same place stands for.
PHRASES = {
    "ARGUMENTS": "operands",
    "ARRAY": "an array in braces",
    "BRACED": "a value in braces",
    "BUFFER": "",
    "DEEP_PIECE": "",
    "DIM_LABELS": "dimension labels like b01f_01io->b01f",
    "ELEMENT": "a number",
    "ELEMENT_INDEX": "",
    "ELIDED": "",
    "EXTENTS": "sizes like 3x3",
    "FIELD_ROW": "a row of the table",
    "INT": "an integer",
    "IOTA_TEXT": "",
    "KEY": "the name of an attribute with '='",
    "LAYOUT_OPEN": "",
    "LEVEL": "a level type",
    "LINES": "an instruction",
    "LITERAL_TEXT": "",
    "MESH_TEXT": "",
    "METADATA_INT_KEY": "",
    "METADATA_LIST_KEY": "",
    "METADATA_OTHER_KEY": "",
    "METADATA_TEXT_KEY": "a field of metadata like op_name=",
    "NAME": "a name",
    "NAME_ROW": "a row of the table",
    "NUMBER": "a number",
    "OTHER": "",
    "PADS": "padding like 0_0x1_1",
    "PARAMETERS": "",
    "PLAIN": "a value",
    "PLAIN_ARRAY": "",
    "ROOT": "",
    "SHAPE_TEXT": "a shape",
    "SPARSITY_KEY": "sparsity=, dimension= or stride=",
    "SPARSITY_SIDE": "lhs= or rhs=",
    "STRING": "a string",
    "TARGET": "a name",
    "TILE_SIZE": "a tile size",
    "WINDOW_KEY": "size=, stride=, pad=, lhs_dilate=, rhs_dilate= or rhs_reversal=",
    "WORD": "a word",
    "$END": "the end",
}

# What word processors, web pages and terminals put in the place of plain characters.
PLAIN = {
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033\uff02", '"'),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\uff07", "'"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    **{chr(code + 0xFEE0): chr(code) for code in b"()[]{},:=%<>"},
    **dict.fromkeys("\u00a0\u1680\u202f\u205f\u3000\u2028\u2029\u0085\f\v", " "),
    **{chr(code): " " for code in range(0x2000, 0x200B)},
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u200f", ""),
}
_FOUND = re.compile(
    r'"(?:[^"\\\n]++|\\.)*+"?|%?[A-Za-z_][A-Za-z0-9_.-]*=?|-?[0-9][0-9a-zA-Z_.]*|->|<=|.', re.DOTALL
)
_ESCAPE = (
    r"(?:[abfnrtv\\'\"?]|[0-3][0-7]{0,2}+|[4-7][0-7]?+(?![0-7])"
    r"|[xX](?=[0-9a-fA-F])0*+[0-9a-fA-F]{0,2}+(?![0-9a-fA-F])|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}"
    r"|U(?:0000(?![dD][89a-fA-F])|000[1-9a-fA-F]|0010)[0-9a-fA-F]{4})"
)
_BAD_ESCAPE = re.compile(
    rf"(?:[^\\]++|\\{_ESCAPE})*+(?P<bad>\\(?:[0-7]+|[xXuU][0-9a-fA-F]*|.))", re.DOTALL
)
_FIELDS = re.compile(
    r"[ \t\r\n]*+\{[ \t\r\n]*+(?:[a-z_]++=-?[0-9]++(?![0-9A-Za-z_.])[ ,\t\r\n]*+)*+"
)
_OPERAND_BEFORE = re.compile(r"[(,][ \t\r\n]*+([A-Za-z_][A-Za-z0-9_.-]*+)\Z")
_NAME_BEFORE = re.compile(r"%?([A-Za-z_][A-Za-z0-9_.-]*+)[ \t\r\n]*+\Z")
_BRACKETS = re.compile(
    r"\"(?:[^\"\\]++|\\.)*+\"|'(?:[^'\\]++|\\.)*+'|/\*.*?\*/|//[^\n]*|[()\[\]{}]", re.DOTALL
)
# What a literal consists of at most.
_LITERAL = re.compile(r"(?:[^()\"'/=<]++|\([^()\"'/=<]*+\)|/\*(?:[^*]++|\*(?!/))*+\*/|//[^\n]*+)*+")
_CLOSES = {")": "(", "]": "[", "}": "{"}
_BLANKS = re.compile(r"[ \t\r\n]*+")
_LONGEST_FOUND = 40
_LONGEST_WORD = 200
_TABLES = ("FILENAMES", "FUNCTIONNAMES", "FILELOCATIONS", "STACKFRAMES")


def explain(error: Unexpected, text: str, start: str, parser: Parser) -> Problem:
    """A ``Problem`` for what the parser met while it read ``text`` as ``start``."""
    names = _acceptable(error.states, parser, start)
    at = _skip_blanks(text, len(text) if error.is_end else error.position)
    problem = _broken(text, at) or _row(text, at, names, parser)
    problem = problem or _missing(text, at, start, names, parser)
    if problem is None and start in _THING_AFTER_COMMA:
        problem = _after_comma(text, at, start)
    if problem is None and at == len(text) and start not in ("module", "body", "single"):
        problem = first_unclosed(text)
    if problem is not None:
        return problem
    if "ARGUMENTS" in names and text.startswith("{", at):
        literal = _LITERAL.match(text, at)
        at = literal.end() if literal else at
        found, width = found_at(text, at)
        return Expected(at, "a number, a brace or ')'", found, width=width)
    found, width = found_at(text, at)
    if names == {"$END"} and start in _WHOLE:
        at, found, width = 0, repr(text), len(text)
        return Expected(at, _WHOLE[start], found, width=width)
    if at == len(text):
        found = _ENDS.get(start, found)
    words = _expected(names, start, parser)
    return Expected(min(at, len(text.rstrip())), words, found, width=width)


def _row(text: str, at: int, names: set[str], parser: Parser) -> Problem | None:
    """A row of one of the tables before the first computation: where it goes wrong."""
    number = parser.pattern("INT").match(text, at)
    if number is None:
        return None
    if "NAME_ROW" in names:
        return Problem(number.end(), "expected a string after the number of this row")
    if "FIELD_ROW" not in names:
        return None
    fields = _FIELDS.match(text, number.end())
    at = fields.end() if fields else _skip_blanks(text, number.end())
    found, width = found_at(text, at)
    words = "NAME=NUMBER or '}'" if fields else "'{'"
    return Expected(at, words, found, width=width)


def _after_comma(text: str, at: int, start: str) -> Problem | None:
    """A comma with nothing behind it."""
    before = text[:at].rstrip()
    if at < len(text) or not before.endswith(","):
        return None
    thing = _THING_AFTER_COMMA[start]
    return Problem(len(before) - 1, f"expected {thing} after this ','")


def first_unclosed(text: str) -> Problem | None:
    """The first bracket that is not closed, or closed by another kind."""
    opened: list[int] = []
    for match in _BRACKETS.finditer(text):
        if match[0] in _CLOSES.values():
            opened.append(match.start())
        elif match[0] in _CLOSES and opened:
            at = opened.pop()
            if text[at] != _CLOSES[match[0]]:
                return Problem(at, f"this {text[at]!r} is not closed")
    return Problem(opened[0], f"this {text[opened[0]]!r} is not closed") if opened else None


def _skip_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    assert match is not None, "the pattern matches the empty text"
    return match.end()


def _acceptable(states: list[int], parser: Parser, start: str) -> set[str]:
    """The terminals that may come next: those the LALR automaton shifts, perhaps after reductions."""
    accepted = set()
    for name in [*(terminal.name for terminal in parser.terminals), END]:
        stack = list(states)
        while (code := parser.states[stack[-1]].get(name)) is not None:
            if not code & 1:
                accepted.add(name)
                break
            size, origin, _ = parser.rules[code >> 1]
            del stack[len(stack) - size :]
            stack.append(parser.states[stack[-1]][origin] >> 1)
            if name == END and stack[-1] == parser.ends[start]:
                accepted.add(name)
                break
    return accepted


def _broken(text: str, at: int) -> Problem | None:
    """Tokens that begin well and do not end."""
    if text.startswith("/*", at):
        nul, closed = text.find("\0", at), text.find("*/", at)
        if nul < 0 or closed < 0:
            return Problem(at, "the comment is not closed", width=2)
        at = nul
    quote = text[at : at + 1]
    if quote and quote in "\"'":
        body = re.compile(rf"(?:[^{quote}\\]++|\\.)*+", re.DOTALL).match(text, at + 1)
        assert body is not None
        if text[body.end() : body.end() + 1] != quote:
            return Problem(at, "the string is not closed")
        escape = _BAD_ESCAPE.match(body[0])
        if escape is not None:
            place = at + 1 + escape.start("bad")
            bad = escape["bad"]
            return Problem(place, f"unknown escape {bad} in a string", bad)
    return odd_character(text, at)


def _missing(text: str, at: int, start: str, names: set[str], parser: Parser) -> Problem | None:
    """``name=`` where none can stand, or a name without ``=``: what was forgotten before it."""
    if "KEY" in names and (word := parser.pattern("WORD").match(text, at)):
        return Problem(at, f"expected '=' after {word[0]!r}", word[0])
    if text.startswith("=", at) and "_CLOSE" in names:
        begin = max(0, at - _LONGEST_WORD)
        operand = _OPERAND_BEFORE.search(text[begin:at])
        if operand is not None:
            message = f"expected ')' before attribute {operand[1]!r}"
            return Problem(begin + operand.start(1), message, operand[1])
    if text.startswith("=", at) and start == "module" and {"LBRACE", "_OPEN"} <= names:
        name = _NAME_BEFORE.search(text[max(0, at - _LONGEST_WORD) : at])
        if name is not None:
            message = f"instruction {name[1]!r} stands outside of a computation"
            return Problem(at - len(name[0]), message, name[0].rstrip())
    key = parser.pattern("KEY").match(text, at)
    if key is None or ("LINES" not in names and (start != "module" or "COMMA" not in names)):
        return None
    if start == "module" or text[text.rfind("\n", 0, at) + 1 : at].strip():
        return Problem(at, f"expected ',' before attribute {key[0][:-1]!r}", width=len(key[0]) - 1)
    message = f"expected a blank between {key[0][:-1]!r} and '=', or ',' before an attribute"
    return Problem(at, message, key[0])


def found_at(text: str, at: int) -> tuple[str, int]:
    """The word that stands at an offset as messages show it, and its length."""
    match = _FOUND.match(text, at)
    if match is None or not text[at : at + 1].strip():
        return "the end of the text", 1
    found = match[0]
    shown = shortened(found, _LONGEST_FOUND)
    return (shown if shown[0] in "\"'" else repr(shown)), len(found)


# What follows where a part of a text may end.
_ENDS = {"operands": "')'", "literal": "')'", "body": "'}'"}
# Values of one word.
_WHOLE = {"integer": "an integer", "float": "a number", "boolean": "'false' or 'true'"}
_THING_AFTER_COMMA = {"operands": "an operand", "attributes": "an attribute"}

# Sets of terminals that belong to one thing, what it is called, and which of them it stands for.
_THINGS: tuple[tuple[set[str], str, set[str]], ...] = (
    (
        {"ARRAY", "ELEMENT", "LBRACE", "RBRACE"},
        "a number or braces",
        {"COMMA", "_OPEN"},
    ),
    ({"ARRAY", "ELEMENT"}, "", {"ARRAY"}),
    (
        {"STRING", "PLAIN", "BRACED"},
        "a value",
        {"SHAPE_TEXT", "LBRACE", "IOTA_TEXT", "MESH_TEXT", "LITERAL_TEXT", "DEEP_PIECE"},
    ),
    ({"ARGUMENTS"}, "operands and ')'", {"NAME", "SHAPE_TEXT", "BUFFER", "_OPEN", "_CLOSE"}),
    ({"_CLOSE", "LSQB"}, "", {"LSQB", "_OPEN"}),
    ({"$END", "LSQB", "_OPEN"}, "", {"LSQB", "_OPEN"}),
    ({"NAME", "SHAPE_TEXT"}, "a shape or a name", {"NAME", "SHAPE_TEXT", "BUFFER", "_OPEN"}),
    ({"SHAPE_TEXT"}, "a shape", {"NAME", "BUFFER", "_OPEN"}),
    ({"NAME", "PLAIN_ARRAY"}, "a shape", {"BUFFER"}),
    ({"LINES"}, "an instruction", {"TARGET", "ROOT"}),
    ({"ENTRY"}, "a computation", {"TARGET", "NAME", "ENTRY", *_TABLES, "$END"}),
    ({"EQUAL", "COLON"}, "'='", {"COLON"}),
)


def _expected(names: set[str], start: str, parser: Parser) -> str:
    strings = {
        terminal.name: terminal.fixed for terminal in parser.terminals if terminal.fixed is not None
    }
    plain = {name if name.startswith("_") else name.rpartition("__")[2]: name for name in names}
    words = []
    for members, phrase, others in _THINGS:
        if members <= plain.keys():
            words += phrase.split(" or ")
            for name in (members if phrase else set()) | others:
                plain.pop(name, None)
    for name, full in plain.items():
        if name == "$END":
            words.append(_ENDS.get(start, "nothing more"))
        elif full in strings:
            words.append(f"'{strings[full]}'")
        else:
            words.append(PHRASES[name])
    # Words before punctuation, each once.
    words = sorted({word for word in words if word}, key=lambda word: (word.startswith("'"), word))
    words = words or [_ENDS.get(start, "nothing more")]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


class Odd(Problem):
    """A character that looks like one of HLO text and is none."""


def odd_character(text: str, at: int) -> Problem | None:
    """What is wrong with the character at an offset outside of strings; None for a plain one."""
    odd = text[at : at + 1]
    if odd.isascii() and (odd.isprintable() or odd in "\t\r\n"):
        return None
    called = f"U+{ord(odd):04X}"
    with suppress(ValueError):
        called += f" ({unicodedata.name(odd)})"
    plain = PLAIN.get(odd)
    if odd == "\0":
        message = "the text contains a NUL byte: it is not HLO text"
    elif odd == "\x1b":
        message = "an escape sequence of a terminal (colours?) is not part of HLO text"
    elif plain is None:
        message = f"character {called} can stand in strings and comments only"
    elif not plain:
        return Odd(at, f"character {called} cannot be seen and does not belong here")
    else:
        meant = "a blank" if plain == " " else plain
        return Odd(at, f"character {called} stands in the place of {meant}")
    return Problem(at, message)
