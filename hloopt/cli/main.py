"""The ``hloopt`` command: finds the subcommands, turns errors into messages and exit codes."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Any, Final

import click

from hloopt import __version__
from hloopt.cache_folder import notes
from hloopt.cli.messages import error_json, show_error
from hloopt.cli.options import JSON_WANTED
from hloopt.cli.streams import prepare_streams
from hloopt.errors import HlooptError, UnsupportedError
from hloopt.spelling import nearest

__all__ = ["cli", "main"]

# Loaded when used: ``hloopt --help`` must not wait for NumPy.  Name -> (module, one line).
COMMANDS = {
    "bisect": ("bisect", "Find the pass, rewrite or kernel that changes the results of a module."),
    "build": ("build", "Compile a module into a library of C that needs no Python."),
    "cache": ("cache", "Show where compiled programs are kept, or remove them."),
    "check": ("check", "Parse and verify modules."),
    "compare": (
        "compare",
        "Run two modules on the same inputs, and find the first value that differs.",
    ),
    "completion": ("completion", "Print the completion script of a shell."),
    "defuse": ("defuse", "Expand the fusions of modules again."),
    "diff": (
        "diff",
        "Compare two modules: their kernels, what those cost, and each instruction that differs.",
    ),
    "explain": (
        "explain",
        "Explain why instructions are fused or not, and which kernels run them.",
    ),
    "export": ("export", "Write one kernel as CUDA C, or as a file for CuPy, JAX or PyTorch."),
    "gate": ("gate", "Fail when a module costs more than it may beside the one it replaces."),
    "graph": ("graph", "Draw the graph of a module, or write it for Graphviz and other tools."),
    "hash": ("hash", "Print a digest of each module, equal for equal modules."),
    "help": ("topics", "Explain a topic that several commands share."),
    "kernels": ("kernels", "Show which kernel runs each instruction, and how."),
    "lsp": ("lsp", "Serve HLO to an editor: mistakes, names, predicted times, fusion."),
    "ls": ("ls", "List the modules of a dump directory and their stages."),
    "ops": ("ops", "List the opcodes of HLO and what hloopt can do with each."),
    "optimize": ("optimize", "Run passes over modules and print them as HLO."),
    "passes": ("passes", "List passes and pipelines, or explain one."),
    "reduce": ("reduce", "Find the smallest module that still fails, with its inputs."),
    "report": ("report", "Write a page about a module: what costs, why, and what would help."),
    "run": ("run", "Run a module as given and optimised, compare and time."),
    "stats": ("stats", "Show what is in a module: opcodes, flops, bytes, buffers."),
    "study": ("study", "Compare pipelines: what each pass buys, with every result verified."),
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
    "About hloopt": ("help", "passes", "ops", "targets", "cache", "completion", "lsp"),
}

_WIDTH: Final = max(map(len, COMMANDS))

_YOUNG: Final = 50_000
"""Objects made until the collector looks for garbage: modules are large, and most of what is made stays."""


def _show_tracebacks(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        os.environ[_VARIABLE] = "1"


_VARIABLE = "HLOOPT_TRACEBACK"
_TRACEBACK = click.Option(
    ["--traceback"],
    is_flag=True,
    expose_value=False,
    callback=_show_tracebacks,
    help=f"Show where in hloopt an internal error happened, as {_VARIABLE}=1 does.",
)


class _Commands(click.Group):
    """Subcommands by name, imported when one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"hloopt.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        if _TRACEBACK not in command.params:
            command.params.append(_TRACEBACK)
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

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HlooptError as error:
            show_error(error)
            if ctx.meta.get(JSON_WANTED):
                from hloopt.cli.json_out import write_json

                write_json(str(ctx.invoked_subcommand), {"error": error_json(error)})
            ctx.exit(error.exit_code)
        except BrokenPipeError:
            _forget_stdout()
            ctx.exit(0)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hloopt")
def cli() -> None:
    """Optimise, explain, run and verify XLA HLO text.

    \b
    Example:
      hloopt optimize dump.txt | hloopt run --device cpu

    \b
    Exit codes:
      0  ok
      1  results differ
      2  usage, or an invalid file that is not a module (TOML, a log)
      3  a module that cannot be read, is not valid, or stops while it runs
      4  a module that cannot be executed here
      5  no such device
      6  a gate is exceeded
     70  a defect of hloopt
    130  interrupted
    """


cli.params.append(_TRACEBACK)


def main() -> None:
    """Entry point: usage errors exit with 2, an interrupt with 130, a defect of hloopt with 70."""
    prepare_streams()
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
        click.echo(f"hloopt: error: {error}", err=True)
        code = 2
    except Exception as error:  # noqa: BLE001 - a user is shown no traceback
        if os.environ.get(_VARIABLE, "0") != "0":
            import traceback

            traceback.print_exc()
        click.echo(
            f"hloopt: internal error: {type(error).__name__}: {error}{_notes(error)}\n"
            "This is a defect of hloopt; please report it with the module that shows it "
            "(--traceback prints where it happened).",
            err=True,
        )
        code = 70
    for note in notes():
        click.echo(f"note: {note}", err=True)
    _flush_or_forget()
    sys.exit(code if isinstance(code, int) else 0)


def _notes(error: Exception) -> str:
    """What was added to an error on its way: which pass was running."""
    return "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


def _flush_or_forget() -> None:
    """Flush what was printed before an error; if that fails, an error was reported already."""
    try:
        sys.stdout.flush()
    except OSError:
        _forget_stdout()


def _forget_stdout() -> None:
    """Drop stdout, which no reader takes; Python must not complain when it flushes it at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
