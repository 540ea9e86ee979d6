"""From a module to a library of C: ``hloopt.build`` and ``hloopt build``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hloopt.backends.native.compile import prepare_library
from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.driver.options import KernelOptions, PassOptions
from hloopt.driver.passes import Chosen, choose_passes
from hloopt.driver.run import read_task
from hloopt.driver.selecting import selecting
from hloopt.driver.writing import check_writable, write_file, write_text
from hloopt.errors import UsageError
from hloopt.exports.library.callers import write_header, write_python
from hloopt.exports.library.compiling import library_compiler
from hloopt.exports.library.interface import Interface, interface_of
from hloopt.exports.library.names import prefix_of
from hloopt.exports.library.unit import DATA, HEADER, PAGE, file_head, run_name, write_unit
from hloopt.exports.library.wheel import WheelPackage, check_importable
from hloopt.exports.text import printable
from hloopt.ir.build import clone_module

if TYPE_CHECKING:
    from hloopt.ir import Module
    from hloopt.kernels.selection import KernelSelection
    from hloopt.pipelines import Given

__all__ = ["BuildOptions", "BuiltLibrary", "build", "build_from"]

_SHARED: Final = (".so", ".dylib")
_STATIC: Final = ".a"


@dataclass(frozen=True)
class BuildOptions:
    """What is written: the library ``output``, its ``header``, ``python`` module and ``weights`` where named.

    ``wheel`` is a folder for a package; then the library need not be written beside it.
    """

    output: str | None = None
    header: str | None = None
    python: str | None = None
    weights: str | None = None
    wheel: str | None = None
    march: str = "native"

    def __post_init__(self) -> None:
        self._check_output()
        if self.output is None and self.wheel is None:
            raise UsageError("nothing is to be written: give -o libNAME.so, or --wheel DIR")
        if self.wheel is not None and Path(self.wheel).exists() and not Path(self.wheel).is_dir():
            raise UsageError(f"--wheel {self.wheel}: not a folder")
        named = [Path(one).resolve() for one in self.files.values()]
        if len(set(named)) < len(named):
            raise UsageError("two of the files to write are the same one")

    def _check_output(self) -> None:
        if self.output is None:
            if self.python is not None:
                raise UsageError("--python loads a shared library: name it by -o libNAME.so")
            return
        if not self.output.endswith((*_SHARED, _STATIC)):
            raise UsageError(f"-o {self.output}: the name of a library ends with .so, .dylib or .a")
        for option in ("python", "wheel"):
            if getattr(self, option) is not None and self.output.endswith(_STATIC):
                raise UsageError(f"--{option} loads a shared library: -o has to end with .so")
        if self.python is not None and _would_shadow(Path(self.output), Path(self.python)):
            name = Path(self.output).name
            raise UsageError(
                f"--python {self.python} beside {name}: Python would import the library in its place; "
                f"call that lib{name}"
            )

    @property
    def files(self) -> dict[str, str]:
        """What is written, and where, but for the wheel, whose name says what is in it."""
        named = {
            "library": self.output,
            "header": self.header,
            "python": self.python,
            "weights": self.weights,
        }
        return {name: path for name, path in named.items() if path}

    def library_of(self, module: Module) -> str:
        """The name of the library's file: that of ``output``, or one after the module."""
        return Path(self.output or f"lib{prefix_of(module.name)}.so").name


def _would_shadow(library: Path, script: Path) -> bool:
    """Whether an import of the script finds the library first, as an extension module of that name."""
    is_beside = library.resolve().parent == script.resolve().parent
    return is_beside and library.name.partition(".")[0] == script.stem


@dataclass(frozen=True)
class BuiltLibrary(Displayed):
    """A library that was written: ``files`` by what they are, ``build`` its hash, ``interface`` its arrays."""

    files: dict[str, str]
    build: str
    march: str
    interface: Interface

    def __str__(self) -> str:
        one = self.interface
        counted = [
            (len(one.inputs), "input"),
            (len(one.results), "result"),
            (one.weights, "weight"),
        ]
        parts = [f"{n} {what}{'' if n == 1 else 's'}" for n, what in counted if n]
        parts.append(f"{one.data_size} bytes of data, {one.memory} of a context")
        lines = [f"{path}: {name}" for name, path in self.files.items()]
        return "\n".join([*lines, f"{one.prefix}: {', '.join(parts)}"])

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        one = self.interface
        return {
            "files": self.files,
            "build": self.build,
            "march": self.march,
            "prefix": one.prefix,
            "module": one.module,
            "inputs": [array.to_json() for array in one.inputs],
            "results": [array.to_json() for array in one.results],
            "weights": one.weights,
            "data_bytes": one.data_size,
            "context_bytes": one.memory,
        }


def build(
    module: Module | str | Path,
    output: str | Path | None = None,
    *,
    pipeline: Given | None = None,
    header: str | Path | None = None,
    python: str | Path | None = None,
    weights: str | Path | None = None,
    wheel: str | Path | None = None,
    march: str = "native",
) -> BuiltLibrary:
    """What ``hloopt build`` does: a module as a library of C that needs neither Python nor hloopt.

    ``output`` ends with ``.so``, ``.dylib`` or ``.a``; the module is optimised by ``pipeline`` (as ``optimize``
    takes it; O2 by default).  ``header``, ``python`` and ``weights`` name further files, ``wheel`` a folder for
    a package of Python with the library in it, ``march`` the processor.

    Raises ``UsageError`` for files that cannot be written, ``UnsupportedError`` for what only Python runs,
    ``DeviceError`` where no compiler is there.
    """
    files = {
        "output": output,
        "header": header,
        "python": python,
        "weights": weights,
        "wheel": wheel,
    }
    named = {name: None if path is None else str(path) for name, path in files.items()}
    options = BuildOptions(**named, march=march)
    with ExitStack() as stack:
        kernels = KernelOptions()
        chosen = choose_passes(PassOptions(passes=pipeline), kernels, "host")
        selection = selecting(kernels, stack.enter_context, device="native", target="host")
        copy = clone_module(read_task(module).module)
        return build_from(copy, options, chosen, selection.instance)[0]


def build_from(
    module: Module, options: BuildOptions, chosen: Chosen, selection: KernelSelection
) -> tuple[BuiltLibrary, list[str]]:
    """As ``build``, of a module that it optimises in place; and notes."""
    compiler = library_compiler(options.march)
    for path in options.files.values():
        check_writable(path)
    if options.wheel is not None:
        check_writable(str(Path(options.wheel) / "package.whl"))
    notes = list(chosen.run(module).notes)
    called, prefix = _names(options, module)
    prepared, more = prepare_library(module, selection, run_name(prefix))
    notes += more
    interface = interface_of(prepared.module, prepared.plan, prefix)
    has_file = options.weights is not None
    if has_file and not interface.data_size:
        raise UsageError(f"--weights: {module.name} has no weights, and no constants in memory")
    made = interface.digest(f"{prefix} {compiler.identity}\n{prepared.source}")
    texts = {"header": write_header(interface, has_file=has_file)}
    unit = write_unit(interface, prepared.plan, made, compiler.features, has_file=has_file)
    if options.python is not None:
        beside = Path(options.python).resolve().parent
        paths = {
            name: os.path.relpath(Path(one).resolve(), beside)
            for name, one in options.files.items()
        }
        library, weights = paths["library"], paths.get("weights")
        texts["python"] = write_python(interface, made, library, weights)
    with tempfile.TemporaryDirectory(prefix="hloopt-") as name:
        folder = Path(name)
        _write_data(interface, folder / DATA, file_head(made) if has_file else b"")
        (folder / HEADER).write_text(texts["header"], encoding="utf-8")
        objects = compiler.objects(prefix, prepared.source, unit, folder)
        linked = folder / "library"
        if called.endswith(_STATIC):
            compiler.archive(objects, linked)
        else:
            compiler.link(objects, linked, called)
        files = dict(options.files)
        if options.output is not None:
            write_file(options.output, linked)
        if options.weights is not None:
            write_file(options.weights, folder / DATA)
        if options.wheel is not None:
            within = {called: linked}
            if options.weights is not None:
                within[Path(options.weights).name] = folder / DATA
            package = _package(interface, made, compiler.machine, within, options.march)
            package.write(folder / package.file_name)
            files["wheel"] = str(Path(options.wheel) / package.file_name)
            write_file(files["wheel"], folder / package.file_name)
    for what, text in texts.items():
        if what in options.files:
            write_text(options.files[what], text, module.name)
    return BuiltLibrary(files, made, options.march, interface), notes


def _names(options: BuildOptions, module: Module) -> tuple[str, str]:
    """The library file and the prefix of its functions.  Raises ``UsageError`` for what no package may have."""
    called = options.library_of(module)
    prefix = prefix_of(called.rpartition(".")[0])
    if options.wheel is not None:
        check_importable(prefix)
        if Path(options.weights or "").name in (called, "__init__.py"):
            raise UsageError(
                f"--weights {options.weights}: the package has another file of that name"
            )
    return called, prefix


def _package(
    interface: Interface, build: str, machine: str, files: Mapping[str, Path], march: str
) -> WheelPackage:
    """The package of a build; ``files`` are the library and, where it has one, the file of weights."""
    library, *weights = files
    return WheelPackage(
        interface.prefix,
        build,
        machine,
        f"{printable(interface.module)} compiled by hloopt ({march})",
        write_python(interface, build, library, weights[0] if weights else None),
        tuple(files.items()),
    )


def _write_data(interface: Interface, path: Path, head: bytes) -> None:
    """The constants and weights; after a page with ``head`` where they are a file of their own."""
    start = PAGE if head else 0
    with path.open("wb") as stream:
        stream.write(head)
        for offset, array in interface.data:
            stream.seek(start + offset)
            stream.write(array.tobytes())
        stream.truncate(start + interface.data_size)
