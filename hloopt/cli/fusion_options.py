"""The user's hand on fusion: rules of the command line, of lock files, of installed packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hloopt.errors import UsageError

if TYPE_CHECKING:
    from hloopt.fusion.advice import Advice
    from hloopt.rewrite import Pipeline

__all__ = ["advising", "fusion_rule_option"]

_RULES = "hloopt.fusion_rules"
"""In ``click.Context.meta``: the texts of ``--fusion-rule``."""


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


def advising(pipeline: Pipeline) -> Advice | None:
    """What the options of the running command, and installed packages, have to say about fusion.

    None for a pipeline that fuses nothing.  Raises ``UsageError`` for rules that cannot be loaded, or that
    nobody would ask.
    """
    from hloopt.fusion.advice import Advice, is_strategy
    from hloopt.fusion.user_rules import installed_rules, load_rule

    texts = click.get_current_context().meta.get(_RULES) or ()
    if not any(map(is_strategy, pipeline.passes())):
        if texts:
            raise UsageError(f"--fusion-rule {texts[0]}: no pass of the pipeline fuses anything")
        return None
    return Advice((*map(load_rule, texts), *installed_rules()))
