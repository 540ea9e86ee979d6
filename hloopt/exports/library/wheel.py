"""A library as a package for pip: a wheel, by the PyPA's specification of binary distributions, 1.0."""

from __future__ import annotations

import hashlib
import keyword
import sys
import sysconfig
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError

__all__ = ["WheelPackage", "check_importable"]

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file: equal builds are equal to the byte."""
_DIGITS: Final = 12
_NEEDED: Final = ("numpy", "ml_dtypes")
_AT_ONCE: Final = 1 << 20


def check_importable(name: str) -> None:
    """Raise ``UsageError`` where Python cannot import a package of that name, or others would miss theirs."""
    if keyword.iskeyword(name):
        raise UsageError(
            f"--wheel: '{name}' is a keyword of Python; name the library by -o libNAME.so"
        )
    if name in sys.stdlib_module_names or name in _NEEDED:
        raise UsageError(
            f"--wheel: a package '{name}' would stand in the way of the one that Python programs import; "
            "name the library by -o libNAME.so"
        )


@dataclass(frozen=True)
class WheelPackage:
    """The package ``name`` of a build: its ``script``, and files beside it by their names there.

    build    the hash of the build, which becomes the version
    machine  as the compiler calls what it compiles for, such as ``x86_64-linux-gnu``
    summary  one line
    """

    name: str
    build: str
    machine: str
    summary: str
    script: str
    files: tuple[tuple[str, Path], ...]

    @property
    def version(self) -> str:
        """Lower than any release, and another one for each build; hloopt does not know the model's."""
        return f"0+g{self.build[:_DIGITS]}"

    @property
    def tag(self) -> str:
        """Any Python 3 on this platform: what is loaded does not use the interpreter's ABI."""
        processor, _, system = self.machine.partition("-")
        place = f"linux_{processor}" if "linux" in system else sysconfig.get_platform()
        return "py3-none-" + place.replace("-", "_").replace(".", "_")

    @property
    def file_name(self) -> str:
        """Of the wheel."""
        return f"{self.name}-{self.version}-{self.tag}.whl"

    def write(self, path: Path) -> None:
        """Write the wheel, part by part: weights may be large."""
        info = f"{self.name}-{self.version}.dist-info"
        texts = {
            f"{self.name}/__init__.py": self.script,
            f"{info}/METADATA": self._metadata(),
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hloopt\nRoot-Is-Purelib: false\n"
            f"Tag: {self.tag}\n",
        }
        record = f"{info}/RECORD"
        with ZipFile(path, "w", ZIP_DEFLATED) as archive:
            rows = [
                _written(archive, f"{self.name}/{name}", _parts(file)) for name, file in self.files
            ]
            rows += [_written(archive, name, (text.encode(),)) for name, text in texts.items()]
            _written(archive, record, ("".join((*rows, f"{record},,\n")).encode(),))

    def _metadata(self) -> str:
        return (
            f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\nSummary: {self.summary}\n"
            "Requires-Python: >=3.8\nRequires-Dist: numpy\n"
        )


def _parts(file: Path) -> Iterable[bytes]:
    with file.open("rb") as stream:
        while part := stream.read(_AT_ONCE):
            yield part


def _written(archive: ZipFile, name: str, parts: Iterable[bytes]) -> str:
    """Write a file of a wheel; its row of the record."""
    digest, size = hashlib.sha256(), 0
    entry = ZipInfo(name, _EPOCH)
    entry.compress_type = ZIP_DEFLATED
    entry.external_attr = (0o755 if name.endswith((".so", ".dylib")) else 0o644) << 16
    with archive.open(entry, "w", force_zip64=True) as stream:
        for part in parts:
            stream.write(part)
            digest.update(part)
            size += len(part)
    code = urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
    return f"{name},sha256={code},{size}\n"
