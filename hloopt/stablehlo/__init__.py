"""StableHLO in and out: text, MLIR bytecode, portable artifacts, files of jax.export.

jaxlib converts, in a child process of a Python that has it (``extras.jaxlib_python``): its import takes half a
second and 100 MiB, and a crash costs one file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from hloopt.text.foreign import MLIR

__all__ = [
    "BYTECODE",
    "MODEL_INDEX",
    "artifact",
    "is_model_directory",
    "is_stablehlo",
    "torch_xla_functions",
]

BYTECODE: Final = b"ML\xefR"
"""How MLIR bytecode and portable artifacts begin."""
MODEL_INDEX: Final = "model.json"
"""What a directory with a model of ours has (``model_directory``)."""
_HEAD = 65536
_TEXT: Final = re.compile(rf"(?:\s++|//[^\n]*+)*+(?:{MLIR})", re.MULTILINE)


def is_stablehlo(content: bytes) -> bool:
    """Whether bytes are MLIR, or a file of ``jax.export`` with some in it."""
    return content.startswith(BYTECODE) or _is_text(content) or artifact(content) is not None


def _is_text(content: bytes) -> bool:
    """Whether bytes begin as MLIR's text does."""
    return _TEXT.match(content[:_HEAD].decode("utf-8-sig", "replace")) is not None


def artifact(content: bytes) -> bytes | None:
    """The portable artifact in a flatbuffer of ``jax.export``, which has no magic number; None in others.

    A vector of bytes stands behind its length, both in the order of bytes that flatbuffers have everywhere.
    """
    if int.from_bytes(content[:4], "little") >= len(content):
        return None
    at = content.find(BYTECODE)
    while at >= 8:
        length = int.from_bytes(content[at - 4 : at], "little")
        if len(BYTECODE) < length <= len(content) - at:
            return content[at : at + length]
        at = content.find(BYTECODE, at + 1)
    return None


def is_model_directory(folder: Path) -> bool:
    """Whether a folder has a model with its weights, hloopt's form or torch_xla's."""
    return (folder / MODEL_INDEX).is_file() or bool(torch_xla_functions(folder))


def torch_xla_functions(folder: Path) -> list[Path]:
    """The descriptions of functions in a directory of torch_xla."""
    return sorted((folder / "functions").glob("*.meta"))
