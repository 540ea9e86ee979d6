"""The user's hand on fusion: rules of the command line, of lock files, of installed packages."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import click

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError

if TYPE_CHECKING:
    from hloopt.fusion.advice import Advice
    from hloopt.fusion.lock_file import Decisions, Group, LoopRow, Unfused
    from hloopt.fusion.lock_watcher import LockWatcher
    from hloopt.rewrite import Pipeline, Watcher

__all__ = [
    "LOCKS",
    "Advising",
    "advising",
    "fusion_rule_option",
    "fusion_rule_texts",
    "locked_decisions",
]

LOCKS = "hloopt.kernels"
"""In ``click.Context.meta``: the values of ``--lock``, ``--frozen`` and ``--write-lock``, beside others."""
_RULES = "hloopt.fusion_rules"
"""In ``click.Context.meta``: the texts of ``--fusion-rule``."""
_WATCHER = "hloopt.fusion_watcher"
"""In ``click.Context.meta``: who notes what is fused, for ``--write-lock``."""


def _keep(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:
    ctx.meta[_RULES] = value


def fusion_rule_option(function: Any) -> Any:
    """Declare ``--fusion-rule``; ``advising`` reads it."""
    return click.option(
        "--fusion-rule",
        multiple=True,
        metavar="MODULE:FUNCTION",
        expose_value=False,
        callback=_keep,
        help="Let a Python function say what is fused: it gets producer and consumer, and answers True, False, "
        "None or (False, 'reason'); also FILE.py:FUNCTION (may be repeated; the first answer counts).",
    )(function)


def fusion_rule_texts() -> tuple[str, ...]:
    """The texts of ``--fusion-rule``."""
    found: tuple[str, ...] = click.get_current_context().meta.get(_RULES) or ()
    return found


@dataclass(frozen=True)
class Advising:
    """What is to be fused or kept apart: ``pipeline`` has the fusions of a lock file made first.

    ``watchers`` look on for what a lock file is to hold.
    """

    pipeline: Pipeline
    advice: Advice | None = None
    watchers: tuple[Watcher, ...] = field(default_factory=tuple)


def advising(pipeline: Pipeline) -> Advising:
    """What the options of the running command, and installed packages, have to say about fusion.

    Raises ``UsageError`` for rules that cannot be loaded, or that nobody would ask.
    """
    from hloopt.fusion.hand import advised
    from hloopt.fusion.lock_watcher import LockWatcher
    from hloopt.fusion.strategies import has_strategy
    from hloopt.fusion.user_rules import load_rule

    context = click.get_current_context()
    texts = context.meta.get(_RULES) or ()
    given = context.meta.get(LOCKS, {})
    frozen = bool(given.get("frozen"))
    decisions = _decisions(given.get("lock"))
    if not has_strategy(pipeline):
        if texts:
            raise UsageError(f"--fusion-rule {texts[0]}: no pass of the pipeline fuses anything")
        if decisions:
            told = f"{decisions.name}: no pass of the pipeline fuses anything"
            if frozen:
                raise UsageError(told)
            click.echo(f"note: {told}", err=True)
        return Advising(pipeline)
    pipeline, advice = advised(pipeline, [*map(load_rule, texts)], decisions, frozen=frozen)
    if given.get("write_lock") is None:
        return Advising(pipeline, advice)
    watcher = context.meta[_WATCHER] = LockWatcher(advice.ledgers)
    return Advising(pipeline, advice, (watcher,))


def _decisions(lock: str | None) -> Decisions | None:
    if lock is None:
        return None
    from hloopt.fusion.lock_file import read_decisions

    return read_decisions(lock) or None


def locked_decisions() -> tuple[list[Group], list[Unfused], list[LoopRow]]:
    """What has been fused since the running command began, for ``--write-lock``."""
    watcher: LockWatcher | None = click.get_current_context().meta.get(_WATCHER)
    if watcher is None:
        return [], [], []
    return watcher.groups, watcher.unfused, watcher.loops
