"""What a fusion's backend_config says of a kernel of one's own, as XLA writes and reads it.

``{"fusion_backend_config":{"kind":"__custom_fusion","custom_fusion_config":{"name":"while-per-thread"}}}``
(``FusionBackendConfig`` and ``CustomFusionConfig`` of XLA's ``backend_configs.proto``).
"""

from __future__ import annotations

from typing import Final

from hloopt.analysis.loop_config import config_text, loop_config
from hloopt.analysis.triton_config import backend_kind
from hloopt.ir import Instruction
from hloopt.types import Verbatim

__all__ = ["CUSTOM", "custom_name", "written_name"]

CUSTOM: Final = "__custom_fusion"


def custom_name(instruction: Instruction) -> str:
    """The kernel a custom fusion names; empty where there is none."""
    if backend_kind(instruction) != CUSTOM:
        return ""
    config = (loop_config(instruction) or {})["fusion_backend_config"]
    entry = config.get("custom_fusion_config")
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else ""


def written_name(instruction: Instruction, name: str) -> Verbatim:
    """A backend_config of the kind ``__custom_fusion`` that names a kernel; other parts stay as they are."""
    written = {"kind": CUSTOM, "custom_fusion_config": {"name": name}}
    config = {**(loop_config(instruction) or {}), "fusion_backend_config": written}
    text = config_text(instruction, config)
    assert text is not None, "a configuration with a kind is not empty"
    return text
