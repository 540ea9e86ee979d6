"""How to install the optional parts of this hloopt.

By its own files: the name alone would be looked up in a package registry, where it may be another's.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["install_command"]


def install_command(extra: str) -> str:
    """What installs an extra beside this hloopt: from its clone, or from the wheel that it came in."""
    top = Path(__file__).resolve().parent.parent
    if (top / "pyproject.toml").is_file():
        return f"pip install -e '{top}[{extra}]'"
    from importlib.metadata import version

    return f"pip install 'hloopt-{version('hloopt')}-py3-none-any.whl[{extra}]'"
