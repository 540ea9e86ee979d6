"""The ``hloopt`` command: finds the subcommands, turns errors into messages and exit codes."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from _thread import interrupt_main
from threading import Timer
from typing import Any, Final

import click

from hloopt import __version__
from hloopt.cli.messages import error_json, show_defect, show_error
from hloopt.cli.options import JSON_WANTED
from hloopt.cli.streams import prepare_streams
from hloopt.cli.words import OneOf
from hloopt.errors import HlooptError, UnsupportedError
from hloopt.process import notes
from hloopt.spelling import nearest

__all__ = ["cli", "main"]

# Loaded when used: ``hloopt --help`` must not wait for NumPy.  Name -> (module, one line).
COMMANDS = {
    "bisect": ("bisect", "Find the pass, rewrite or kernel that changes results."),
    "build": ("build", "Compile a module into a library of C that needs no Python."),
    "cache": ("cache", "Show where compiled programs are kept, or remove them."),
    "check": ("check", "Parse and verify modules."),
    "compare": ("compare", "Run two modules, and find the first value that differs."),
    "completion": ("completion", "Print the completion script of a shell."),
    "defuse": ("defuse", "Expand the fusions of modules again."),
    "diff": ("diff", "Compare two modules: kernels, costs, each instruction that differs."),
    "doctor": ("doctor", "Say what this machine can do, and what to type for the rest."),
    "explain": ("explain", "Explain why instructions are fused or not, and their kernels."),
    "export": ("export", "Write a kernel as CUDA C, or a file for CuPy, JAX or PyTorch."),
    "gate": ("gate", "Fail when a module costs more than the one it replaces."),
    "graph": ("graph", "Draw the graph of a module, or write it for other tools."),
    "hash": ("hash", "Print a digest of each module, equal for equal modules."),
    "help": ("topics", "Explain a command with all its options, or a topic."),
    "kernels": ("kernels", "Show which kernel runs each instruction, and how."),
    "lsp": ("lsp", "Serve HLO to an editor: mistakes, names, predicted times."),
    "ls": ("ls", "List the modules of a dump directory and their stages."),
    "ops": ("ops", "List the opcodes of HLO and what hloopt can do with each."),
    "optimize": ("optimize", "Run passes over modules and print them as HLO."),
    "passes": ("passes", "List passes and pipelines, or explain one."),
    "reduce": ("reduce", "Find the smallest module that still fails, with its inputs."),
    "report": ("report", "Write a page about a module: what costs, and what would help."),
    "run": ("run", "Run a module as given and optimised, compare and time."),
    "stats": ("stats", "Show what is in a module: opcodes, flops, bytes, buffers."),
    "study": ("study", "Compare pipelines: what each pass buys, results verified."),
    "targets": ("targets", "List the devices hloopt knows, or the numbers of one."),
    "why": ("why", "Say what is slow, why, and what would help."),
}

GROUPS = {
    "Look": ("check", "stats", "graph", "report", "hash"),
    "Change": ("optimize", "defuse", "export"),
    "Run": ("run", "build", "study"),
    "Explain": ("why", "explain", "kernels"),
    "Compare": ("compare", "diff", "gate", "bisect", "reduce"),
    "Work on dumps": ("ls",),
    "About hloopt": ("help", "doctor", "passes", "ops", "targets", "cache", "completion", "lsp"),
}

_WIDTH: Final = max(map(len, COMMANDS))

_YOUNG: Final = 50_000
"""Objects made until the collector looks for garbage: modules are large, and most of what is made stays."""


def _colour(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Have rich, and what asks the environment, do as the option says."""
    if value in ("always", "never"):
        wanted, other = ("FORCE_COLOR", "NO_COLOR")[:: 1 if value == "always" else -1]
        os.environ[wanted] = "1"
        os.environ.pop(other, None)


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value:
        return
    if ctx.params["as_json"]:
        importlib.import_module("hloopt.cli.actions.doctor").write_versions()
    else:
        click.echo(f"hloopt, version {__version__}")
    ctx.exit(0)


def _show_tracebacks(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        os.environ[_VARIABLE] = "1"


_VARIABLE = "HLOOPT_TRACEBACK"


def _of_every_command(*, hidden: bool) -> list[click.Option]:
    """Options that the help of ``hloopt`` shows, and that every command takes as well."""
    return [
        click.Option(
            ["--color"],
            type=OneOf(["auto", "always", "never"]),
            expose_value=False,
            callback=_colour,
            hidden=hidden,
            help="Colours: auto (at a terminal), always or never; NO_COLOR is never, too.",
        ),
        click.Option(
            ["--traceback"],
            is_flag=True,
            expose_value=False,
            callback=_show_tracebacks,
            hidden=hidden,
            help=f"Show where in hloopt an internal error happened, as {_VARIABLE}=1 does.",
        ),
    ]


_ADDED: Final = _of_every_command(hidden=True)


class _Commands(click.Group):
    """Subcommands by name, imported when one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"hloopt.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        if _ADDED[0] not in command.params:
            command.params += _ADDED
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name not in COMMANDS and not name.startswith("-"):
            close = nearest(name, COMMANDS)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(_WIDTH), COMMANDS[name][1]) for name in names])

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """As click does, but 0 where no one reads the help: its 1 would say that results differ."""
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError:
            _forget_stdout()
            raise click.exceptions.Exit(0) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HlooptError as error:
            show_error(error)
            if ctx.meta.get(JSON_WANTED):
                json_out = importlib.import_module("hloopt.cli.json_out")
                json_out.write_json(str(ctx.invoked_subcommand), {"error": error_json(error)})
            ctx.exit(error.exit_code)
        except BrokenPipeError:
            _forget_stdout()
            ctx.exit(0)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit; with --json, that of Python and of libraries, too.",
)
@click.option("--json", "as_json", is_flag=True, is_eager=True, hidden=True)
def cli(as_json: bool) -> None:
    """Optimise, explain, run and verify XLA HLO text.

    \b
    Example:
      hloopt optimize dump.txt | hloopt run --device cpu

    \b
    More: hloopt help COMMAND, and hloopt help for topics, such as exit-codes
    """


cli.params += _of_every_command(hidden=False)


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """An interrupt within a finaliser cannot be raised there: it comes again when that is over."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
        return
    Timer(0.01, interrupt_main).start()


def main() -> None:
    """Entry point: usage errors exit with 2, an interrupt with 130, a defect of hloopt with 70."""
    prepare_streams()
    sys.unraisablehook = _unraisable
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
    try:
        code = cli.main(prog_name="hloopt", standalone_mode=False)
        sys.stdout.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except BrokenPipeError:
        _forget_stdout()
        code = 0
    except MemoryError as error:
        click.echo(f"hloopt: error: out of memory: {error or 'allocation failed'}", err=True)
        code = UnsupportedError.exit_code
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        click.echo(f"hloopt: error: {place}{error.strerror or error}", err=True)
        code = 2
    except Exception as error:  # noqa: BLE001 - a user is shown no traceback
        show_defect(error)
        code = 70
    for note in notes():
        click.echo(f"note: {note}", err=True)
    _flush_or_forget()
    # At its end Python collects garbage once more: up to a fifth of a short command.
    gc.freeze()
    sys.exit(code if isinstance(code, int) else 0)


def _flush_or_forget() -> None:
    """Flush what was printed before an error; if that fails, an error was reported already."""
    try:
        sys.stdout.flush()
    except OSError:
        _forget_stdout()


def _forget_stdout() -> None:
    """Drop stdout, which no reader takes; Python must not complain when it flushes it at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
