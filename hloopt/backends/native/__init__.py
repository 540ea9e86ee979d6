"""Programs compiled for the host's processor by its C++ compiler."""

from __future__ import annotations

from hloopt.backends.native.toolchain import check_native

__all__ = ["check_native"]
