"""What runs kernels of one's own beside the interpreter: given by whoever can, before they are chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from hloopt.kernels.kernel import Kernel, Site
    from hloopt.kernels.spec import KernelSpec

__all__ = ["Verifier", "verifier", "verify_with"]

Verifier: TypeAlias = "Callable[[Site, Kernel, KernelSpec], str]"
"""Runs a site by a kernel beside the interpreter; says what differs, nothing where all is well."""

_STATE: dict[str, Verifier] = {}


def verify_with(verifier: Verifier) -> None:
    """From now on kernels of one's own are verified by this; before, none of them fits anything."""
    _STATE["verifier"] = verifier


def verifier() -> Verifier | None:
    """What kernels of one's own are verified by; None before there is anything."""
    return _STATE.get("verifier")
