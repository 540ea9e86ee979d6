"""The reference, made from the code: ``python -m tests.documentation.reference FOLDER`` writes a page of Markdown for each subject.

It asks the commands themselves, so that it has what they have.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from hloopt import errors
from hloopt.cli.actions.topics import topics
from hloopt.cli.codes import codes, exit_codes
from hloopt.cli.help import full_help
from hloopt.cli.main import GROUPS, cli
from hloopt.findings.kinds import KINDS
from hloopt.fusion.decision import REASONS
from hloopt.verifier import RULES as CONSTRAINTS


def asked(*words: str) -> Any:
    """What a command answers in JSON."""
    return json.loads(CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False).stdout)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown; bars in cells are escaped."""
    lines = [list(heads), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    cells = ([" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def block(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def commands() -> str:
    """Every command with all its options, in the groups of ``hloopt --help``."""
    top = cli.make_context(
        "hloopt", [], resilient_parsing=True, max_content_width=100, terminal_width=100
    )
    parts = ["# Commands\n", block(cli.get_help(top))]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        for name in names:
            command = cli.get_command(top, name)
            assert command is not None
            help_text = full_help(command, top, name)
            parts += [f"### hloopt {name}\n", block(help_text)]
    return "\n".join(parts)


def passes() -> str:
    """Every pass with its options, its rules and its example."""
    parts = ["# Passes\n"]
    for name in [row["name"] for row in asked("passes")["passes"]]:
        row = asked("passes", name)["pass"]
        parts += [f"## {name}\n", block(row["doc"])]
        if row["options"]:
            options = ((f"`{o['name']}`", o["default"], o["meaning"]) for o in row["options"])
            parts.append(table(("option", "default", "what it is"), options))
        if row["rules"]:
            rules = ((f"`{rule['name']}`", rule["needs"]) for rule in row["rules"])
            parts.append(table(("rule", "needs"), rules))
        parts += ["Before:\n", block(row["example"]["before"], "hlo")]
        parts += ["After:\n", block(row["example"]["after"], "hlo")]
    return "\n".join(parts)


def ops() -> str:
    rows = asked("ops")["ops"]
    found = (
        (
            f"`{row['opcode']}`",
            row["family"],
            " to ".join("any" if n is None else str(n) for n in dict.fromkeys(row["operands"])),
            ", ".join(row["attributes"]),
            "yes" if row["evaluation"] else "no",
        )
        for row in rows
    )
    return "# Ops\n\n" + table(("opcode", "family", "operands", "attributes", "evaluated"), found)


def kernels() -> str:
    rows = asked("kernels", "--list")["kernels"]
    found = ((f"`{row['kernel']}`", row["device"], row["summary"]) for row in rows)
    return "# Kernels\n\n" + table(("kernel", "device", "what it does"), found)


def targets() -> str:
    rows = asked("targets")["targets"]
    found = ((f"`{row['name']}`", row["title"], row["kind"]) for row in rows)
    return "# Targets\n\n" + table(("target", "device", "kind"), found)


def refusals() -> str:
    """Codes of refused fusions, and the constraints that the verifier names in brackets, as ``help`` prints them."""
    return (
        "# Refusals\n\n"
        "## Why two instructions are not fused\n\n"
        "The codes are those of `hloopt explain`; [How XLA fuses](../concepts/fusion.md) has the rules together.\n\n"
        + entries(REASONS)
        + "\n## Why a module is not valid\n\n"
        "Errors of the verifier name these constraints in brackets.\n\n" + entries(CONSTRAINTS)
    )


def findings() -> str:
    kinds = [kind.name for kind in KINDS]
    return "# Findings\n\nThe kinds that `hloopt why` looks for.\n\n" + entries(kinds)


def error_kinds() -> str:
    """Exit codes, and the kinds of errors as JSON and Python name them."""
    exits = ((f"`{code}`", words) for code, words in exit_codes(topics()["exit-codes"]).items())
    return (
        "# Errors and exit codes\n\n"
        + table(("exit code", "meaning"), exits)
        + "\n## Kinds of errors\n\nJSON has them under `kind`, Python raises them.\n\n"
        + entries(errors.__all__)
    )


def entries(names: Iterable[str]) -> str:
    """What ``hloopt help`` prints of each code, under its name."""
    texts = codes(topics()["exit-codes"])
    return "\n".join(f"### {name}\n\n{block(_about(texts[name]()))}" for name in names)


def _about(text: str) -> str:
    """An entry without its first line, which is its heading here."""
    return text.partition("\n\n")[2]


def help_topics() -> str:
    parts = ["# Topics\n"]
    for name, text in topics().items():
        parts += [f"## {name}\n", block(text)]
    return "\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "commands": commands,
    "passes": passes,
    "ops": ops,
    "kernels": kernels,
    "targets": targets,
    "findings": findings,
    "refusals": refusals,
    "errors": error_kinds,
    "topics": help_topics,
}


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / f"{name}.md").write_text(page())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
