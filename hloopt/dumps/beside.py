"""What a dump has beside a module that decides how it is compiled: flags, options, the frontend's program.

XLA writes ``NAME.debug_options``, the flags that are not as usual; TPU compilers a ``flagfile`` of lines
``--flag=value``.  In a folder with the module's name a frontend leaves ``compile_options.textproto``, all that
it asked the compiler for, ``topology.textproto``, the devices, and ``module.mlir``, its program before HLO.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.dumps.content import read_bytes
from hloopt.dumps.directory import DumpModule
from hloopt.errors import FileError
from hloopt.source import Source
from hloopt.textproto import Message, ScalarField, read_textproto

__all__ = ["TOPOLOGY", "Beside", "beside"]

_CALLED: Final = re.compile(r"\w*(?:_options|tpu_comp_env|flagfile)(?:\.\w+)?\Z")
"""The kind of file, behind the module's name."""
_FLAG_FILE: Final = re.compile(r"(?:flagfile|tpu_comp_env)(?:\.\w+)?\Z")
_ASSIGNED: Final = re.compile(r"\s*--?([\w.]+)(?:[= ](.*))?")
# Bytes that are no text are among the values, so that its lines are read one by one.
TOPOLOGY: Final = "topology.textproto"
_FIELD: Final = re.compile(r"\s*(\w+): (.*)")
_WRAPPERS: Final = ("executable_build_options", "debug_options")
_OVERRIDES: Final = "env_option_overrides"
# What leaves the compiled program as it is: where and how dumps and logs are written.
_NO_PART: Final = ("xla_dump_", "xla_detailed_logging", "xla_gpu_cuda_data_dir")
_LOCATION: Final = re.compile(r' loc\((?:"(?:[^"\\]|\\.)*"|#loc\d*|unknown)(?:\([^()]*\))?\)')


@dataclass(frozen=True)
class Beside:
    """Flags by kind of file and name, lists as one text; the lines of the frontend's program.

    The lines are without locations in the user's source; ``program`` is None where there is none as text.
    """

    flags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    program: tuple[str, ...] | None = None
    program_file: str = ""

    def flag(self, name: str) -> str:
        """The value of a flag in any of the files, the one that says what was used first; empty where none."""
        return next((known[name] for known in self.flags.values() if name in known), "")


def beside(module: DumpModule) -> Beside:
    """Read what lies beside a module.

    Raises ``FileError`` for malformed options at their place, ``OSError`` for a file that cannot be read.
    """
    flags: dict[str, dict[str, str]] = {}
    program, program_file = None, ""
    for kind in ("options", "protos as text"):
        for file in module.others.get(kind, ()):
            name = file.path.name.removesuffix(".gz")
            if kind == "options" or name == TOPOLOGY:
                match = _CALLED.search(name)
                flags[match[0] if match else name] = _flags(file.path)
    for file in module.others.get("MLIR", ()):
        if file.path.name.removesuffix(".gz") == "module.mlir":
            program, program_file = _program(file.path), str(file.path)
    ordered = sorted(flags, key=lambda called: called != "debug_options")
    return Beside({called: flags[called] for called in ordered}, program, program_file)


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise FileError(f"byte {error.start} is not UTF-8", name=str(path)) from error
    except ValueError as error:
        raise FileError(str(error), name=str(path)) from error


def _flags(path: Path) -> dict[str, str]:
    text, name = _text(path), path.name.removesuffix(".gz")
    line = _FIELD if name == TOPOLOGY else _ASSIGNED if _FLAG_FILE.search(name) else None
    if line is None:
        found = _leaves(read_textproto(Source(text, str(path))), "")
    else:
        matches = map(line.fullmatch, text.splitlines())
        found = iter([(match[1], match[2] or "true") for match in matches if match])
    joined: dict[str, list[str]] = {}
    for flag, value in found:
        if not flag.startswith(_NO_PART):
            joined.setdefault(flag, []).append(value)
    return {flag: ", ".join(values) for flag, values in joined.items()}


def _leaves(message: Message, prefix: str) -> Iterator[tuple[str, str]]:
    """Names with the messages they are in, but for what all flags are in."""
    for name, values in message.fields.items():
        for value in values:
            if isinstance(value, ScalarField):
                yield f"{prefix}{name}", str(value.value)
            elif name == _OVERRIDES:
                yield from _override(value)
            else:
                yield from _leaves(value, prefix if name in _WRAPPERS else f"{prefix}{name}.")


def _override(message: Message) -> Iterator[tuple[str, str]]:
    keys = [entry for entry in message.fields.get("key", ()) if isinstance(entry, ScalarField)]
    held: Iterable[ScalarField | Message] = message.fields.get("value", ())
    for key in keys:
        for entry in held:
            if isinstance(entry, Message):
                for _, value in _leaves(entry, ""):
                    yield f"{_OVERRIDES}.{key.value}", value


def _program(path: Path) -> tuple[str, ...] | None:
    """The lines of the program without locations; None for MLIR's binary form."""
    if read_bytes(path)[:4] == b"ML\xefR":
        return None
    lines = (_LOCATION.sub("", line) for line in _text(path).splitlines())
    return tuple(line for line in lines if not line.startswith("#loc"))
