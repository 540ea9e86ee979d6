"""The choice as it stands in an instruction's ``backend_config``.

::

    backend_config={"hloopt":{"kernel":"dot-tiled","tile":{"m":64,"n":64}}}

Other entries stay as they are.  The config of a custom call belongs to whoever it calls, and is only touched
where that is known to read it by names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hloopt.analysis.loop_config import config_text, loop_config
from hloopt.ir import Instruction, Module, edit

if TYPE_CHECKING:
    from hloopt.kernels.spec import Tile

__all__ = [
    "KEY",
    "drop_choice",
    "drop_choices",
    "read_choice",
    "refusal",
    "write_choice",
]

KEY: Final = "hloopt"
"""Our entry."""


def refusal(instruction: Instruction) -> str:
    """Why no choice can be written, empty where it can."""
    target = str(instruction.attributes.get("custom_call_target", "__"))
    if not target.startswith("__"):
        return f"its backend_config is an argument of {target}"
    config = loop_config(instruction)
    if config is None:
        return "its backend_config is no JSON object"
    if not isinstance(config.get(KEY, {}), dict):
        return f"its backend_config has a '{KEY}' that is not ours"
    return ""


def read_choice(instruction: Instruction) -> tuple[str, Tile] | None:
    """The kernel and tile that are written, None where there are none."""
    if "backend_config" not in instruction.attributes:
        return None
    found = (loop_config(instruction) or {}).get(KEY)
    if not isinstance(found, dict) or not isinstance(found.get("kernel"), str):
        return None
    tile = found.get("tile", {})
    if not isinstance(tile, dict) or not all(type(value) is int for value in tile.values()):
        return None
    return found["kernel"], tile


def write_choice(instruction: Instruction, kernel: str, tile: Tile) -> None:
    """Write a choice; ``refusal`` says where that cannot be."""
    entry: dict[str, Any] = {"kernel": kernel}
    if tile:
        entry["tile"] = dict(sorted(tile.items()))
    config = {**(loop_config(instruction) or {}), KEY: entry}
    edit.set_attribute(instruction, "backend_config", config_text(instruction, config))


def drop_choice(instruction: Instruction) -> bool:
    """Take the choice out, and the config with it where nothing else is in it; say whether there was one."""
    if "backend_config" not in instruction.attributes:
        return False
    config = loop_config(instruction)
    if not config or KEY not in config:
        return False
    rest = {key: value for key, value in config.items() if key != KEY}
    edit.set_attribute(instruction, "backend_config", config_text(instruction, rest))
    return True


def drop_choices(module: Module) -> int:
    """Take all choices out of a module, which XLA would not know; how many there were."""
    return sum(drop_choice(instruction) for instruction in module.instructions())
