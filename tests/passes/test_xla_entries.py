"""The list of what XLA's algebraic simplifier does is complete, and true of the rules and passes here."""

from __future__ import annotations

from hloopt.pipelines import PASSES
from hloopt.simplify import RULES
from hloopt.simplify.xla import ENTRIES


def test_every_number_is_there_once() -> None:
    """1 to 144, in order."""
    assert [entry.number for entry in ENTRIES] == list(range(1, 145))


def test_every_entry_names_what_does_it_or_why_not() -> None:
    """Rules and passes that exist, or a reason of some words."""
    names = {rule.name for rule in RULES.rules}
    for entry in ENTRIES:
        assert set(entry.rules) <= names, entry
        assert set(entry.passes) <= set(PASSES), entry
        assert entry.rules or entry.passes or len(entry.reason.split()) > 3, entry
