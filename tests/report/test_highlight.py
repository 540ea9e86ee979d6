"""Colours of HLO text: what the lexer sees, the grammar for editors, and when a terminal is coloured."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from pygments.lexers import get_lexer_by_name
from pygments.token import Token

from hloopt.report.highlight import MOST_COLOURED, HloLexer, textmate_grammar

ROOT = Path(__file__).parents[2]
TEXT = """HloModule m, is_scheduled=true

ENTRY %main.3 (a: f32[2,3]{1,0}) -> f32[2,3] {
  a = f32[2,3]{1,0:T(8,128)} parameter(0)
  ROOT %add.1 = f32[2,3]{1,0} add(a, %a), metadata={op_name="x/\\"y"} // why
  c = bf16[] constant(-1.5e-3) /* two
lines */
}
"""


def tokens(text: str) -> list[tuple[str, str]]:
    return [(str(kind).removeprefix("Token."), part) for kind, part in HloLexer().get_tokens(text)]


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("Keyword", ["HloModule", "ENTRY", "ROOT"]),
        ("Keyword.Constant", ["true"]),
        ("Keyword.Type", ["f32[2,3]{1,0}", "f32", "f32", "f32[2,3]{1,0}", "bf16[]"]),
        ("Name.Attribute", ["is_scheduled", "metadata", "op_name"]),
        ("Name.Function", ["T", "parameter", "add", "constant"]),
        ("Name.Variable", ["%main.3", "a", "a", "%add.1", "%a", "c"]),
        ("Literal.String", ['"x/\\"y"']),
        ("Comment", ["// why", "/* two\nlines */"]),
    ],
)
def test_tokens(kind: str, parts: list[str]) -> None:
    """Each kind's texts, in order."""
    assert [part for one, part in tokens(TEXT) if one == kind] == parts


def test_nothing_is_lost_or_an_error() -> None:
    """Any text comes out as it went in, however broken."""
    for text in (TEXT, 'x = "open\n', "/* open", "%%%@`\x00é☃\n", TEXT[::-1].strip() + "\n"):
        found = tokens(text)
        assert "".join(part for _, part in found).strip("\n") == text.strip("\n")
        assert not any(kind == str(Token.Error) for kind, _ in found)


def test_others_find_the_lexer() -> None:
    """It is installed under its name."""
    assert type(get_lexer_by_name("hlo")) is HloLexer
    assert HloLexer.analyse_text(TEXT) == 1
    assert HloLexer.analyse_text("module {}") == 0


def test_the_grammar_for_editors_is_up_to_date() -> None:
    """``python -m tests.report.textmate`` writes it."""
    assert json.loads((ROOT / "grammar/hlo.tmLanguage.json").read_text()) == textmate_grammar()


def printed(*words: str, **env: str) -> bytes:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "hloopt", *words],
        stdout=theirs, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm-256color", **env}, check=True,
    )  # fmt: skip
    os.close(theirs)
    found = b""
    try:
        while part := os.read(ours, 1 << 16):
            found += part
    except OSError:  # the end of a terminal that is closed on the other side
        pass
    finally:
        os.close(ours)
    return found.replace(b"\r\n", b"\n")


def test_a_terminal_is_coloured_unless_it_must_not(tmp_path: Path) -> None:
    """The text is the same but for colours; ``NO_COLOR`` and pipes are plain."""
    file = tmp_path / "m.hlo"
    file.write_text(TEXT)
    words = ("optimize", str(file), "--passes", "")
    plain = subprocess.run(
        [sys.executable, "-m", "hloopt", *words], capture_output=True, check=True
    ).stdout
    coloured = printed(*words)
    assert b"\x1b[" in coloured
    assert b"\x1b" not in plain
    assert printed(*words, NO_COLOR="1") == plain
    left = coloured
    while (start := left.find(b"\x1b[")) >= 0:
        left = left[:start] + left[left.index(b"m", start) + 1 :]
    assert left == plain
    assert len(plain) < MOST_COLOURED
