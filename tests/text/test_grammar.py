"""The grammar as a document: complete, in step with the tables, and quick to load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import lark
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloopt.ops import OPS, Kind
from hloopt.ops.attributes import COMMON_ATTRIBUTES
from hloopt.text import attributes, grammar, hints, lalr, tables
from hloopt.text.grammar import pattern, read
from hloopt.text.lalr import Parser, RuleParts, Unexpected
from hloopt.text.lalr_build import build, make_parser
from hloopt.text.problem import Problem
from hloopt.text.records import Token
from hloopt.text.syntax import Syntax
from hloopt.types import DTYPES, UNBOUNDED, ArrayShape, BufferShape, Layout, TupleShape
from tests.helpers.rarely import examples

STARTS = list(grammar.starts())


def test_every_terminal_has_words() -> None:
    """An error message never shows the name of a terminal."""
    parser = grammar._parser()
    fixed = {t.name for t in parser.terminals if t.fixed is not None}
    ignored = {"SPACE"}
    names = {t.name.rpartition("__")[2] for t in parser.terminals if t.name not in fixed | ignored}
    only_parts = {name for name in names if name.startswith(("LINE_", "_"))}
    assert names - only_parts <= hints.PHRASES.keys()


def test_the_element_types_are_those_of_the_table() -> None:
    """The grammar lists the types for its quick way; the list is the table's."""
    for name in DTYPES:
        assert pattern("SHAPE_TEXT").fullmatch(f"{name}[]"), name
    assert not pattern("SHAPE_TEXT").fullmatch("f33[]")


def test_every_kind_of_attribute_can_be_read() -> None:
    """Each kind has a rule, and each attribute kept as text has one of its own name."""
    assert {kind for kind in Kind if kind is not Kind.VERBATIM} == attributes._START_OF.keys()
    every = [*COMMON_ATTRIBUTES, *(entry for op in OPS.values() for entry in op.attributes)]
    own = {entry.name for entry in every if entry.kind is Kind.VERBATIM}
    assert own - {"control-predecessors"} <= set(grammar.starts())


def test_the_grammar_is_found_beside_the_package() -> None:
    """In a checkout it stands at the top level."""
    assert (tables.grammar_folder() / "hlo.lark").is_file()


@cache
def _built() -> tables.Tables:
    return build(tables.grammar_folder())


@pytest.fixture
def built() -> tables.Tables:
    """The tables as Lark makes them today."""
    return _built()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder, which is not there yet."""
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path / "deep" / "folder"))
    return tmp_path / "deep" / "folder"


@pytest.mark.usefixtures("folder")
def test_tables_survive_the_cache(built: tables.Tables) -> None:
    """A parser from the cache reads what a fresh one reads, and refuses what that refuses."""
    tables._save("grammar.json", built)
    stored = tables.load("grammar.json")
    assert stored is not None
    assert json.dumps(stored) == json.dumps(built)
    loaded = Parser(stored, Syntax(read))
    text = "(f32[2,3]{1,0:T(8,128)}, s32[])"
    assert loaded.parse(text, "shape") == read("shape", text)
    with pytest.raises(Unexpected) as caught:
        loaded.parse("(f32[2", "shape")
    assert caught.value.is_end


class _Trees:
    """Leaves rules as pairs of their name and their parts."""

    def __getattr__(self, name: str) -> Callable[[list[Any]], object]:
        assert not name.startswith("_"), "such rules have no value of their own"
        return lambda parts: (name, [described(part) for part in parts])


@cache
def whole() -> lark.Lark:
    """Lark's own parser of the grammar."""
    parser, _ = make_parser(tables.grammar_folder())
    return parser


def test_our_parser_reads_what_larks_reads(
    built: tables.Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same trees, tokens and places, while patterns are tried one by one and after."""
    sample = (Path(__file__).parents[2] / "samples" / "conv_bias_relu.hlo").read_text()
    body = "a = f32[2]{0} parameter(0) /* in */\n%b.1 = (f32[2], /*index=1*/s32[]) tuple(a, %c)"
    texts = {"module": sample, "body": body, "head": "f32[2,<=3]{1,0:T(8)} add", "groups": "{{1}}"}
    for tries in (10_000, 3, 0):
        monkeypatch.setattr(lalr, "_TRIES", tries)
        ours = Parser(built, _Trees())
        for start, text in texts.items():
            assert described(ours.parse(text, start)) == described(whole().parse(text, start))


def described(tree: object) -> object:
    """A tree of Lark's, or what is in ``_Trees``, with the places of its tokens."""
    if isinstance(tree, lark.Tree):
        return str(tree.data), [described(child) for child in tree.children]
    if isinstance(tree, lark.Token):
        return tree.type, str(tree), tree.start_pos, tree.end_pos
    if isinstance(tree, Token):
        return tree.type, str(tree), tree.begin, tree.end
    return tree


@settings(max_examples=examples(150), deadline=None)
@given(st.text(alphabet="{}()[]\"'%,=:/*-0.aft<sT \n", max_size=20), st.sampled_from(STARTS))
def test_our_parser_refuses_what_larks_refuses(text: str, start: str) -> None:
    """At the same place, in the same states: what they know is the same."""
    assert ours(text, start) == theirs(text, start)


def ours(text: str, start: str) -> object:
    parser = Parser(_built(), _Trees())
    try:
        return described(parser.parse(text, start))
    except Unexpected as error:
        known = [parser.states[state].keys() for state in error.states]
        return "the end" if error.is_end else error.position, known


def theirs(text: str, start: str) -> object:
    try:
        return described(whole().parse(text, start))
    except lark.exceptions.UnexpectedInput as error:
        rows = error.state.parse_conf.states
        known = [rows[state].keys() for state in error.state.state_stack]
        is_end = isinstance(error, lark.exceptions.UnexpectedToken) and error.token.type == "$END"
        return "the end" if is_end else error.pos_in_stream, known


def test_rules_without_a_method_are_their_parts(built: tables.Tables) -> None:
    """Those that are only there to be read."""
    assert Parser(built, object()).parse("{{0,1},{}}", "groups") is not None
    parts = Parser(built, object()).parse("x1, y", "operands")
    assert parts == [["x1"], ["y"]]
    assert isinstance(parts, RuleParts)


def test_only_what_is_met_is_made(built: tables.Tables) -> None:
    """A short text leaves most states and nearly all patterns unmade."""
    parser = Parser(built, Syntax(read))
    parser.parse("ENTRY e { ROOT p = f32[] parameter(0) }", "module")
    assert len(parser._lexers._expressions) < len(built.terminals) / 4
    assert len(parser.states) < len(built.rows) / 10


@pytest.mark.parametrize("content", [b"", b"{}", b'x\n{"data": {}, "memo": {}}', b"\xff\n"])
def test_a_damaged_cache_is_ignored(folder: Path, content: bytes, built: tables.Tables) -> None:
    """It is built again instead."""
    file = folder / "grammar.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    assert tables.load("grammar.json") is None
    tables._save("grammar.json", built)
    assert tables.load("grammar.json") is not None
    file.write_bytes(file.read_bytes()[:-1])
    assert tables.load("grammar.json") is None


def test_a_folder_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: tables.Tables
) -> None:
    """Saving into the place of a file does nothing, and everything is worked out again."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path / "file"))
    tables._save("grammar.json", built)
    assert tables.load("grammar.json") is None


def test_the_tables_are_named_after_what_they_depend_on(tmp_path: Path) -> None:
    """Another grammar: another file."""
    (tmp_path / "a.lark").write_text("x")
    first = tables._file_name(tmp_path)
    assert first == tables._file_name(tmp_path)
    (tmp_path / "a.lark").write_text("y")
    assert first != tables._file_name(tmp_path)


def test_tables_are_the_same_whatever_the_hashes_of_strings(built: tables.Tables) -> None:
    """A package is built alike each time."""
    code = (
        "import sys; from hloopt.text import lalr_build, tables; "
        "sys.stdout.buffer.write(tables.encoded(lalr_build.build(tables.grammar_folder())))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    made = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True
    )
    assert made.stdout == tables.encoded(built)


def test_a_sequence_is_taken_apart_by_its_own_parts() -> None:
    """Its groups are what its definition has, and it fits what the terminal fits."""
    line = '  ROOT %a.1 = f32[2]{0} add(%b, c), dimensions={0}, metadata={op_name="x"}, k=1'
    found = pattern("LINE").fullmatch(line)
    assert found is not None
    assert found.groupdict() == {
        "root": "  ROOT",
        "target": "%a.1",
        "head": "f32[2]{0} add",
        "arguments": "%b, c",
        "attributes": ", dimensions={0}",
        "metadata": ', metadata={op_name="x"}',
        "more": ", k=1",
    }
    assert pattern("LINES").fullmatch(line)
    head = pattern("LINE_HEAD").fullmatch("f32[2]{0} add")
    assert head is not None
    assert head.groupdict() == {"shape_text": "f32[2]{0}", "word": "add"}


LAYOUTS = st.sampled_from(["", "T(8,128)", "T(8,128)(2,1)S(1)", "E(4)", "S(5)", "SC(0:4)M(1)"])


@st.composite
def arrays(draw: st.DrawFn) -> ArrayShape:
    element = DTYPES[draw(st.sampled_from([name for name, row in DTYPES.items() if row.is_array]))]
    marks = draw(st.lists(st.sampled_from("sbu"), max_size=4))
    dims = tuple(UNBOUNDED if mark == "u" else draw(st.integers(0, 9)) for mark in marks)
    dynamic = tuple(mark != "s" for mark in marks)
    layout = None
    if draw(st.booleans()) or not dims:
        order = tuple(draw(st.permutations(range(len(dims)))))
        text = draw(LAYOUTS)
        layout = (
            read(
                "shape", f"f32[{','.join('1' * len(dims))}]{{{','.join(map(str, order))}:{text}}}"
            ).layout
            if text
            else Layout(order)
        )
    return ArrayShape(element, dims, layout, dynamic if any(dynamic) else ())


SHAPES = st.recursive(
    st.one_of(arrays(), arrays().map(BufferShape)),
    lambda inner: st.lists(inner, max_size=6).map(lambda parts: TupleShape(tuple(parts))),
    max_leaves=8,
)


@settings(max_examples=examples(200), deadline=None)
@given(SHAPES)
def test_shapes_survive(shape: object) -> None:
    """Print and read give the same shape, by its rules and in one token."""
    assert read("shape", str(shape)) == shape
    assert read("head", f"{shape} add")[0] == shape


@settings(max_examples=examples(300), deadline=None)
@given(st.text(alphabet="{}()[]\"'%,=:/*-0.af \n", max_size=40), st.sampled_from(STARTS))
def test_no_text_crashes(text: str, start: str) -> None:
    """Whatever the text: a value or a ``Problem`` at a place inside of it."""
    problem = mistake(start, text)
    if problem is not None:
        assert 0 <= problem.offset <= len(text)
        assert "__" not in problem.message


def mistake(start: str, text: str) -> Problem | None:
    try:
        read(start, text)
    except Problem as problem:
        return problem
    return None
