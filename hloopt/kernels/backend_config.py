"""What an instruction's ``backend_config`` says of its kernel.

::

    backend_config={"hloopt":{"kernel":"dot-tiled","tile":{"m":64,"n":64}}}

Other entries stay as they are.  The config of a custom call belongs to whatever it calls, and is only touched
where that is known to read it by names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hloopt.analysis.backend_config import KEY, config_text, custom_name, read_backend_config
from hloopt.ir import Instruction, Module, edit

if TYPE_CHECKING:
    from hloopt.kernels.spec import Tile

__all__ = ["KernelConfig", "drop_choices", "read_choice"]


class KernelConfig:
    """The config of one instruction, read once.

    ``choice`` are the kernel and tile that are written, None where there are none; ``custom`` is the kernel
    that a custom fusion names, or an empty string.
    """

    def __init__(self, instruction: Instruction) -> None:
        self._instruction = instruction
        self._entries: dict[str, Any] | None = {}
        self.custom = ""
        if "backend_config" in instruction.attributes:
            self._entries = read_backend_config(instruction)
            self.custom = custom_name(instruction)
        self.choice = _choice((self._entries or {}).get(KEY))

    def refusal(self) -> str:
        """Why no choice can be written, empty where it can."""
        target = str(self._instruction.attributes.get("custom_call_target", "__"))
        if not target.startswith("__"):
            return f"its backend_config is an argument of {target}"
        if self._entries is None:
            return "its backend_config is not a JSON object"
        if not isinstance(self._entries.get(KEY, {}), dict):
            return f"its backend_config has a '{KEY}' that is not ours"
        return ""

    def write(self, kernel: str, tile: Tile) -> None:
        """Write a choice; ``refusal`` says where that cannot be."""
        entry: dict[str, Any] = {"kernel": kernel}
        if tile:
            entry["tile"] = dict(sorted(tile.items()))
        self._set({**(self._entries or {}), KEY: entry})

    def drop(self) -> bool:
        """Remove the choice, and a config with nothing else in it; returns whether there was one."""
        if not self._entries or KEY not in self._entries:
            return False
        self._set({key: value for key, value in self._entries.items() if key != KEY})
        return True

    def _set(self, entries: dict[str, Any]) -> None:
        self._entries, self.choice = entries, _choice(entries.get(KEY))
        text = config_text(self._instruction, entries)
        edit.set_attribute(self._instruction, "backend_config", text)


def _choice(entry: Any) -> tuple[str, Tile] | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("kernel"), str):
        return None
    tile = entry.get("tile", {})
    if not isinstance(tile, dict) or not all(type(value) is int for value in tile.values()):
        return None
    return entry["kernel"], tile


def read_choice(instruction: Instruction) -> tuple[str, Tile] | None:
    """The kernel and tile that are written, None where there are none."""
    return KernelConfig(instruction).choice


def drop_choices(module: Module) -> int:
    """Remove all choices, which XLA does not know, from a module; returns how many there were."""
    return sum(KernelConfig(instruction).drop() for instruction in module.instructions())
