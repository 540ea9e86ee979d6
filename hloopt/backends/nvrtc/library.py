"""NVRTC by ctypes: where its library is, what it can compile for, and the one call that compiles."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError
from hloopt.extras import install_command

__all__ = [
    "INSTALL",
    "Nvrtc",
    "Outcome",
    "architecture",
    "candidates",
    "nvrtc_for",
    "nvrtc_for_device",
]

INSTALL = f"{install_command('gpu')} (CUDA 13; [gpu12] for CUDA 12 drivers and the V100)"

_SUCCESS, _COMPILATION = 0, 6
# The wheels nvidia-cuda-nvrtc (CUDA 13) and nvidia-cuda-nvrtc-cu12, in the namespace package nvidia.
_WHEELS = ("cu13/lib/libnvrtc.so.13", "cuda_nvrtc/lib/libnvrtc.so.12")
_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


@dataclass(frozen=True, slots=True)
class Outcome:
    """NVRTC's result: ``ok``, its log, machine code (empty for a virtual architecture) and PTX."""

    ok: bool
    log: str
    cubin: bytes
    ptx: str


class Nvrtc:
    """One library; may be used by several threads at once."""

    def __init__(self, path: str) -> None:
        """Load it; raises ``OSError`` where it cannot be, ``AttributeError`` where it is too old (< 11.2)."""
        self.path = path
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = (major.value, minor.value)
        count = ctypes.c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        numbers = (ctypes.c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(numbers))
        self.capabilities = tuple(divmod(number, 10) for number in sorted(numbers))
        self.architectures = tuple(map(architecture, self.capabilities))

    def __str__(self) -> str:
        return f"NVRTC {self.version[0]}.{self.version[1]}"

    @property
    def identity(self) -> str:
        """What distinguishes two builds of one version in the key of a cache."""
        path = Path(self.path)
        return f"{self} {path.stat().st_size if path.is_file() else self.path}"

    def supports(self, arch: str) -> bool:
        """Whether it compiles for ``sm_90``, ``sm_90a``, ``compute_90`` and the like."""
        found = re.fullmatch(r"(?:sm|compute)_(\d+)[af]?", arch)
        return found is not None and f"sm_{found[1]}" in self.architectures

    def compile(self, source: str, name: str, options: Sequence[str]) -> Outcome:
        """Compile a text; errors in it are in the log, any other failure is a ``DeviceError``."""
        program = ctypes.c_void_p()
        self._check(
            self._library.nvrtcCreateProgram(
                ctypes.byref(program), source.encode(), name.encode(), 0, None, None
            )
        )
        try:
            texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            status = self._library.nvrtcCompileProgram(program, len(options), texts)
            log = self._bytes(program, "ProgramLog").replace(b"\0", b"").decode(errors="replace")
            if status == _COMPILATION:
                return Outcome(False, log, b"", "")
            self._check(status, log)
            cubin = self._bytes(program, "CUBIN")
            ptx = self._bytes(program, "PTX").rstrip(b"\0").decode()
            return Outcome(True, log, cubin, ptx)
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        if not size.value:
            return b""
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _check(self, status: int, log: str = "") -> None:
        if status != _SUCCESS:
            reason = self._library.nvrtcGetErrorString(status).decode()
            raise DeviceError(
                f"NVRTC ({self.path}): {': '.join(filter(None, (reason, log.strip())))}"
            )


def architecture(capability: tuple[int, int]) -> str:
    """The name of real machine code for a compute capability: (9, 0) is ``sm_90``."""
    return f"sm_{capability[0]}{capability[1]}"


def nvrtc_for(arch: str, newest: int | None = None) -> Nvrtc:
    """The newest library here that compiles for ``arch``; of CUDA ``newest`` or older where it is given.

    A driver loads machine code of its own CUDA version and of older ones.  Raises ``DeviceError`` with one
    line about what is missing.
    """
    refused = []
    for library in _libraries():
        if newest is not None and library.version[0] > newest:
            refused.append(f"{library} is too new for a driver of CUDA {newest}")
        elif not library.supports(arch):
            first, last = library.architectures[0], library.architectures[-1]
            refused.append(f"{library} compiles for {first} to {last}, not for {arch}")
        else:
            return library
    if not refused:
        raise DeviceError(
            "NVRTC, which compiles CUDA C, is not installed: pip install nvidia-cuda-nvrtc is enough to "
            f"compile; to run, {INSTALL}"
        )
    raise DeviceError(f"{'; '.join(dict.fromkeys(refused))}: {INSTALL}")


def nvrtc_for_device(capability: tuple[int, int], newest: int | None = None) -> tuple[Nvrtc, str]:
    """A library and what it compiles for so that a GPU can run it.

    A GPU newer than every library gets PTX of the newest architecture before it, which its driver compiles.
    Raises as ``nvrtc_for``.
    """
    arch = architecture(capability)
    try:
        return nvrtc_for(arch, newest), arch
    except DeviceError:
        for library in _libraries():
            older = [known for known in library.capabilities if known < capability]
            if older and (newest is None or library.version[0] <= newest):
                return library, architecture(older[-1]).replace("sm_", "compute_")
        raise


def _libraries() -> Iterator[Nvrtc]:
    for path in candidates():
        if (library := _load(path)) is not None:
            yield library


def candidates() -> Iterator[str]:
    """Where a library may be, in the order in which they are tried: wheels, toolkits, the loader's path."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    for wheel in _WHEELS:
        for root in roots:
            if (path := Path(root) / wheel).is_file():
                yield str(path)
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for toolkit in filter(None, toolkits):
        for folder in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
            if (path := Path(toolkit) / folder / "libnvrtc.so").is_file():
                yield str(path)
    yield from _NAMES


@cache
def _load(path: str) -> Nvrtc | None:
    try:
        return Nvrtc(path)
    except (OSError, AttributeError):  # not there, for another machine, or too old
        return None
