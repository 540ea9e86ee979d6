"""Asks the converter in a child process, and puts back into a module what XLA's conversion leaves out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from hloopt.compiled_cache import CompiledCache
from hloopt.dataclass import dataclass
from hloopt.errors import (
    DeviceError,
    MissingReaderError,
    ParseError,
    SourceError,
    UnsupportedError,
    UsageError,
)
from hloopt.extras import XLA_PYTHON, install_command, jaxlib_python
from hloopt.ir import Computation, Instruction, Module, edit, walk
from hloopt.proto import read_proto
from hloopt.proto.writer import module_proto
from hloopt.source import Source
from hloopt.stablehlo import BYTECODE, artifact
from hloopt.types import Metadata, TupleShape

__all__ = ["portable_artifact", "read_stablehlo", "write_stablehlo"]

_CHILD: Final = Path(__file__).with_name("child.py")
_CACHE: Final = CompiledCache("stablehlo", ".hlo")
_SECONDS: Final = 120.0
_SECONDS_PER_MIB: Final = 10.0  # a text of 1 MiB takes half a second on one idle core
_MEMORY: Final = 4 << 30  # bytes of addresses: jaxlib itself takes half of one GiB
_MEMORY_PER_BYTE: Final = (
    64  # of the input; digits of constants are held as text, attribute, proto and literal
)
_COUNTS: Final = {"partitions": "num_partitions", "replicas": "replica_count"}
_Error = TypeVar("_Error", bound=SourceError)
_NUMBER: Final = re.compile(r"\.\d+\Z")
_NO_NAME: Final = re.compile(r"Arg_\d+")
"""What XLA calls parameters that MLIR has no names for."""
_UNNAMED: Final = "-"
"""The file that MLIR believes to read; its lines are those of the text."""


@dataclass(frozen=True)
class _Reply:
    """What the child says, and the bytes that it makes."""

    says: Mapping[str, Any]
    made: bytes


class _Refused(Exception):  # noqa: N818 - the caller makes an error of it
    """What the child says where it makes nothing."""

    def __init__(self, says: Mapping[str, Any]) -> None:
        super().__init__(says["error"])
        self.says = says


def read_stablehlo(
    content: bytes, name: str, sizes: Mapping[str, tuple[str, tuple[int, ...]]]
) -> Module:
    """The module in StableHLO, as XLA converts it.

    ``name`` is the file's.  ``sizes`` has element types and sizes for arguments whose own are open, by name or
    number.
    Raises ``ParseError`` with the place of what MLIR or XLA refuses, ``MissingReaderError`` where no Python
    with jaxlib is known, ``UsageError`` for sizes that do not fit.
    """
    source = None
    if not content.startswith(BYTECODE):
        exported = artifact(content)
        if exported is None:
            source = Source(content.decode("utf-8-sig", "replace"), name)
        content = exported or content
    python = jaxlib_python()
    if python is None:
        message = (
            f"this is StableHLO; reading it needs jaxlib: {install_command('stablehlo')}, or name a "
            f"Python that has it in {XLA_PYTHON}"
        )
        raise _placed(MissingReaderError, message, name, source, {})
    request = {"sizes": {argument: list(dims) for argument, (_, dims) in sizes.items()}}
    try:
        reply = _cached(python, request, content)
    except _Refused as refused:
        raise _read_error(refused.says, name, source) from None
    module = read_proto(reply.made, name)
    _put_back(module, reply.says, name, source)
    names = [one["name"] for one in reply.says["arguments"]]
    for argument, (kind, _) in sizes.items():
        number = names.index(argument) if argument in names else int(argument)
        found = module.entry.parameter_shapes[number]
        if not str(found).startswith(f"{kind}["):
            raise UsageError(f"{name}: argument {argument} is {found}, not of the type {kind}")
    return module


def portable_artifact(text: str, name: str) -> bytes:
    """The portable artifact of a StableHLO text, which other versions of MLIR read; ``name`` is the file's.

    Raises ``ParseError`` with the place of what MLIR refuses, ``DeviceError`` where no Python with jaxlib is
    known.
    """
    try:
        return _ask(_writing_python(), "artifact", {}, text.encode()).made
    except _Refused as refused:
        raise _read_error(refused.says, name, Source(text, name)) from None


def _writing_python() -> str:
    python = jaxlib_python()
    if python is None:
        raise DeviceError(
            f"writing StableHLO needs jaxlib: {install_command('stablehlo')}, or name a Python that has "
            f"it in {XLA_PYTHON}"
        )
    return python


def write_stablehlo(module: Module, form: str) -> bytes:
    """A module as StableHLO: ``form`` is ``stablehlo`` for text, ``mlir.bc`` for a portable artifact.

    The module is in the form that XLA compiles (``runtime.xla_form``).  Raises ``UnsupportedError`` for what
    has no form there, ``DeviceError`` where no Python with jaxlib is known.
    """
    python = _writing_python()
    for instruction in module.instructions():
        if instruction.literal is not None and instruction.literal.elided:
            problem = "its values are left out of the text ({...}), which StableHLO has no form for"
            raise module.unsupported(instruction, problem)
    counts = {called: module.attributes.get(own, 1) for called, own in _COUNTS.items()}
    request = {"counts": counts, "names": [*_arguments(module.entry)]}
    data = module_proto(module).SerializeToString()
    try:
        return _ask(python, form, request, data).made
    except _Refused as refused:
        message = f"no StableHLO can be made of it: {refused.says['error']}"
        if refused.says.get("kind") == "jaxlib":
            raise DeviceError(_unsuited(python, refused.says["error"])) from None
        source = module.source
        raise UnsupportedError(message, name=source.name if source else module.name) from None


def _arguments(entry: Computation) -> Iterator[str]:
    """Names for the arguments of @main, which has one for each array and token of a tuple."""
    pending = [(one.shape, _argument(one)) for one in reversed(entry.parameters)]
    while pending:
        shape, name = pending.pop()
        if not isinstance(shape, TupleShape):
            yield name
            continue
        parts = [(part, name and f"{name}.{at}") for at, part in enumerate(shape.elements)]
        pending += reversed(parts)


def _argument(parameter: Instruction) -> str:
    """The frontend's name of a parameter; empty where it has none."""
    if parameter.metadata is not None and "op_name" in parameter.metadata.fields:
        return str(parameter.metadata.fields["op_name"])
    name = _NUMBER.sub("", parameter.name)
    return "" if _NO_NAME.fullmatch(name) else name


def _cached(python: str, request: Mapping[str, Any], content: bytes) -> _Reply:
    """The reply of the converter, kept by all that it depends on."""

    def build(path: Path) -> None:
        reply = _ask(python, "read", request, content)
        path.write_bytes(json.dumps(reply.says).encode() + b"\n" + reply.made)

    asked = json.dumps(request)
    parts: list[bytes | str] = [_CHILD.read_bytes(), python, *_installed(python), asked, content]
    says, _, made = _CACHE.get_or_build(parts, build).read_bytes().partition(b"\n")
    return _Reply(json.loads(says), made)


def _installed(python: str) -> list[str]:
    """The version of jaxlib beside a Python, from the names of its files: asking takes half a second."""
    top = Path(python).absolute().parent.parent
    return sorted(path.name for path in top.glob("lib*/python*/*-packages/jaxlib-*"))


def _ask(python: str, form: str, request: Mapping[str, Any], data: bytes) -> _Reply:
    """The reply of the converter.  Raises ``_Refused`` where it makes nothing, or ends without a reply."""
    seconds = _SECONDS + _SECONDS_PER_MIB * len(data) / (1 << 20)
    memory = _MEMORY + _MEMORY_PER_BYTE * len(data)
    try:
        done = subprocess.run(
            [python, str(_CHILD), form],
            input=json.dumps({**request, "memory": memory}).encode() + b"\n" + data,
            capture_output=True,
            check=False,
            timeout=seconds,
        )
    except OSError as error:
        raise DeviceError(f"{XLA_PYTHON}: {python}: {error.strerror or error}") from error
    except subprocess.TimeoutExpired as error:
        raise _Refused({"error": f"jaxlib took more than {seconds:.0f} s to convert it"}) from error
    says, end, made = done.stdout.partition(b"\n")
    if done.returncode or not end:
        raise _Refused({"error": _crash(done.returncode, done.stderr, memory)})
    reply: dict[str, Any] = json.loads(says)
    if "error" in reply:
        raise _Refused(reply)
    return _Reply(reply, made)


def _crash(code: int, stderr: bytes, memory: int) -> str:
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    last = f": {lines[-1].strip()}" if lines else ""
    if "MemoryError" in last or "bad_alloc" in last or code == -9:
        allowed = f"it may take {memory / 2**30:.0f} GiB"
        return f"jaxlib ran out of memory while it converted it ({allowed}){last}"
    end = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"jaxlib crashed while it converted it ({end}){last}"


def _unsuited(python: str, problem: str) -> str:
    install = install_command("stablehlo")
    return f"the jaxlib of {python} does not convert StableHLO: {problem}; {install} installs one"


def _read_error(says: Mapping[str, Any], name: str, source: Source | None) -> Exception:
    """The error to raise for what the child says."""
    message, kind = says["error"], says.get("kind")
    if kind == "jaxlib":
        python = jaxlib_python() or sys.executable
        return _placed(MissingReaderError, _unsuited(python, message), name, source, says)
    if kind == "usage":
        return UsageError(f"{name}: {message}")
    if kind == "open":
        return _open_sizes(says, name, source)
    return _placed(ParseError, message, name, source, says)


def _open_sizes(says: Mapping[str, Any], name: str, source: Source | None) -> ParseError:
    """The error about arguments whose sizes the user has to give."""
    rows = zip(says["arguments"], says["types"], strict=True)
    found = [(number, one) for number, (one, type) in enumerate(rows) if "?" in type]
    number, first = found[0]
    called = f"argument {number}" + (f" ({first['name']})" if first["name"] else "")
    rest = f", and {len(found) - 1} more" if len(found) > 1 else ""
    options = " ".join(
        f"--shape {_quoted(one['name'] or str(place))}={_example(one['type'])}"
        for place, one in found
    )
    note = f"give sizes for the open ones, such as {options}"
    message = f"{called} is {first['type']}{rest}: a size of it is open"
    place: dict[str, int] = {}
    if source is not None:
        at = source.text.find(f"%arg{number}:", source.text.find("@main("))
        place = dict(zip(("line", "column"), source.line_column(max(at, 0)), strict=True))
    return _placed(ParseError, message, name, source, place, notes=(note,))


def _example(type: str) -> str:
    """A shape for an open tensor as HLO writes it: 8 for each open size."""
    *dims, kind = type.removeprefix("tensor<").partition(",")[0].removesuffix(">").split("x")
    dims = ["8" if size == "?" else size for size in dims]
    if kind.startswith("complex<"):
        kind = "c64" if "f32" in kind else "c128"
    elif kind == "i1":
        kind = "pred"
    elif kind.removeprefix("u").startswith("i"):
        kind = kind.replace("ui", "u") if kind.startswith("u") else kind.replace("i", "s")
    return f"{kind.lower()}[{','.join(dims)}]"


def _quoted(name: str) -> str:
    """An argument's name as a shell takes it."""
    if name.replace("_", "").replace(".", "").isalnum():
        return name
    return "'" + name.replace("'", "'\\''") + "'"


def _placed(
    kind: type[_Error],
    message: str,
    name: str,
    source: Source | None,
    place: Mapping[str, Any],
    notes: tuple[str, ...] = (),
) -> _Error:
    """An error at a line and column of a text, its beginning where none is known; at a file that is no text."""
    if source is None:
        return kind(message, name=name, line=1, column=1, notes=notes)
    offset = source.offset(place.get("line", 1), place.get("column", 1))
    return source.error(kind, offset, message, notes=notes)


def _put_back(module: Module, says: Mapping[str, Any], name: str, source: Source | None) -> None:
    """The devices, the file's name, places in it; and no second copies of what a composite stands for."""
    for called, own in _COUNTS.items():
        if says.get(called, 1) > 1:
            module.attributes[own] = says[called]
    for computation in reversed(walk.callees_first(module)):
        if computation is not module.entry and not computation.callers:
            edit.remove_computation(computation)
    tables = module.stack_tables
    for number, file in tables.file_names.items():
        if file == _UNNAMED:
            tables.file_names[number] = name
    renamed: dict[Metadata, Metadata] = {}
    module.source = source
    for instruction in module.instructions():
        metadata = instruction.metadata
        if metadata is None or metadata.fields.get("source_file") != _UNNAMED:
            continue
        if metadata not in renamed:
            renamed[metadata] = Metadata.of({**metadata.fields, "source_file": name})
        instruction.metadata = renamed[metadata]
        if source is not None:
            fields = metadata.fields
            instruction.offset = source.offset(
                int(fields.get("source_line", 1)), int(fields.get("source_column", 1))
            )
