"""The attribute backend_config: JSON, bare or in a string, as XLA writes it.

Of a loop it has the known trip count; of a fusion its kernel: kind, tiles of a Triton kernel, a user's kernel:
``{"fusion_backend_config":{"kind":"__triton","block_level_fusion_config":{"num_warps":"4","output_tiles":
[{"sizes":["1","512"]}],"num_ctas":1,"num_stages":1,...}}}``, as XLA writes it: 64-bit numbers are strings; or
``{"fusion_backend_config":{"kind":"__custom_fusion","custom_fusion_config":{"name":"while-per-thread"}}}``
(``FusionBackendConfig`` and ``CustomFusionConfig`` of XLA's ``backend_configs.proto``).
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import Verbatim

__all__ = [
    "CUSTOM",
    "KEY",
    "TRITON",
    "TRITON_GEMM",
    "BackendConfig",
    "BlockParameters",
    "backend_kind",
    "block_parameters",
    "config_text",
    "custom_name",
    "is_triton",
    "known_trip_count",
    "product_algorithm",
    "read_backend_config",
    "written_algorithm",
    "written_kind",
    "written_name",
    "written_parameters",
]

BackendConfig: TypeAlias = dict[str, Any]

KEY: Final = "hloopt"
"""Our entry: the kernel that was chosen and its tile, or how a convolution may be multiplied."""

TRITON: Final = "__triton"
TRITON_GEMM: Final = "__triton_gemm"


def read_backend_config(instruction: Instruction) -> BackendConfig | None:
    """The backend_config as a dictionary, empty where there is none; None if it is not a JSON object."""
    text = str(instruction.attributes.get("backend_config", "{}"))
    try:
        value = json.loads(text)
        if isinstance(value, str):
            value = json.loads(value) if value else {}
    except (ValueError, RecursionError):  # deep, or a number of thousands of digits
        return None
    return value if isinstance(value, dict) else None


def config_text(instruction: Instruction, config: BackendConfig) -> Verbatim | None:
    """The attribute's new value, in a string where it was one; None, to leave it out, if empty."""
    if not config:
        return None
    text = json.dumps(config, separators=(",", ":"))
    quoted = str(instruction.attributes.get("backend_config", "")).startswith('"')
    return Verbatim(json.dumps(text) if quoted else text)


def product_algorithm(product: Instruction) -> str:
    """As what a dot or a convolution is multiplied; HLO has an attribute for the first alone."""
    if product.opcode != "convolution":
        return str(product.attributes.get("algorithm", ""))
    entry = (read_backend_config(product) or {}).get(KEY)
    return str(entry.get("algorithm", "")) if isinstance(entry, dict) else ""


def written_algorithm(convolution: Instruction, algorithm: str) -> Verbatim | None:
    """A backend_config that allows a convolution to be multiplied by an algorithm.

    None where the config is not a JSON object, or has our entry already: a kernel that was chosen stays.
    """
    config = read_backend_config(convolution)
    if config is None or KEY in config:
        return None
    return config_text(convolution, {**config, KEY: {"algorithm": algorithm}})


def known_trip_count(loop: Instruction) -> int | None:
    """``known_trip_count`` of the backend_config, or None."""
    if "backend_config" not in loop.attributes:
        return None
    known = (read_backend_config(loop) or {}).get("known_trip_count")
    number = str(known.get("n", "")) if isinstance(known, dict) else ""
    return int(number) if number.isdecimal() else None


@dataclass(frozen=True)
class BlockParameters:
    """How a Triton kernel is cut into blocks.

    output_tiles  for each result the sizes of the tile that one block computes, by logical dimension
    num_warps     of a block
    num_ctas      blocks of a cluster
    num_stages    of software pipelining
    is_tma_allowed, is_warp_specialization_allowed, waves_per_eu  as XLA has them
    """

    output_tiles: tuple[tuple[int, ...], ...]
    num_warps: int = 1
    num_ctas: int = 1
    num_stages: int = 1
    is_tma_allowed: bool = False
    is_warp_specialization_allowed: bool = False
    waves_per_eu: int = 0

    @property
    def config(self) -> BackendConfig:
        """The JSON object XLA writes, keys in its order."""
        return {
            "num_warps": str(self.num_warps),
            "output_tiles": [{"sizes": [str(size) for size in tile]} for tile in self.output_tiles],
            "num_ctas": self.num_ctas,
            "num_stages": self.num_stages,
            "is_tma_allowed": self.is_tma_allowed,
            "is_warp_specialization_allowed": self.is_warp_specialization_allowed,
            "waves_per_eu": self.waves_per_eu,
        }


def backend_kind(instruction: Instruction) -> str:
    """The kind in a fusion's backend_config (``__triton``, ``__cudnn$fusion``); empty where none is written."""
    kind = _fusion_config(instruction).get("kind")
    return kind if isinstance(kind, str) else ""


def is_triton(instruction: Instruction) -> bool:
    """Whether this is a custom fusion of the kind ``__triton``: tiled, and open to producers and consumers."""
    attributes = instruction.attributes
    if instruction.opcode != "fusion" or "backend_config" not in attributes:
        return False
    return backend_kind(instruction) == TRITON and attributes["kind"] == "kCustom"


def block_parameters(instruction: Instruction) -> BlockParameters | None:
    """The parameters in a fusion's backend_config; None where there are none, or none that make sense."""
    config = _fusion_config(instruction).get("block_level_fusion_config")
    if not isinstance(config, dict):
        return None
    try:
        tiles = tuple(tuple(map(int, tile["sizes"])) for tile in config["output_tiles"])
        found = BlockParameters(
            tiles,
            int(config.get("num_warps", 1)),
            int(config.get("num_ctas", 1)),
            int(config.get("num_stages", 1)),
            bool(config.get("is_tma_allowed", False)),
            bool(config.get("is_warp_specialization_allowed", False)),
            int(config.get("waves_per_eu", 0)),
        )
    except (KeyError, TypeError, ValueError):
        return None
    positive = all(size > 0 for tile in tiles for size in tile) and found.num_warps > 0
    return found if positive else None


def written_kind(instruction: Instruction, kind: str) -> Verbatim:
    """A backend_config of a kind that has no parameters yet; its other parts stay as they are."""
    config = read_backend_config(instruction) or dict(_FRESH)
    return _text(instruction, {**config, "fusion_backend_config": {"kind": kind}})


def written_parameters(instruction: Instruction, parameters: BlockParameters) -> Verbatim:
    """A backend_config of the kind ``__triton`` with these parameters; its other parts stay as they are.

    Where there is none yet, the text is the one XLA writes.
    """
    written = {"kind": TRITON, "block_level_fusion_config": parameters.config}
    config = read_backend_config(instruction) or dict(_FRESH)
    return _text(instruction, {**config, "fusion_backend_config": written})


_FRESH: Final[BackendConfig] = {
    "operation_queue_id": "0",
    "fusion_backend_config": {},
    "force_earliest_schedule": False,
    "reification_cost": [],
    "device_type": "DEVICE_TYPE_INVALID",
}


def _fusion_config(instruction: Instruction) -> dict[str, Any]:
    if instruction.opcode != "fusion" or "backend_config" not in instruction.attributes:
        return {}
    found = (read_backend_config(instruction) or {}).get("fusion_backend_config")
    return found if isinstance(found, dict) else {}


def _text(instruction: Instruction, config: BackendConfig) -> Verbatim:
    text = config_text(instruction, config)
    assert text is not None, "a configuration with a kind is not empty"
    return text


CUSTOM: Final = "__custom_fusion"


def custom_name(instruction: Instruction) -> str:
    """The kernel a custom fusion names; empty where there is none."""
    if backend_kind(instruction) != CUSTOM:
        return ""
    config = (read_backend_config(instruction) or {})["fusion_backend_config"]
    entry = config.get("custom_fusion_config")
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else ""


def written_name(instruction: Instruction, name: str) -> Verbatim:
    """A backend_config of the kind ``__custom_fusion`` that names a kernel; other parts stay as they are."""
    written = {"kind": CUSTOM, "custom_fusion_config": {"name": name}}
    config = {**(read_backend_config(instruction) or {}), "fusion_backend_config": written}
    text = config_text(instruction, config)
    assert text is not None, "a configuration with a kind is not empty"
    return text
