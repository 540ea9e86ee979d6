"""A text of CUDA C made machine code, with what each function takes; kept on disk by content."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from hloopt.backends.nvrtc.library import Nvrtc, Outcome, nvrtc_for
from hloopt.backends.nvrtc.resources import Resources, read_resources
from hloopt.compiled_cache import CompiledCache
from hloopt.dataclass import dataclass

__all__ = [
    "ALWAYS",
    "FAST_MATH",
    "FLAGS",
    "TIMED",
    "VERIFY",
    "CompilationError",
    "Compiled",
    "CompilerFlags",
    "compile_cuda",
    "compile_ptx",
]

ALWAYS = ("--std=c++17", "--device-as-default-execution-space")


@dataclass(frozen=True, slots=True)
class CompilerFlags:
    """A named set of NVRTC's options that decide about roundings.

    name     as results and tables say it
    summary  what it means for results, in words
    options  what NVRTC is given; each is written out, also where it is NVRTC's default
    """

    name: str
    summary: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({' '.join(self.options)})"


VERIFY = CompilerFlags(
    "verify",
    "every operation rounds by itself, subnormal numbers are kept: as the interpreter",
    ("--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"),
)
TIMED = CompilerFlags(
    "timed",
    "a product and a sum may be one rounding (fused multiply-add), as XLA compiles for a GPU",
    ("--fmad=true", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"),
)
# Not --use_fast_math: it also takes sinf, expf and powf for approximations whose error has no bound.
FAST_MATH = CompilerFlags(
    "fast-math",
    "fused multiply-add, subnormal f32 are flushed to zero, f32 division and root are approximate",
    ("--fmad=true", "--ftz=true", "--prec-div=false", "--prec-sqrt=false"),
)

FLAGS: Mapping[str, CompilerFlags] = MappingProxyType(
    {flags.name: flags for flags in (VERIFY, TIMED, FAST_MATH)}
)

_NAME = "program.cu"
_REPORT = "--ptxas-options=-v"
_CACHE = CompiledCache("nvrtc", ".compiled")

_ERROR = re.compile(
    r"^program\.cu\((\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (.*)$", re.MULTILINE
)
_ASSEMBLER = re.compile(r"^ptxas (?:error|fatal)\s*: (.*)$", re.MULTILINE)
_WARNING = re.compile(r"^(?:program\.cu\(\d+\): warning\b.*|ptxas warning\b.*)$", re.MULTILINE)
_KERNEL = re.compile(r"\b__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(")
# The name in front of the parameters; a definition begins a line, a call inside a function does not.
_DEFINITION = re.compile(r"^[A-Za-z_].*?(\w+)\s*\(")
_BOUNDS = re.compile(r"__launch_bounds__\s*\([^)]*\)")
_QUOTED = re.compile(r"'(\w+)'")


class CompilationError(Exception):
    """NVRTC refuses a generated text: a defect of hloopt, not of the module.

    ``function`` is the CUDA function, ``instruction`` what ``describe`` says of it (both may be empty),
    ``line`` counts from 1 in the text (0: from the assembler, which has none), ``log`` is NVRTC's.
    """

    def __init__(self, message: str, function: str, instruction: str, line: int, log: str) -> None:
        super().__init__(message)
        self.function = function
        self.instruction = instruction
        self.line = line
        self.log = log


@dataclass(frozen=True)
class Compiled:
    """Machine code of a program.

    image    what a driver loads: machine code, or PTX where ``arch`` is a virtual one
    arch     for which device (``sm_90``, or ``compute_90`` and all newer ones)
    flags    what it was compiled with
    version  of NVRTC
    log      NVRTC's and the assembler's
    seconds  what compiling took, also where this came out of the cache
    """

    image: bytes
    arch: str
    flags: CompilerFlags
    version: tuple[int, int]
    log: str
    seconds: float

    @cached_property
    def resources(self) -> Mapping[str, Resources]:
        """Registers, spills, stack and memory of each function."""
        return read_resources(self.log)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """The log's warnings, one line each."""
        return tuple(_WARNING.findall(self.log))


def compile_cuda(
    source: str,
    arch: str,
    flags: CompilerFlags = VERIFY,
    *,
    describe: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    nvrtc: Nvrtc | None = None,
    cached: bool = True,
) -> Compiled:
    """Machine code for ``arch`` (``sm_90``), or PTX (``compute_90``), from the cache where it is there.

    ``options`` are passed to NVRTC after those of ``flags``; ``describe`` maps functions to the instructions
    that they compute.  Raises ``DeviceError`` where NVRTC is missing or has no such architecture,
    ``CompilationError`` where it refuses the text.
    """
    library = nvrtc or nvrtc_for(arch)
    report = (_REPORT,) if arch.startswith("sm_") else ()
    arguments = (f"--gpu-architecture={arch}", *ALWAYS, *flags.options, *report, *options)

    def build() -> tuple[Outcome, float]:
        start = time.perf_counter()
        outcome = _compiled(library, source, arguments, describe or {})
        return outcome, time.perf_counter() - start

    def store(path: Path) -> None:
        outcome, seconds = build()
        header = json.dumps({"log": outcome.log, "seconds": seconds})
        path.write_bytes(header.encode() + b"\n" + _image(outcome))

    if not cached:
        outcome, seconds = build()
        return Compiled(_image(outcome), arch, flags, library.version, outcome.log, seconds)
    path = _CACHE.get_or_build([library.identity, *arguments, source], store)
    line, image = path.read_bytes().split(b"\n", 1)
    header = json.loads(line)
    return Compiled(image, arch, flags, library.version, header["log"], header["seconds"])


def compile_ptx(
    source: str,
    arch: str,
    flags: CompilerFlags = VERIFY,
    *,
    describe: Mapping[str, str] | None = None,
) -> str:
    """The PTX of a program: what people read; raises as ``compile_cuda``."""
    virtual = arch.replace("sm_", "compute_")
    arguments = (f"--gpu-architecture={virtual}", *ALWAYS, *flags.options)
    return _compiled(nvrtc_for(virtual), source, arguments, describe or {}).ptx


def _image(outcome: Outcome) -> bytes:
    return outcome.cubin or outcome.ptx.encode() + b"\0"


def _compiled(
    library: Nvrtc, source: str, arguments: Sequence[str], describe: Mapping[str, str]
) -> Outcome:
    outcome = library.compile(source, _NAME, arguments)
    if not outcome.ok:
        raise _refusal(library, source, outcome.log, describe)
    return outcome


def _refusal(
    library: Nvrtc, source: str, log: str, describe: Mapping[str, str]
) -> CompilationError:
    """The first error of a log, with function, instruction and line."""
    line, text, function = 0, "", ""
    if match := _ERROR.search(log):
        line, text = int(match[1]), match[2]
        function = _function_at(source, line)
    elif match := _ASSEMBLER.search(log):
        text = match[1]
        named = [name for name in _QUOTED.findall(text) if name in _KERNEL.findall(source)]
        function = named[0] if named else ""
    instruction = describe.get(function, "")
    where = f"function {function}" if function else "the program"
    if instruction:
        where += f" of {instruction}"
    message = f"{library} refuses {where}: {text or log.strip()}"
    if line:
        message += f"\n  line {line}: {_line(source, line)}"
    return CompilationError(message, function, instruction, line, log)


def _line(source: str, line: int) -> str:
    lines = source.splitlines()
    return lines[line - 1].strip() if line <= len(lines) else ""


def _function_at(source: str, line: int) -> str:
    """The function, kernel or not, that the line is in."""
    for text in reversed(source.splitlines()[:line]):
        match = _DEFINITION.match(_BOUNDS.sub("", text))
        if match and not text.rstrip().endswith(";"):
            return match[1]
    return ""
