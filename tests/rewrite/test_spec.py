"""The text form of passes and pipelines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.rewrite import Fix, Pass, PassLog, Pipeline
from hloopt.rewrite.spec import FixSpec, PassSpec, make_pass, parse, pass_text


@dataclass(frozen=True)
class Everything(Pass):
    """A pass with an option of every type."""

    name: ClassVar[str] = "everything"

    count: int = 3
    ratio: float = 0.5
    sure: bool = False
    word: Literal["fast", "slow"] = "fast"
    text: str = ""
    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] = (1, 2)
    most: int | None = None

    def run(self, module: Module, log: PassLog) -> bool:
        return False


@dataclass(frozen=True)
class Plain(Pass):
    """A pass without options."""

    name: ClassVar[str] = "plain"

    def run(self, module: Module, log: PassLog) -> bool:
        return False


PASSES: dict[str, type[Pass]] = {"everything": Everything, "plain": Plain}


def read(text: str) -> Pipeline:
    return Pipeline.parse(text, PASSES, {"O1": "fix(plain,everything)", "O2": "O1,plain"})


def test_reads_nested_groups_and_options() -> None:
    """A text is a tree of passes and fix groups with uninterpreted options."""
    assert parse(" a , fix{limit=2} ( b{x=1, y=[u,v]} ) ") == (
        PassSpec("a"),
        FixSpec((PassSpec("b", (("x", "1"), ("y", ("u", "v")))),), (("limit", "2"),)),
    )


@pytest.mark.parametrize(
    "text",
    [
        "plain  # a\n,everything",
        "# first\nplain,everything",
        "plain,everything # last",
        "plain,#,x\neverything\n#\n",
    ],
)
def test_comments_go_to_the_end_of_the_line(text: str) -> None:
    """Anywhere between two words, at the end too; in a string a # is one."""
    assert str(read(text)) == "plain,everything"
    assert str(read('everything{text="#"}')) == 'everything{text="#"}'


@pytest.mark.parametrize("text", ["fix(" * 5000 + "plain", "everything{names=" + "[" * 5000])
def test_brackets_in_brackets_have_an_end(text: str) -> None:
    """An error, not the end of Python's stack."""
    with pytest.raises(UsageError, match="in no more than 50 brackets"):
        read(text)


def test_a_mistake_on_a_later_line_shows_that_line() -> None:
    """Of a text of many lines only the one with the mistake."""
    with pytest.raises(UsageError) as caught:
        read("plain,\n  plain,,\n  plain")
    assert str(caught.value).splitlines()[1:] == ["    plain,,", "          ^"]


def test_empty_text_is_the_empty_pipeline() -> None:
    """O0 has no passes and prints as nothing."""
    assert read("") == Pipeline()
    assert str(Pipeline()) == ""


def test_options_get_the_types_of_the_fields() -> None:
    """Words become int, float, bool, str, tuples and None, as the dataclass says."""
    text = 'everything{count=-7,ratio=1e-3,sure=true,word=slow,text="a, b",names=["A + 0 => A",x],most=4}'
    (found,) = read(text).entries
    assert found == Everything(-7, 1e-3, True, "slow", "a, b", ("A + 0 => A", "x"), (1, 2), 4)
    assert read(str(Pipeline((found,)))).entries == (found,)


def test_defaults_are_not_printed() -> None:
    """Only what differs from the default is in the text."""
    assert pass_text(Everything()) == "everything"
    assert pass_text(Everything(count=4)) == "everything{count=4}"
    assert str(Fix((Plain(),))) == "fix(plain)"
    assert str(Fix((Plain(), Everything()), limit=3)) == "fix{limit=3}(plain,everything)"


def test_named_pipelines_stand_for_their_passes() -> None:
    """A name inside a text expands, names inside the expansion too."""
    assert read("O2,everything").entries == (Fix((Plain(), Everything())), Plain(), Everything())


@given(
    st.builds(
        Everything,
        count=st.integers(),
        ratio=st.floats(allow_nan=False),
        sure=st.booleans(),
        word=st.sampled_from(["fast", "slow"]),
        text=st.text(),
        names=st.lists(st.text()).map(tuple),
        sizes=st.lists(st.integers()).map(tuple),
        most=st.none() | st.integers(),
    )
)
def test_every_pass_round_trips(instance: Everything) -> None:
    """Text made from a pass gives an equal pass back, whatever its strings hold."""
    (spec,) = parse(pass_text(instance))
    assert isinstance(spec, PassSpec)
    assert make_pass(spec, PASSES) == instance


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "plan",
            "no pass is called 'plan'; did you mean 'plain'? (valid: O1, O2, everything, fix, plain)",
        ),
        ("everything{coutn=1}", "everything has no option 'coutn'; did you mean 'count'?"),
        ("plain{count=1}", "plain has no option 'count' (it has no options)"),
        ("everything{count=x}", "everything{count=...} is 'x'; it takes an integer"),
        ("everything{ratio=x}", "everything{ratio=...} is 'x'; it takes a number"),
        ("everything{sure=yes}", "everything{sure=...} is 'yes'; it is true or false"),
        ("everything{word=fats}", "everything{word=...} is 'fats'; did you mean 'fast'?"),
        ("everything{count=[1,2]}", "everything{count=...} takes one value, not a list"),
        ("everything{count=1,count=2}", "everything gives the option 'count' twice"),
        ("O1{limt=2}", "no pass of O1 has the option 'limt'"),
        ("fix{limti=2}(plain)", "fix has no option 'limti'; did you mean 'limit'?"),
        ("fix{limit=0}(plain)", "the limit counts rounds and is at least 1"),
        ("plain,", "expected the name of a pass, found the end"),
        ("plain everything", "expected a ',' or the end, found 'everything'"),
        ("fix plain", "expected '(' after fix, found 'plain'"),
        ("fix(plain", "expected ',' or ')', found the end"),
        ("everything{count=1", "expected ',' or '}', found the end"),
        ("everything{count}", "expected '=' after the name of an option, found '}'"),
        ("everything{names=[a", "expected ',' or ']', found the end"),
        ('everything{text="\\q"}', "expected a string as JSON writes it"),
        ("plain;plain", "expected a ',' or the end, found ';'"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    """A wrong text stops with what was expected, the nearest name and the valid ones."""
    with pytest.raises(UsageError) as caught:
        read(text)
    assert message in str(caught.value)


def test_a_mistake_shows_its_place() -> None:
    """The message points into the text with a caret."""
    with pytest.raises(UsageError) as caught:
        read("plain,,plain")
    assert str(caught.value).splitlines()[1:] == ["  plain,,plain", "        ^"]


def test_strings_are_json() -> None:
    """Quotes and line ends inside a string survive."""
    text = 'a "quoted" \n line'
    (found,) = read(f"everything{{text={json.dumps(text)}}}").entries
    assert isinstance(found, Everything)
    assert found.text == text
