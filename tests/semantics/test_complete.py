"""Every op has an independent statement of its rule."""

from __future__ import annotations

import ast
from pathlib import Path

from hloopt.ops import OPS

HERE = Path(__file__).parent


def stated() -> dict[str, str]:
    """Opcode -> the module that says in ``OPCODES`` that it states it."""
    found: dict[str, str] = {}
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OPCODES":
                for opcode in ast.literal_eval(node.value):
                    assert opcode not in found, f"{opcode}: {found.get(opcode)} and {path.name}"
                    found[opcode] = path.name
    return found


def test_every_opcode_is_stated_once():
    """A new op comes with a statement of its own."""
    assert set(stated()) == set(OPS)
