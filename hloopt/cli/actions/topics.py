"""What ``hloopt help`` does: it finds the text of a command, a topic or a code."""

from __future__ import annotations

from pathlib import Path

import click

from hloopt.cli.codes import codes
from hloopt.cli.help import full_help
from hloopt.cli.json_out import write_json
from hloopt.errors import UsageError
from hloopt.rewrite.spec import did_you_mean

__all__ = ["execute", "topics"]

_FOLDER = Path(__file__).parent.parent / "topics"


def topics() -> dict[str, str]:
    """The texts by the names of their topics: what several commands share."""
    files = sorted(_FOLDER.glob("*.txt"))
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


@click.pass_context
def execute(ctx: click.Context, topic: str | None, as_json: bool) -> None:
    """What ``hloopt help`` does."""
    found = topics() if topic is None else {topic: _text(ctx, topic)}
    if as_json:
        write_json("help", {"topics": found})
    elif topic is not None:
        click.echo(found[topic], nl=False)
    else:
        width = max(map(len, found))
        for name, text in found.items():
            click.echo(f"{name:{width}}  {text.partition(chr(10))[0]}")


def _text(ctx: click.Context, name: str) -> str:
    """The text of a topic or a code, or a command's help.  Raises ``UsageError`` for any other name."""
    found = topics()
    if name in found:
        return found[name]
    group = ctx.parent.command if ctx.parent is not None else None
    assert isinstance(group, click.Group)
    command = group.get_command(ctx, name)
    if command is not None:
        return full_help(command, ctx.parent, name) + "\n"
    known = codes(found["exit-codes"])
    if name in known:
        return known[name]()
    names = (*found, *group.list_commands(ctx), *known)
    raise UsageError(f"no topic, command or code is called '{name}'{did_you_mean(name, names)}")
