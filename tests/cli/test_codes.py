"""``hloopt help CODE``: every code that a message or JSON can show has its entry."""

from __future__ import annotations

import re

import pytest

from hloopt import errors
from hloopt.cli.actions.topics import topics
from hloopt.cli.codes import codes, exit_codes
from hloopt.cli.main import COMMANDS
from hloopt.errors import HlooptError
from hloopt.findings.kinds import KINDS
from hloopt.fusion.decision import REASONS
from hloopt.fusion.remedies import HELD, OPTIONS
from hloopt.verifier import RULES
from tests.helpers.support import invoke

CODES = codes(topics()["exit-codes"])


def test_every_code_has_an_entry() -> None:
    wanted = {*REASONS, *RULES, *errors.__all__, *(kind.name for kind in KINDS)}
    listed = wanted | set(exit_codes(topics()["exit-codes"]))
    assert set(CODES) == listed, "cli/codes.py has a table for each kind of code"


def test_no_code_hides_another_name() -> None:
    tables = [REASONS, RULES, [kind.name for kind in KINDS], topics(), COMMANDS]
    names = [name for table in tables for name in table]
    assert len(names) == len(set(names))


def test_the_exit_codes_are_those_of_the_errors() -> None:
    known = exit_codes(topics()["exit-codes"])
    kinds = {getattr(errors, name) for name in errors.__all__} - {HlooptError}
    missing = {str(kind.exit_code) for kind in kinds} - set(known)
    assert not missing, "give them a line in hloopt/cli/topics/exit-codes.txt"
    assert set(known) == {"0", "1", "2", "3", "4", "5", "6", "70", "130"}


@pytest.mark.parametrize("code", sorted(CODES))
def test_an_entry_fits_and_is_complete(code: str) -> None:
    """In 79 columns but for HLO, and without a placeholder of a template."""
    text = CODES[code]()
    prose = [line for line in text.splitlines() if not line.startswith("  ")]
    assert max(map(len, prose)) < 80
    assert code in prose[0]
    assert not re.search(r"\{\w*(:[^}]*)?\}", "\n".join(prose))


def test_what_a_user_can_do_is_in_the_entry() -> None:
    """The option where there is one, and whether advice counts."""
    for code in REASONS:
        text = " ".join(CODES[code]().split())
        assert ("do not change it" in text) == (code in HELD), code
        for remedy in OPTIONS.get(code, ()):
            assert f"{{{remedy.option}=N}}" in text, code


def test_a_code_is_printed() -> None:
    shown = invoke("help", "both-reduce").stdout
    assert shown.startswith("both-reduce: a reason why two instructions are not fused.\n")
    assert "priority-fusion{significant_ratio=N}" in shown
    assert '"both-reduce": "both-reduce: ' in invoke("help", "both-reduce", "--json").stdout


def test_a_misspelt_code_has_a_suggestion() -> None:
    result = invoke("help", "both-reduces")
    assert result.exit_code == 2
    assert result.stderr.endswith("did you mean 'both-reduce'?\n")
