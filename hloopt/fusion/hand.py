"""The user's hand on a pipeline: rules, a lock file, installed packages, asked in this order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hloopt.fusion.advice import Advice
from hloopt.fusion.ledger import Ledgers
from hloopt.fusion.strategies import asks_advice, is_strategy
from hloopt.fusion.user_rules import UserRule, installed_rules
from hloopt.rewrite import Pipeline
from hloopt.rewrite.entries import each_pass

if TYPE_CHECKING:
    from hloopt.fusion.lock_file import Decisions

__all__ = ["advised"]


def advised(
    pipeline: Pipeline,
    rules: Sequence[UserRule] = (),
    decisions: Decisions | None = None,
    *,
    frozen: bool = False,
) -> tuple[Pipeline, Advice]:
    """A pipeline that fuses, with the fusions of a lock file made first, and the advice its strategies ask for.

    Raises ``UsageError`` for an installed rule that cannot be loaded.
    """
    ledgers = Ledgers()
    if not decisions:
        return pipeline, Advice((*rules, *installed_rules()), ledgers)
    from hloopt.fusion.lock_adviser import LockAdviser
    from hloopt.fusion.locked_fusion import LockedFusion

    advice = Advice((*rules, LockAdviser(decisions, ledgers), *installed_rules()), ledgers)
    first_of = is_strategy if any(map(is_strategy, pipeline.passes())) else asks_advice
    at = next(
        number
        for number, entry in enumerate(pipeline.entries)
        if any(map(first_of, each_pass((entry,))))
    )
    first = LockedFusion(decisions.name, frozen)
    return Pipeline((*pipeline.entries[:at], first, *pipeline.entries[at:])), advice
