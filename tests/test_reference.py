"""The reference made from the code leaves nothing out."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import click
import pytest

import hloopt.targets
from hloopt import errors
from hloopt.cli.main import COMMANDS, cli
from hloopt.findings.kinds import KINDS
from hloopt.fusion.decision import REASONS
from hloopt.kernels.registry import kernels
from hloopt.ops import OPS
from hloopt.pipelines import PASSES
from hloopt.simplify import RULES
from hloopt.verifier import RULES as CONSTRAINTS
from tests.documentation import reference


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("reference")
    reference.write(folder)
    return {path.stem: path.read_text() for path in folder.glob("*.md")}


def test_every_command_and_option_has_its_entry(pages: dict[str, str]) -> None:
    sections = {part.split("\n", 1)[0]: part for part in pages["commands"].split("### hloopt ")[1:]}
    context = cli.make_context("hloopt", [], resilient_parsing=True)
    assert sorted(sections) == sorted(COMMANDS)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        options = [param for param in command.params if isinstance(param, click.Option)]
        shown = [option for option in options if not option.hidden]
        missing = [flag for option in shown for flag in option.opts if flag not in sections[name]]
        assert missing == [], name


def test_every_pass_and_its_options_have_their_entry(pages: dict[str, str]) -> None:
    """With an example, before and after."""
    sections = {part.split("\n", 1)[0]: part for part in pages["passes"].split("\n## ")[1:]}
    assert sorted(sections) == sorted(PASSES)
    for name, kind in PASSES.items():
        missing = [f.name for f in fields(kind) if f"| `{f.name}` |" not in sections[name]]
        assert missing == [], name
        assert sections[name].count("```hlo\n") == 2, f"give the pass {name} an example"
    escaped = [rule.name.replace("|", "\\|") for rule in RULES.rules]
    assert [rule for rule in escaped if f"`{rule}`" not in sections["simplify"]] == []


def test_every_name_has_its_row(pages: dict[str, str]) -> None:
    """Opcodes, kernels and targets."""
    devices = Path(hloopt.targets.__file__).with_name("devices").glob("*.toml")
    wanted = {
        "ops": list(OPS),
        "kernels": [kernel.name for kernel in kernels()],
        "targets": [device.stem for device in devices],
    }
    for page, names in wanted.items():
        assert names
        assert [name for name in names if f"| `{name}` |" not in pages[page]] == [], page


def test_every_code_has_its_entry(pages: dict[str, str]) -> None:
    """With more than its name: the codes of refusals, the constraints, the kinds of findings and of errors."""
    wanted = {
        "refusals": [*REASONS, *CONSTRAINTS],
        "findings": [kind.name for kind in KINDS],
        "errors": errors.__all__,
    }
    for page, names in wanted.items():
        entries = dict(
            re.findall(r"^### (\S+)\n\n```text\n(.*?)```", pages[page], re.DOTALL | re.MULTILINE)
        )
        assert list(entries) == list(names)
        assert all(len(text) > 20 for text in entries.values())


def test_the_topics_hold_the_environment_and_the_exit_codes(pages: dict[str, str]) -> None:
    assert "HLOOPT_CACHE_DIR" in pages["topics"]
    assert "130  interrupted" in pages["topics"]
    assert "| `130` | interrupted |" in pages["errors"]


def test_cells_of_tables_stay_in_their_column() -> None:
    """A bar or a line break in a text does not end its cell."""
    assert reference.table(("a",), [("x | y\nz",)]).splitlines()[2] == r"| x \| y z |"
