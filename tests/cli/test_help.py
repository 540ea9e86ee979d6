"""Short help that fits a screen, long help that says all, and what became of options of earlier versions."""

from __future__ import annotations

import re

import click
import pytest

from hloopt.cli.help import full_help
from hloopt.cli.main import COMMANDS, GROUPS, cli
from hloopt.cli.replaced import REPLACED
from tests.helpers.support import invoke

_CONTEXT = cli.make_context("hloopt", [], resilient_parsing=True)


def command(name: str) -> click.Command:
    found = cli.get_command(_CONTEXT, name)
    assert found is not None
    return found


def shown(name: str) -> list[click.Option]:
    return [one for one in command(name).params if isinstance(one, click.Option) and not one.hidden]


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_short_help_fits_a_screen(name: str | None) -> None:
    """60 lines of 80 columns, and one line for each option."""
    result = invoke(*([name] if name else []), "--help", columns=80)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert len(lines) <= 60
    assert [line for line in lines if len(line) > 80] == []
    if name is not None:
        for option in shown(name):
            (row,) = (
                line for line in lines if re.match(rf"  (-., )?{option.opts[-1]}(?![-\w])", line)
            )
            assert re.search(r"\S  +\S", row.strip()), f"{name}: give it a help text:{row}"


@pytest.mark.parametrize("name", COMMANDS)
def test_long_help_has_every_word_of_every_option(name: str) -> None:
    said = "".join(full_help(command(name), _CONTEXT, name).split())
    for option in shown(name):
        assert "".join((option.help or "").split()) in said
    listed = invoke("help", name)
    assert listed.exit_code == 0
    assert "".join(listed.stdout.split())[:60] == said[:60]


def test_every_command_is_in_one_group() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS), "GROUPS in cli/main.py says where --help has each"


def test_run_has_30_options_at_most() -> None:
    assert len(shown("run")) <= 30


def test_an_option_has_one_meaning() -> None:
    """The same word takes the same kind of value in all commands."""
    metavars: dict[str, set[str | None]] = {}
    for name in COMMANDS:
        for option in shown(name):
            kind = "flag" if option.is_flag else option.metavar or type(option.type).__name__
            metavars.setdefault(option.opts[-1], set()).add(kind)
    several = {word for word, kinds in metavars.items() if len(kinds) > 1}
    # run also has participants on processes of MPI, ops lists the kernels of two devices only, and workers of a
    # study may be those of a cluster.
    assert several == {"--participants", "--device", "--emit", "--workers"}


@pytest.mark.parametrize(("where", "option"), REPLACED)
def test_a_replaced_option_names_what_to_type(where: str, option: str) -> None:
    name = where or "run"
    result = invoke(name, option, "1", "m.hlo")
    assert result.exit_code == 2
    assert "No such option" in result.stderr
    assert REPLACED[where, option] in result.stderr


def test_no_replaced_option_exists_where_it_is_said_to_be_gone() -> None:
    for where, option in REPLACED:
        words = [flag for one in shown(where or "run") for flag in one.opts]
        assert option not in words, (where, option)


def test_a_flag_of_xla_is_told_where_it_belongs() -> None:
    result = invoke("run", "--xla_dump_to=dump", "m.hlo")
    assert result.exit_code == 2
    assert "No such option '--xla_dump_to'. It is a flag of XLA: set XLA_FLAGS" in result.stderr


def test_an_option_that_never_was_gets_the_nearest() -> None:
    result = invoke("run", "--devise", "cpu")
    assert result.exit_code == 2
    assert "--device" in result.stderr
    assert "Type" not in result.stderr
