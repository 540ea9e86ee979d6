"""Whatever a shell may ask to complete is answered: for every option and argument of every command."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from hloopt.cli.main import cli

_SAMPLE = str(Path(__file__).parents[2] / "samples/conv_bias_relu.hlo")
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


FREE = {"ARG=SHAPE", "N|RxP", "N|URL", "N|RxP|mpi", "FLAGS", "CMD"}
"""Values that have no names: sizes, numbers, flags of XLA and commands of a shell."""


def test_every_value_that_has_names_is_completed() -> None:
    """By words of its own, as a choice, or as a file; or it is a number, or listed above."""
    names = cli.list_commands(_CONTEXT)
    commands = {name: cli.get_command(_CONTEXT, name) for name in names}
    bare = [
        f"hloopt {name} {parameter.opts[0]} {parameter.metavar}: give it shell_complete="
        for name, command in commands.items()
        if command is not None
        for parameter in command.params
        if parameter.type is click.STRING
        and parameter._custom_shell_complete is None
        and parameter.metavar not in FREE
    ]
    assert not bare


@pytest.mark.parametrize(
    ("words", "start", "found"),
    [
        (["optimize", "--print-after"], "cs", ["cse"]),
        (["reduce", "--against"], "O1,cs", ["O1,cse"]),
        (["why", "--passes"], "xla-gpu-2026", ["xla-gpu-2026"]),
        (["study", "--strategy"], "mine=O1,cs", ["mine=O1,cse"]),
        (["study", "--strategy", "mine=O1,cse", "--baseline"], "m", ["mine"]),
        (["study", "--gate"], "O", ["O0", "O1", "O2", "O3"]),
        (["gate", "a", "b", "--max"], "kernels<=+0,pe", ["kernels<=+0,peak"]),
        (["optimize", "-o"], "out", ["file:out"]),
        (["run", "--inputs"], "in", ["file:in"]),
        (["optimize", "--dump-dir"], "d", ["dir:d"]),
        (["export", _SAMPLE], "loop", ["loop_maximum_fusion"]),
        (["export", _SAMPLE, "-O0"], "max", ["max.2", "max.3"]),
        (["export", "no.hlo"], "loop", []),
        (["graph", _SAMPLE, "--at"], "mai", ["main.2"]),
        (["kernels", _SAMPLE, "--kernel"], "%max", ["%max.2=", "%max.3="]),
        (["kernels", _SAMPLE, "--target", "host", "--kernel"], "m=native-g", ["m=native-gemm"]),
    ],
    ids=lambda value: " ".join(value[-1:]) if isinstance(value, list) else value,
)
def test_words_and_files_are_completed(words: list[str], start: str, found: list[str]) -> None:
    """Of an option of each kind; files and folders are left to the shell."""
    complete = ShellComplete(cli, {}, "hloopt", "_HLOOPT_COMPLETE")
    items = complete.get_completions(words, start)
    plain = [one.value if one.type == "plain" else f"{one.type}:{one.value}" for one in items]
    assert plain == found


def test_modules_of_the_folder_before_the_option_are_completed(tmp_path: Path) -> None:
    """Of commands that take one file, too."""
    (tmp_path / "module_0001.jit_f.before_optimizations.txt").write_text("HloModule jit_f\n")
    complete = ShellComplete(cli, {}, "hloopt", "_HLOOPT_COMPLETE")
    for command in ("diff", "export", "stats"):
        items = complete.get_completions([command, str(tmp_path), "--module"], "jit")
        assert [item.value for item in items] == ["jit_f"]


def test_a_word_that_is_nearly_one_of_few_is_named() -> None:
    """In the words of click where they are few, alone where they are many."""
    for words, message in (
        (
            ["ls", "--sort", "tme"],
            "one of 'time', 'peak', 'launches', 'instructions'; did you mean 'time'?",
        ),
        (
            ["why", "--kind", "paralel-scan"],
            "'paralel-scan' is not known; did you mean 'parallel-scan'?",
        ),
        (
            ["graph", "--format", "xyz"],
            "'xyz' is not one of 'svg', 'dot', 'model-explorer', 'perfetto'.",
        ),
    ):
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 2
        assert message in result.output.replace("\n", " ")
