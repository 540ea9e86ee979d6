"""An ordinary instruction is the same whether the terminal LINES takes it in or the rule ``instruction`` reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloopt
from hloopt.errors import ParseError
from hloopt.ir import Module
from hloopt.text import grammar
from hloopt.text.lalr import Parser
from hloopt.text.records import InstructionText
from hloopt.text.tables import grammar_folder, load_tables
from tests.campaigns.campaign_modules import OPCODES, campaign_module
from tests.helpers.respell import FREEDOMS, respell

QUICK = grammar._parser()
# Words that are instructions' and computations' names, opcodes, keys, element types, or numbers.
WORDS = re.compile(r"(?!(?:true|false|inf|nan)\b)[A-Za-z_][A-Za-z0-9_.-]*|[0-9]+")


@cache
def slow() -> Parser:
    """A parser in which no text is LINES."""
    tables = load_tables(grammar_folder())
    terminals = [
        one._replace(expression="(?!)") if one.name == "LINES" else one for one in tables.terminals
    ]
    return Parser(tables._replace(terminals=terminals), grammar._syntax())


@pytest.fixture(scope="module")
def roads() -> Iterator[pytest.MonkeyPatch]:
    """To be set to one parser or the other."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@cache
def module(opcode: str, seed: int) -> Module:
    return hloopt.parse(campaign_module(Random(seed), opcode, steps=2))


def described(text: str, strict: bool) -> object:
    """All that a text says, with its places; or what is wrong with it."""
    try:
        found = hloopt.parse(text, strict=strict)
    except ParseError as error:
        return error.line, error.column, error.message, error.notes
    return (
        found.to_text(),
        found.warnings,
        [(one.name, one.offset) for one in found],
        [(one.name, one.offset, one.metadata) for one in found.instructions()],
    )


def both(roads: pytest.MonkeyPatch, text: str, strict: bool) -> list[object]:
    answers = []
    for parser in (QUICK, slow()):
        roads.setattr(grammar, "_parser", lambda parser=parser: parser)
        answers.append(described(text, strict))
    return answers


def test_the_slow_road_has_no_lines(roads: pytest.MonkeyPatch) -> None:
    """And the quick one hardly anything else."""
    text = module("dot", 1).to_text()
    for parser, quick in ((QUICK, True), (slow(), False)):
        roads.setattr(grammar, "_parser", lambda parser=parser: parser)
        for computation in grammar.read("module", text).computations:
            assert {type(item) is InstructionText for item in computation.body} == {not quick}


@given(st.sampled_from(OPCODES), st.integers(0, 3), st.integers(), st.booleans())
def test_any_spelling_is_read_alike(
    roads: pytest.MonkeyPatch, opcode: str, seed: int, chance: int, strict: bool
) -> None:
    text = respell(module(opcode, seed), Random(chance), FREEDOMS, 0.5)
    quick, by_rule = both(roads, text, strict)
    assert quick == by_rule, text


@given(st.sampled_from(OPCODES), st.integers(0, 3), st.integers(), st.booleans())
def test_a_mistake_is_the_same(
    roads: pytest.MonkeyPatch, opcode: str, seed: int, chance: int, strict: bool
) -> None:
    """A word in the place of another: names that are not there, opcodes with other attributes, other shapes."""
    drawn = Random(chance)
    text = respell(module(opcode, seed), drawn, FREEDOMS, 0.3)
    old, new = drawn.sample(list(WORDS.finditer(text)), 2)
    text = text[: old.start()] + new[0] + text[old.end() :]
    quick, by_rule = both(roads, text, strict)
    assert quick == by_rule, text
