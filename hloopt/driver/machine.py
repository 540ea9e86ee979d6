"""What this machine can do, and what to type for the rest: ``hloopt doctor``."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from importlib.util import find_spec
from typing import Final, Literal, TypeAlias

import numpy as np
from threadpoolctl import threadpool_info

from hloopt.backends import check_device
from hloopt.backends.cuda.description import this_gpu
from hloopt.backends.host_compiler import find_compiler
from hloopt.backends.nvrtc import nvrtc_for
from hloopt.cache_folder import cache_folder, own_folder
from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError, HlooptError
from hloopt.extras import XLA_PYTHON, install_command, jaxlib_python
from hloopt.numbers import byte_size
from hloopt.process import notes

__all__ = ["PARTS", "Part", "examine", "versions"]

State: TypeAlias = Literal["ok", "missing", "broken"]

_SECONDS: Final = 60.0
"""How long another program may take to say its version: importing jaxlib is slow on a cold disk."""

_JAXLIB: Final = "import jaxlib; print(jaxlib.__version__)"


@dataclass(frozen=True)
class Part:
    """Something that hloopt can use.

    state    ``missing`` is not installed, ``broken`` is there and does not work
    found    its version and where it is, or what is wrong
    purpose  what it is for
    remedy   what to type or do; empty where it works
    """

    name: str
    state: State
    found: str
    purpose: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """Its fields."""
        return {
            "name": self.name,
            "state": self.state,
            "found": self.found,
            "purpose": self.purpose,
            "remedy": self.remedy,
        }


def versions() -> dict[str, str]:
    """The versions of hloopt, of Python and of what hloopt requires, by name."""
    found = {"hloopt": metadata.version("hloopt"), "python": platform.python_version()}
    required = metadata.requires("hloopt") or ()
    names = [text for text in required if "extra ==" not in text]
    for text in names:
        name = text.partition(">")[0].partition("<")[0].partition("=")[0].strip()
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # lark: a wheel has the tables that it makes
    return found | {"platform": platform.platform(), "executable": sys.executable}


def examine(names: Iterable[str] = ()) -> list[Part]:
    """Look at the parts of these names, at all of ``PARTS`` without any."""
    return [PARTS[name]() for name in tuple(names) or PARTS]


def _blas() -> Part:
    purpose = "products of matrices on the device cpu"
    version = f"NumPy {np.__version__}"
    found = [one for one in threadpool_info() if one["user_api"] == "blas"]
    if not found:
        return Part("blas", "ok", f"{version}, a BLAS whose threads cannot be set", purpose)
    said = ", ".join(
        f"{one['internal_api']} {one['version']} with {one['num_threads']} threads" for one in found
    )
    return Part("blas", "ok", f"{version}, {said} of {os.cpu_count()} cores", purpose)


def _compiler() -> Part:
    purpose = "--device native and --device emulator"
    try:
        compiler = find_compiler("the device 'native'")
    except DeviceError as error:
        what, _, remedy = error.message.partition(": ")
        state: State = "broken" if os.environ.get("CXX") else "missing"
        return Part("compiler", state, what, purpose, remedy)
    version = compiler.version.partition("\n")[0]
    return Part("compiler", "ok", f"{version} ({compiler.command[0]})", purpose)


def _gpu() -> Part:
    purpose = "--device gpu"
    driver = _driver_version()
    if driver is None:
        why = "no NVIDIA driver (libcuda) on this machine"
        remedy = "none needed to see kernels: hloopt kernels FILE; --device emulator runs them"
        return Part("gpu", "missing", why, purpose, remedy)
    said = f"driver for CUDA {driver // 1000}.{driver % 1000 // 10}"
    if find_spec("cupy") is None:
        extra = "gpu" if driver >= 13000 else "gpu12"
        return Part("gpu", "missing", f"{said}, no CuPy", purpose, install_command(extra))
    try:
        check_device("gpu")
    except DeviceError as error:
        return Part("gpu", "broken", f"{said}: {error.message}", purpose, "see what is said")
    return Part("gpu", "ok", f"{this_gpu()[0]}, {said}", purpose)


def _driver_version() -> int | None:
    """1000 times the major version of CUDA and 10 times the minor one; None without a driver."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    failed: int = library.cuDriverGetVersion(ctypes.byref(version))
    return None if failed else version.value


def _nvrtc() -> Part:
    purpose = "kernels --compile: registers and spills, no GPU needed"
    try:
        found = nvrtc_for("sm_90")
    except HlooptError as error:
        what, _, remedy = error.message.partition(": ")
        return Part("nvrtc", "missing", what, purpose, remedy or install_command("gpu"))
    return Part("nvrtc", "ok", f"NVRTC {'.'.join(map(str, found.version))}", purpose)


def _xla() -> Part:
    purpose = "StableHLO, bisect --xla, --device xla-cpu, hloopt.jax"
    python = jaxlib_python()
    remedy = f"{install_command('xla')}, or name a Python that has it in {XLA_PYTHON}"
    if python is None:
        return Part("xla", "missing", "no Python with jaxlib", purpose, remedy)
    try:
        done = subprocess.run(
            [python, "-c", _JAXLIB], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Part("xla", "broken", f"{python}: {error}", purpose, remedy)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it fails"])[-1]
        return Part("xla", "broken", f"{python}: {last}", purpose, remedy)
    return Part("xla", "ok", f"jaxlib {done.stdout.strip()} ({python})", purpose)


def _package(name: str, module: str, purpose: str, extra: str) -> Callable[[], Part]:
    """A Python package that an extra installs."""

    def look() -> Part:
        if find_spec(module) is None:
            return Part(name, "missing", f"no {module}", purpose, install_command(extra))
        distributions = metadata.packages_distributions().get(module, ())
        version = metadata.version(distributions[0]) if distributions else "of unknown version"
        return Part(name, "ok", f"{module} {version}", purpose)

    return look


def _mpi() -> Part:
    found = _package("mpi", "mpi4py", "run --participants mpi", "mpi")()
    path = shutil.which("mpiexec")
    if found.state == "ok" and path is None:
        why = f"{found.found}, but no mpiexec on the path"
        return Part("mpi", "broken", why, found.purpose, install_command("mpi"))
    return Part("mpi", found.state, found.found, found.purpose, found.remedy)


def _torch() -> Part:
    purpose = "torch.compile(backend='hloopt'), models of PyTorch"
    lacking = [name for name in ("torch", "torch_mlir") if find_spec(name) is None]
    if lacking:
        why = f"no {' and no '.join(lacking)}"
        return Part(
            "torch", "missing", why, purpose, "install PyTorch, and torch-mlir from its releases"
        )
    return Part("torch", "ok", f"torch {metadata.version('torch')}", purpose)


def _cache() -> Part:
    purpose = "compiled programs and the parser's tables are kept"
    folder = cache_folder()
    remedy = "HLOOPT_CACHE_DIR=FOLDER names another"
    if own_folder() is None and (folder is None or folder.exists()):
        return Part("cache", "broken", notes()[-1], purpose, remedy)
    assert folder is not None
    if not folder.exists():
        return Part("cache", "ok", f"{folder}, made on first use", purpose)
    size = sum(one.lstat().st_size for one in folder.rglob("*"))
    if not os.access(folder, os.W_OK):
        return Part("cache", "broken", f"{folder} cannot be written", purpose, remedy)
    return Part("cache", "ok", f"{folder}, {byte_size(size)}", purpose)


PARTS: Final[dict[str, Callable[[], Part]]] = {
    "blas": _blas,
    "compiler": _compiler,
    "cache": _cache,
    "gpu": _gpu,
    "nvrtc": _nvrtc,
    "xla": _xla,
    "prove": _package("prove", "z3", "check --equivalent", "prove"),
    "lsp": _package("lsp", "pygls", "hloopt lsp", "lsp"),
    "mpi": _mpi,
    "scale": _package("scale", "distributed", "study --workers dask://", "scale"),
    "torch": _torch,
}
