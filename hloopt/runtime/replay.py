"""Plans that ``hloopt kernels --plan --json`` wrote, read back to be run as they stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.kernels.plan import Plan
from hloopt.kernels.plan_json import load_plan
from hloopt.text.parser import parse_module

__all__ = ["Replay", "read_replay"]


@dataclass(frozen=True)
class Replay:
    """A plan, the module it is for (made ready for a device), and the target its kernels were chosen for."""

    module: Module
    plan: Plan
    target: str


def read_replay(path: Path, name: str) -> Replay:
    """The plan of the module called ``name`` in a file; of its only module, whatever that is called.

    Raises ``UsageError`` for a file that cannot be read or is none of these, for a module it does not have, and
    for a plan that does not fit its module; ``ParseError`` for the module's text.
    """
    rows = _rows(path)
    found = rows[0] if len(rows) == 1 else next((r for r in rows if r.get("module") == name), None)
    if found is None:
        names = ", ".join(str(row.get("module")) for row in rows)
        raise UsageError(f"{path}: there is no plan of {name} in it, but of {names or 'nothing'}")
    for key in ("plan", "hlo", "target"):
        if key not in found:
            raise UsageError(
                f"{path}: '{key}' is missing; hloopt kernels --plan --json writes such files"
            )
    module = parse_module(str(found["hlo"]), str(path))
    try:
        plan = load_plan(json.dumps(found["plan"]), module)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}") from error
    return Replay(module, plan, str(found["target"]))


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: this is no JSON: {error}") from error
    rows = content.get("modules") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"{path}: there are no modules in it; see hloopt kernels --plan --json")
    return rows
