"""The judge of ``questions.py``: what counts as an answer, and that its table can be read."""

import re
import shlex

from hloopt.cli.main import cli
from tests.findings.questions import Question, judged, read_questions

QUESTION = Question("why", "why a.hlo", (r"%copy\.1 at", r"\d+ us"))


def test_an_answer_names_everything() -> None:
    """Whatever the line breaks; a part of it is a part, and nothing is nothing."""
    assert judged(QUESTION, "the copy\n   %copy.1\n   at m.py:3 takes 3\nus", 1.0).verdict == "yes"
    partly = judged(QUESTION, "it takes 3 us", 1.0)
    assert (partly.verdict, partly.missing) == ("partly", (r"%copy\.1 at",))
    assert judged(QUESTION, "nothing found", 1.0).verdict == "no"


def test_what_takes_too_long_is_no_answer() -> None:
    """Whatever it had printed by then."""
    assert judged(QUESTION, "%copy.1 at a takes 3 us", 60.0, timed_out=True).verdict == "no"


def test_the_table_has_commands_and_expressions() -> None:
    """Each row names a command of hloopt and something that its output must have, once."""
    rows, commands = (
        read_questions(),
        cli.list_commands(cli.make_context("hloopt", [], resilient_parsing=True)),
    )
    assert len({row.command for row in rows}) == len(rows)
    for row in rows:
        assert shlex.split(row.command)[0] in commands
        assert row.names
        for name in row.names:
            re.compile(name)
