"""What a module reads from the host and writes to it, in files: see ``interpret.host`` for the names."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hloopt.errors import UsageError
from hloopt.interpret import Host
from hloopt.runtime.inputs import stored
from hloopt.types import Array, of_numpy

__all__ = ["load_host", "npz"]


def load_host(path: Path | None, seed: int = 0) -> Host:
    """A host with the arrays of an ``.npz`` file or a folder of ``.npy`` files; without one, all is drawn.

    Raises ``UsageError`` for files that cannot be read and names that make no streams.
    """
    if path is None:
        return Host(seed=seed)
    try:
        return Host(stored(path), seed=seed)
    except UsageError as error:
        at = "" if error.message.startswith(str(path)) else f"{path}: "
        raise UsageError(f"{at}{error.message}") from error


def npz(arrays: Mapping[str, Array]) -> bytes:
    """The bytes of an ``.npz`` file.

    Floats that NumPy lacks are stored as unsigned views of the same item size, integers as whole bytes.
    """
    content = io.BytesIO()
    plain: dict[str, Any] = {name: _plain(array) for name, array in arrays.items()}
    np.savez(content, **plain)
    return content.getvalue()


def _plain(array: Array) -> Array:
    kind = of_numpy(array.dtype)
    if array.dtype.isbuiltin == 1:
        return array
    if kind.is_integer:
        return array.astype(np.int8 if kind.kind == "signed" else np.uint8)
    return array.view(f"u{array.dtype.itemsize}")
