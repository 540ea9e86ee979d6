"""Damaged texts: what a seed and a number make of a text is the same on every machine.

``Mutator(texts, seed).text(index)`` takes one of the texts, or two, and damages it in one to four places.
"""

from __future__ import annotations

import random
import re
from bisect import bisect
from collections.abc import Callable
from itertools import accumulate

__all__ = ["MUTATIONS", "Mutator"]

TOKENS = re.compile(
    r"[ \t\r\n]+|//[^\n]*|/\*.*?\*/|\"(?:[^\"\\]|\\.)*\"|%?[A-Za-z_][A-Za-z0-9_.-]*|-?[0-9]+(?:\.[0-9]*)?|."
    r"",
    re.DOTALL,
)
INTEGER = re.compile(r"[0-9]+")
BRACKETS = "()[]{}"
HUGE = (
    *(
        "0",
        "-1",
        "7",
        "00",
        "65",
        "1000",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
    ),
    *("18446744073709551615", "18446744073709551616", "-9223372036854775809", "1" + "0" * 30),
    *("9" * 5000, "1e400", "-1e-400", "nan", "inf", "0x7fffffff", "1.5", "٣", "²"),
)
SEVERAL = (2, 7, 60, 3000)
PIECES = (
    *(
        "\0",
        "\ufeff",
        "\r",
        "\x1b[31m",
        "é",
        "💥",
        "\ud800",
        "\\",
        '"',
        "'",
        "%",
        "#0",
        "...",
        "{...}",
    ),
    *(
        "//",
        "/*",
        "*/",
        "<=",
        "?",
        "->",
        "ROOT ",
        "ENTRY ",
        "HloModule ",
        "token[]",
        "()",
        "b(",
        "f32[]",
    ),
    *(
        "[2,2]<=[4]T(1,0)",
        "bf16[1,0]{0,1:T(8,128)}",
        "pred[<=9]",
        "metadata={",
        "calls={",
        "constant({",
    ),
    *("sharding={", "backend_config={", "control-predecessors={"),
)


class _Text:
    """A text as tokens; blanks and comments are tokens as well."""

    def __init__(self, text: str, chance: random.Random) -> None:
        self.tokens = TOKENS.findall(text)
        self.chance = chance

    def pick(self, wanted: Callable[[str], object] = str.strip) -> int | None:
        """The place of a token for which ``wanted`` holds; None where there is none."""
        if not self.tokens:
            return None
        for _ in range(20):
            index = self.chance.randrange(len(self.tokens))
            if wanted(self.tokens[index]):
                return index
        found = [index for index, token in enumerate(self.tokens) if wanted(token)]
        return self.chance.choice(found) if found else None


def _drop_token(text: _Text, other: _Text) -> None:
    if (at := text.pick()) is not None:
        del text.tokens[at]


def _double_token(text: _Text, other: _Text) -> None:
    if (at := text.pick()) is not None:
        text.tokens[at:at] = [text.tokens[at]] * text.chance.choice((1, 1, 1, *SEVERAL))


def _swap_tokens(text: _Text, other: _Text) -> None:
    first, second = text.pick(), text.pick()
    if first is not None and second is not None:
        tokens = text.tokens
        tokens[first], tokens[second] = tokens[second], tokens[first]


def _alike(token: str) -> Callable[[str], bool]:
    """Whether another token is of the same sort: a word, a number, or neither."""

    def sort(one: str) -> int:
        head = one[:1]
        return 0 if head.isspace() else 1 if head in "%_" or head.isalpha() else 2 + head.isdigit()

    return lambda one: sort(one) == sort(token) and one != token


def _replace_token(text: _Text, other: _Text) -> None:
    """By one of the same sort: what results is wrong in meaning more often than in form."""
    if (at := text.pick()) is None:
        return
    source = text.chance.choice((text, text, other))
    if (found := source.pick(_alike(text.tokens[at]))) is not None:
        text.tokens[at] = source.tokens[found]


def _huge_number(text: _Text, other: _Text) -> None:
    if (at := text.pick(INTEGER.fullmatch)) is not None:
        text.tokens[at] = text.chance.choice(HUGE)


def _nudge_number(text: _Text, other: _Text) -> None:
    """A little more or less: the text stays HLO, its sizes do not agree any more."""
    if (at := text.pick(INTEGER.fullmatch)) is not None:
        number = int(text.tokens[at][:9])
        text.tokens[at] = str(
            text.chance.choice((number + 1, max(0, number - 1), number * 2, 0, 1))
        )


def _rename(text: _Text, other: _Text) -> None:
    """A word everywhere, by another word of the text."""
    at = text.pick(lambda token: token[:1].isalpha() or token[:1] in ("%", "_"))
    if at is None:
        return
    word, by = text.tokens[at], text.pick(_alike(text.tokens[at]))
    if by is not None:
        new = text.tokens[by]
        text.tokens = [new if token == word else token for token in text.tokens]


def _swap_alike(text: _Text, other: _Text) -> None:
    """Two words or two numbers."""
    if (first := text.pick(lambda token: token[:1].isalnum())) is None:
        return
    if (second := text.pick(_alike(text.tokens[first]))) is not None:
        tokens = text.tokens
        tokens[first], tokens[second] = tokens[second], tokens[first]


def _insert_piece(text: _Text, other: _Text) -> None:
    at = text.chance.randint(0, len(text.tokens))
    text.tokens[at:at] = [text.chance.choice(PIECES)] * text.chance.choice((1, 1, 1, *SEVERAL))


def _unbalance(text: _Text, other: _Text) -> None:
    at = text.pick(lambda token: token in BRACKETS)
    if at is None:
        return
    many = text.chance.choice((1, 1, 2, *SEVERAL))
    kind = text.chance.randrange(3)
    if kind == 0:
        text.tokens[at] = ""
    elif kind == 1:
        text.tokens[at] *= many
    else:
        text.tokens[at] = text.chance.choice(BRACKETS) * many


def _flip_bytes(text: _Text, other: _Text) -> None:
    """In the UTF-8 form; what is no UTF-8 any more reads as replacement characters."""
    data = bytearray("".join(text.tokens).encode("utf-8", "surrogatepass"))
    for _ in range(text.chance.choice((1, 1, 2, 5))):
        if data:
            data[text.chance.randrange(len(data))] ^= 1 << text.chance.randrange(8)
    text.tokens = TOKENS.findall(data.decode("utf-8", "replace"))


def _lines(text: _Text) -> list[str]:
    return "".join(text.tokens).split("\n")


def _drop_line(text: _Text, other: _Text) -> None:
    lines = _lines(text)
    del lines[text.chance.randrange(len(lines))]
    text.tokens = TOKENS.findall("\n".join(lines))


def _join_lines(text: _Text, other: _Text) -> None:
    lines = _lines(text)
    at = text.chance.randrange(len(lines))
    lines[at : at + 2] = ["".join(lines[at : at + 2])]
    text.tokens = TOKENS.findall("\n".join(lines))


def _swap_lines(text: _Text, other: _Text) -> None:
    lines = _lines(text)
    first, second = (text.chance.randrange(len(lines)) for _ in range(2))
    lines[first], lines[second] = lines[second], lines[first]
    text.tokens = TOKENS.findall("\n".join(lines))


def _double_line(text: _Text, other: _Text) -> None:
    lines = _lines(text)
    lines.insert(text.chance.randint(0, len(lines)), text.chance.choice(lines))
    text.tokens = TOKENS.findall("\n".join(lines))


def _truncate(text: _Text, other: _Text) -> None:
    whole = "".join(text.tokens)
    cut = text.chance.randint(0, len(whole))
    text.tokens = TOKENS.findall(whole[:cut] if text.chance.random() < 0.7 else whole[cut:])


def _splice(text: _Text, other: _Text) -> None:
    """The beginning of one and the end of another."""
    first = text.chance.randint(0, len(text.tokens))
    second = text.chance.randint(0, len(other.tokens))
    text.tokens = text.tokens[:first] + other.tokens[second:]


def _borrow_line(text: _Text, other: _Text) -> None:
    lines = _lines(text)
    lines.insert(text.chance.randint(0, len(lines)), text.chance.choice(_lines(other)))
    text.tokens = TOKENS.findall("\n".join(lines))


MUTATIONS: tuple[Callable[[_Text, _Text], None], ...] = (
    *(_drop_token, _double_token, _swap_tokens, _swap_alike, _swap_alike, _rename, _rename),
    *(_replace_token, _replace_token, _replace_token, _replace_token, _nudge_number, _nudge_number),
    *(_nudge_number, _huge_number, _huge_number, _insert_piece, _unbalance, _flip_bytes),
    *(_drop_line, _join_lines, _join_lines, _swap_lines, _double_line, _truncate, _splice),
    _borrow_line,
)


class Mutator:
    """Damages texts, small ones more often than large ones: damage in those costs more to judge."""

    def __init__(self, texts: list[str], seed: int) -> None:
        self.texts = texts
        self.seed = seed
        self.weights = list(accumulate(1 / (500 + len(text)) for text in texts))

    def choose(self, chance: random.Random) -> str:
        place = chance.random() * self.weights[-1]
        return self.texts[min(bisect(self.weights, place), len(self.texts) - 1)]

    def text(self, index: int) -> str:
        """The damaged text of a number."""
        chance = random.Random(f"{self.seed} {index}")
        text, other = (_Text(self.choose(chance), chance) for _ in range(2))
        for _ in range(chance.choice((1, 1, 1, 1, 2, 3))):
            chance.choice(MUTATIONS)(text, other)
        return "".join(text.tokens)
