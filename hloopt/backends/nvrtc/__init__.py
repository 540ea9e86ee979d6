"""CUDA C to machine code, by NVRTC: neither a GPU nor a driver nor CuPy is needed."""

from __future__ import annotations

from hloopt.backends.nvrtc.compilation import (
    FAST_MATH,
    FLAGS,
    TIMED,
    VERIFY,
    CompilationError,
    Compiled,
    CompilerFlags,
    compile_cuda,
    compile_ptx,
)
from hloopt.backends.nvrtc.library import INSTALL, Nvrtc, architecture, nvrtc_for, nvrtc_for_device
from hloopt.backends.nvrtc.resources import Resources, read_resources

__all__ = [
    "FAST_MATH",
    "FLAGS",
    "INSTALL",
    "TIMED",
    "VERIFY",
    "CompilationError",
    "Compiled",
    "CompilerFlags",
    "Nvrtc",
    "Resources",
    "architecture",
    "compile_cuda",
    "compile_ptx",
    "nvrtc_for",
    "nvrtc_for_device",
    "read_resources",
]
