"""Whatever a shell may ask to complete is answered: for every option and argument of every command."""

from __future__ import annotations

import click
import pytest
from click.shell_completion import ShellComplete

from hloopt.cli.main import cli

_CONTEXT = cli.make_context("hloopt", [], resilient_parsing=True)
_PARAMETERS = [
    (name, parameter)
    for name in cli.list_commands(_CONTEXT)
    if (command := cli.get_command(_CONTEXT, name)) is not None
    for parameter in command.params
    if parameter._custom_shell_complete is not None
]


@pytest.mark.parametrize(
    ("name", "parameter"), _PARAMETERS, ids=[f"{name}-{one.name}" for name, one in _PARAMETERS]
)
def test_an_empty_word_is_completed(name: str, parameter: click.Parameter) -> None:
    command = cli.get_command(_CONTEXT, name)
    assert command is not None
    context = click.Context(command, _CONTEXT, info_name=name)
    for item in parameter.shell_complete(context, ""):
        assert item.value


def test_classes_of_inputs_are_completed() -> None:
    complete = ShellComplete(cli, {}, "hloopt", "_HLOOPT_COMPLETE")
    found = complete.get_completions(["compare", "--special"], "in")
    assert [item.value for item in found] == ["infinite"]
