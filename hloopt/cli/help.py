"""The help of commands: short by ``--help``, with everything by ``hloopt help COMMAND``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import cleandoc
from typing import Any, Final

import click

from hloopt.cli.replaced import replacement
from hloopt.cli.words import complete_files

__all__ = ["GroupedCommand", "full_help"]

_FULL: Final = "hloopt.full_help"
_END_OF_SENTENCE: Final = re.compile(r"(?<!\.)\.(?=\s|$)")
_MOST_LINES: Final = 5  # of a paragraph in the short help: three examples
_MOST_COLUMNS: Final = 28  # of a term: what is longer has a line to itself


class GroupedCommand(click.Command):
    """A command with help of two lengths, and options that may have an optional value.

    The function that declares it has its text alone, of which, as of each option's, ``--help`` shows the first
    sentence.  What the command does is ``execute`` of the module of the same name in ``actions``, which is
    loaded when the command is called: its help waits for nothing but options.

    groups   titles, and the names of the parameters under each; all others are under ``Options``
    bare     options that may be given alone, and the value they have then: ``--print-changed`` or
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
        complete_files(self.params)
        self.declared_in = str(getattr(self.callback, "__module__", None))

    def invoke(self, ctx: click.Context) -> Any:
        package, _, name = self.declared_in.rpartition(".")
        self.callback = import_module(f"{package}.actions.{name}").execute
        return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        given = [f"{arg}={self.bare[arg]}" if arg in self.bare else arg for arg in args[:end]]
        try:
            return super().parse_args(ctx, given + args[end:])
        except click.NoSuchOption as error:
            advice = replacement(str(self.name), error.option_name)
            if advice is None:
                raise
            ctx.fail(f"{error.message} {advice}")

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        paragraphs = cleandoc(self.help or "").split("\n\n")
        if ctx.meta.get(_FULL):
            shown = paragraphs
        else:
            is_example = (text.startswith("\b\nExample") for text in paragraphs)
            shown = [
                text
                for number, (text, keep) in enumerate(zip(paragraphs, is_example, strict=True))
                if keep or not number
            ]
            shown = ["\n".join(text.splitlines()[:_MOST_LINES]) for text in shown]
        for text in shown:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(text)
        self.format_options(ctx, formatter)
        if not ctx.meta.get(_FULL) and (len(paragraphs) > len(shown) or self._says_more(ctx)):
            formatter.write_paragraph()
            formatter.write_text(f"More: hloopt help {self.name}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [
            param
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and not param.hidden
        ]
        rows = {str(param.name): _row(param, ctx) for param in options}
        width = max(
            (len(term) for term, _ in rows.values() if len(term) <= _MOST_COLUMNS), default=0
        )
        for title, names in [*self.groups.items(), ("Options", tuple(rows))]:
            found = [rows.pop(name) for name in names if name in rows]
            if found:
                with formatter.section(title):
                    formatter.write_dl([(term.ljust(width), text) for term, text in found])

    def _says_more(self, ctx: click.Context) -> bool:
        """Whether an option has more to say than its first sentence."""
        options = (one for one in self.get_params(ctx) if isinstance(one, click.Option))
        return any(_brief(one.help or "") != (one.help or "").rstrip(".") for one in options)


def full_help(command: click.Command, parent: click.Context | None, name: str) -> str:
    """All that the help of a command says."""
    context = click.Context(command, parent, name)
    context.meta[_FULL] = True
    return command.get_help(context)


def _row(option: click.Option, ctx: click.Context) -> tuple[str, str]:
    """An option as it is typed, and what it does, with its default."""
    record = option.get_help_record(ctx)
    assert record is not None
    term = re.sub(r"(INTEGER|FLOAT) RANGE|INTEGER|FLOAT", "N", record[0])
    text = option.help or ""
    if not ctx.meta.get(_FULL):
        text = _brief(text)
    if option.show_default and option.default is not None:
        text += f" [default: {_default(option)}]"
    return term, text


def _default(option: click.Option) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    if option.is_flag and option.secondary_opts:
        flag = option.opts[0] if option.default else option.secondary_opts[0]
        return flag.removeprefix("--")
    return str(option.default)


def _brief(text: str) -> str:
    return _END_OF_SENTENCE.split(text, maxsplit=1)[0]
