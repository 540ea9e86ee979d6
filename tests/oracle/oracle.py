"""Where XLA can be asked, and how."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

__all__ = ["CHILD", "ask", "available", "python"]

CHILD = Path(__file__).with_name("xla_child.py")
TIME_LIMIT = 300.0


def python() -> str:
    """The Python that has jaxlib."""
    return os.environ.get("HLOOPT_XLA_PYTHON") or sys.executable


@cache
def available() -> bool:
    """Whether the chosen Python has jaxlib."""
    probe = subprocess.run(
        [python(), "-c", "import jaxlib._hlo"], capture_output=True, check=False, timeout=60
    )
    return probe.returncode == 0


def ask(*arguments: str) -> str:
    """What the child printed; raises ``AssertionError`` with its messages when it failed."""
    result = subprocess.run(
        [python(), str(CHILD), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout
