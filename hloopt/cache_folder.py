"""Where a user's cache files are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """``HLOOPT_CACHE_DIR``, else the system's folder for caches and ``hloopt`` in it."""
    return Path(os.environ.get("HLOOPT_CACHE_DIR") or _of_system())


def _of_system() -> str:
    if sys.platform == "linux":
        # By the XDG base directory specification, as platformdirs has it, which takes 7 ms to load: a tenth
        # of what a small program takes from text to result.
        named = os.environ.get("XDG_CACHE_HOME", "").strip()
        home = named if os.path.isabs(named) else os.path.expanduser("~/.cache")  # noqa: PTH111, PTH117
        return f"{home}/hloopt"
    import platformdirs

    return platformdirs.user_cache_dir("hloopt", False)
