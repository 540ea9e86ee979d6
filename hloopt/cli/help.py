"""Help in groups of options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

__all__ = ["GroupedCommand"]

_REMOVED = {"--pipeline": "--passes", "--selector": "--kernel-rule"}
"""Options of earlier versions, and what replaces them."""


class GroupedCommand(click.Command):
    """A command whose help has its options in groups, and that allows options with an optional value.

    groups   titles, and the names of the parameters under each; all others stand under ``Options``
    bare     options that may stand alone, and the value they have then: ``--print-changed`` or
             ``--print-changed=diff``, never ``--print-changed FILE``
    """

    def __init__(
        self,
        *arguments: Any,
        groups: Mapping[str, Sequence[str]] | None = None,
        bare: Mapping[str, str] | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(*arguments, **keywords)
        self.groups = dict(groups or {})
        self.bare = dict(bare or {})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        given = [f"{arg}={self.bare[arg]}" if arg in self.bare else arg for arg in args[:end]]
        try:
            return super().parse_args(ctx, given + args[end:])
        except click.NoSuchOption as error:
            if error.option_name in _REMOVED:
                ctx.fail(f"{error.message} Did you mean '{_REMOVED[error.option_name]}'?")
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = {
            str(param.name): record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
            and (record := param.get_help_record(ctx)) is not None
        }
        for title, names in self.groups.items():
            found = [rows.pop(name) for name in names if name in rows]
            if found:
                with formatter.section(title):
                    formatter.write_dl(found)
        if rows:
            with formatter.section("Options"):
                formatter.write_dl(list(rows.values()))
