"""``hloopt help``: every topic fits a terminal and names only what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import click
import pytest

from hloopt.cli.actions.topics import topics
from hloopt.cli.main import COMMANDS, cli
from tests.helpers.support import invoke

ROOT = Path(__file__).resolve().parents[2]


def options() -> set[str]:
    """The long options of all commands."""
    group = cast("click.Group", cli)
    context = cli.make_context("hloopt", [], resilient_parsing=True)
    commands = [group.get_command(context, name) for name in COMMANDS]
    params = [param for one in commands if one is not None for param in one.get_params(context)]
    return {name for param in params for name in param.opts if name.startswith("--")}


@pytest.mark.parametrize("name", sorted(topics()))
def test_a_topic_fits_and_names_what_there_is(name: str) -> None:
    """In 79 columns, with a sentence at the top that lists show."""
    text = topics()[name]
    assert max(map(len, text.splitlines())) < 80
    assert re.fullmatch(r"[A-Z][^.]*\.", text.splitlines()[0])
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+(?!\w)", text))
    assert named <= options()
    assert invoke("help", name).stdout == text


def test_topics_are_listed() -> None:
    lines = invoke("help").stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(topics())


def test_the_help_of_run_names_its_topics() -> None:
    told = " ".join(invoke("help", "run").stdout.split())
    names = re.search(r"Topics of hloopt help: ([^.]*)\.", told)
    assert names is not None
    assert set(names[1].split(", ")) <= set(topics())


def test_a_command_is_a_topic() -> None:
    told = invoke("help", "stats").stdout
    assert "With --target: how long each kernel will take there" in told
    assert told.startswith("Usage: hloopt stats ")


def test_an_unknown_topic() -> None:
    result = invoke("help", "inputz")
    assert (result.exit_code, result.stdout) == (2, "")
    said = "hloopt: error: no topic, command or code is called 'inputz'; did you mean 'inputs'?\n"
    assert result.stderr == said


def test_every_environment_variable_has_a_line() -> None:
    """Those that the source asks for by name, and those with our own names."""
    source = "\n".join(path.read_text() for path in (ROOT / "hloopt").rglob("*.py"))
    asked = {*re.findall(r'"(HLOOPT_[A-Z_]+)"', source)}
    for line in source.splitlines():
        if "environ" in line and re.search(r"\benviron\b", line):
            asked |= {*re.findall(r'"([A-Z][A-Z_]+)"', line)}
    asked -= {"JAX_PLATFORMS", "TF_CPP_MIN_LOG_LEVEL"}  # set for XLA, not asked for
    asked -= {"HOME", "OMPI_COMM_WORLD_RANK"}  # set by the system and by mpiexec
    assert {"HLOOPT_THREADS", "CXX", "CUDA_HOME", "XDG_CACHE_HOME"} <= asked
    missing = [name for name in sorted(asked) if name not in topics()["environment"]]
    assert not missing, "give them a line in hloopt/cli/topics/environment.txt"


def test_every_kind_of_file_has_a_line() -> None:
    """The suffixes that options show of the files they take or write."""
    group = cast("click.Group", cli)
    context = cli.make_context("hloopt", [], resilient_parsing=True)
    commands = [group.get_command(context, name) for name in COMMANDS]
    params = [param for one in commands if one is not None for param in one.get_params(context)]
    shown = {suffix for one in params for suffix in re.findall(r"\.[a-z]\w*", one.metavar or "")}
    assert {".npz", ".toml"} <= shown
    missing = [suffix for suffix in sorted(shown) if suffix not in topics()["formats"]]
    assert not missing, "give them a line in hloopt/cli/topics/formats.txt"
