"""How to install the optional parts of this hloopt, and which Python has jaxlib.

Extras are installed by hloopt's own files: the name alone would be looked up in a package registry, where it
may be another's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["XLA_PYTHON", "install_command", "jaxlib_python"]

XLA_PYTHON: Final = "HLOOPT_XLA_PYTHON"
"""The variable that names a Python with jaxlib."""


def install_command(extra: str) -> str:
    """What installs an extra beside this hloopt: from its clone, or from the wheel that it came in."""
    top = Path(__file__).resolve().parent.parent
    if (top / "pyproject.toml").is_file():
        return f"pip install -e '{top}[{extra}]'"
    from importlib.metadata import version

    return f"pip install 'hloopt-{version('hloopt')}-py3-none-any.whl[{extra}]'"


def jaxlib_python() -> str | None:
    """The Python that ``HLOOPT_XLA_PYTHON`` names, else this one if it has jaxlib, else None.

    The variable may be set to nothing: then there is none.  What it names is not tried here: who runs it
    reports what it lacks.
    """
    named = os.environ.get(XLA_PYTHON)
    if named is not None:
        return named or None
    import importlib.util

    return sys.executable if importlib.util.find_spec("jaxlib") else None
