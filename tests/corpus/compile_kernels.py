"""Every generated kernel compiled with NVRTC, on any machine: registers, spills, stack frames, seconds.

    python -m tests.corpus.compile_kernels [--arch sm_90]... [--flags verify] [--workers N] [FILE...]

Without files: the samples, and the corpus where HLOOPT_CORPUS names it (its programs before optimisation, and as
XLA fused them).  A program is compiled as it is given and, unless XLA fused it, after -O2 and after -O3, where
loops are kernels; its C++ for this processor is written, too.  Fails where NVRTC refuses a text, where a function,
of CUDA C or of C++, breaks a rule of the kernel IR or has more code than its instructions may have, and where a
kernel spills registers on sm_90; of the samples and of files that are named also where there are no kernels,
unless an op of the host (infeed, outfeed) says why, and where one has a stack frame on sm_90 that is not that of
CUDA's own functions (``FRAMES``): an array of ours that is not in registers.  Machine code comes from the cache
where it is there; the seconds are those that compiling took.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import hloopt
from hloopt.analysis.code_size import MOST_CODE, executed_instructions
from hloopt.backends.device_compile import prepare
from hloopt.backends.native.compile import prepare_native
from hloopt.backends.nvrtc import (
    FLAGS,
    CompilationError,
    Compiled,
    CompilerFlags,
    compile_cuda,
    nvrtc_for,
)
from hloopt.codegen.program import KernelProgram, kernel_steps
from hloopt.errors import HlooptError, UnsupportedError
from hloopt.ir import Module
from hloopt.kernel_ir.verifier import ElementPlaces, KernelError
from hloopt.kernels.plan import Plan
from hloopt.runtime.device_program import descriptions
from tests.helpers.verified import verify_native, verify_program

ROOT = Path(__file__).resolve().parents[2]

T = TypeVar("T")

__all__ = [
    "ARCHITECTURES",
    "FRAMES",
    "STRICT",
    "Program",
    "Row",
    "compiled",
    "faults",
    "too_long",
    "written",
    "written_natively",
]

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")
STRICT = "sm_90"

FRAMES = {"sinf cosf tanf": 32, "sin cos tan": 40}
"""Bytes of a stack frame that CUDA's functions have, however many of a line a kernel calls.

The reduction of large arguments keeps the words of a product in an array, which the compiler puts on the stack:
for f64 always, for f32 in some loops.  Measured with NVRTC 13.5.
"""
_DEFINED = re.compile(r"^.*\b__(?:global|device)__\b[^;{]*?\b(?P<name>(?!__)\w+)\(", re.MULTILINE)
_KERNEL = re.compile(r'^extern "C" __global__ [^;{]*?\b(?P<name>hlo_\w+)\(', re.MULTILINE)
_NATIVE = re.compile(
    r"^static (?:__attribute__\(\(noinline\)\) )?void (?P<name>hlo_\w+)\(", re.MULTILINE
)
_WORD = re.compile(r"\b[A-Za-z_]\w*(?=\()")
_HOST = ("infeed", "outfeed")


@dataclass(frozen=True)
class Program:
    """A text of CUDA C; ``describe`` has the instruction of each function.

    ``sizes`` are the bytes of each function and the instructions that it computes; ``broken`` says which rule of
    the kernel IR one breaks; ``places`` counts where its memory is accessed.
    """

    name: str
    source: str
    describe: Mapping[str, str]
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    places: ElementPlaces = field(default_factory=ElementPlaces)


@dataclass
class Row:
    """A program's machine code by architecture, or why there is none."""

    name: str
    source: str = ""
    made: dict[str, Compiled] = field(default_factory=dict)
    describe: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    refused: str = ""
    errors: list[str] = field(default_factory=list)
    places: ElementPlaces = field(default_factory=ElementPlaces)

    @property
    def kernels(self) -> int:
        """Functions that can be launched."""
        return len(self.describe)


def written(module: Module, name: str) -> Program:
    """The text of a module; raises ``UnsupportedError`` for an instruction without a kernel."""
    prepared = prepare(module)
    plan, source = prepared.plan, prepared.source
    assert isinstance(prepared.program, KernelProgram)
    return Program(
        name,
        source,
        descriptions(plan),
        _sizes(source, plan),
        *_verified(verify_program, prepared.program),
    )


def written_natively(module: Module, name: str) -> Program:
    """The C++ of a module for this processor; raises ``UnsupportedError``."""
    prepared = prepare_native(module)
    source, plan = prepared.source, prepared.plan
    return Program(name, source, {}, _sizes(source, plan, _NATIVE), *_verified(verify_native, plan))


def _verified(
    verify: Callable[[T], ElementPlaces], given: T
) -> tuple[tuple[str, ...], ElementPlaces]:
    try:
        return (), verify(given)
    except KernelError as error:
        return (str(error),), ElementPlaces()


def _sizes(source: str, plan: Plan, heads: re.Pattern[str] = _KERNEL) -> dict[str, tuple[int, int]]:
    bodies = {
        step.function: executed_instructions(step.instruction) for step in kernel_steps(plan.steps)
    }
    found = {}
    for match in heads.finditer(source):
        step = max((one for one in bodies if match["name"].startswith(one)), key=len, default="")
        if step:
            # A function is the first thing that ends at the beginning of a line.
            end = source.index("\n}\n", match.end())
            found[match["name"]] = end - match.start(), bodies[step]
    return found


def too_long(sizes: Mapping[str, tuple[int, int]]) -> list[str]:
    """The functions that have more code than their instructions may have."""
    return [
        f"{name} has {size} bytes of code for {instructions} instructions"
        for name, (size, instructions) in sizes.items()
        if size > MOST_CODE.of(instructions)
    ]


def compiled(
    program: Program, architectures: Iterable[str], flags: CompilerFlags, pool: ThreadPoolExecutor
) -> Row:
    """A program for each architecture."""
    row = Row(program.name, program.source, describe=program.describe, sizes=program.sizes)
    row.errors += program.broken
    row.places = program.places
    if not program.describe:
        return row
    waiting: dict[str, Future[Compiled]] = {
        arch: pool.submit(compile_cuda, program.source, arch, flags, describe=program.describe)
        for arch in architectures
    }
    for arch, future in waiting.items():
        try:
            row.made[arch] = future.result()
        except CompilationError as error:
            row.errors.append(f"{arch}: {error}")
    return row


def faults(row: Row, arch: str = STRICT, *, must: bool = True) -> list[str]:
    """What NVRTC refuses, and the functions that spill or have a stack frame, by name.

    ``must`` says that a program without kernels is a fault, too, and a stack frame by itself.
    """
    found = list(row.errors)
    if row.refused and must and not any(f" {word}: " in row.refused for word in _HOST):
        found.append(f"no kernels: {row.refused}")
    found += too_long(row.sizes)
    made = row.made.get(arch)
    frames = (
        _frames(row.source)
        if made and any(taken.stack for taken in made.resources.values())
        else {}
    )
    for name, taken in made.resources.items() if made else ():
        spills = taken.spill_stores + taken.spill_loads
        if spills or (taken.stack > frames.get(name, 0) and must):
            found.append(
                f"{arch}: {name} of {row.describe.get(name, 'a device function')} spills "
                f"{taken.spill_stores} bytes, reads back {taken.spill_loads}, stack {taken.stack}"
            )
    return found


def _frames(source: str) -> dict[str, int]:
    """The bytes of stack that each function of a text may have for what it calls, directly or not."""
    code = re.sub(r"//.*", "", source)
    found = list(_DEFINED.finditer(code))
    ends = [*(match.start() for match in found[1:]), len(code)]
    calls = {
        match["name"]: set(_WORD.findall(code, match.end(), end))
        for match, end in zip(found, ends, strict=True)
    }
    frames = {}
    for name in calls:
        seen, pending = {name}, [name]
        while pending:
            more = calls.get(pending.pop(), set()) - seen
            seen |= more
            pending.extend(more)
        frames[name] = sum(size for names, size in FRAMES.items() if seen & set(names.split()))
    return frames


def _rows(
    path: Path,
    is_fused: bool,
    architectures: Sequence[str],
    flags: CompilerFlags,
    pool: ThreadPoolExecutor,
) -> Iterator[Row]:
    given = hloopt.parse(path.read_text(), name=str(path))
    for form in ("",) if is_fused else ("", " -O2", " -O3"):
        name = f"{path.name.removesuffix('.hlo')}{form}"
        try:
            module = hloopt.optimize(given, pipeline=form.removeprefix(" -")) if form else given
            program = written(module, name)
        except UnsupportedError as error:
            yield Row(name, refused=str(error).partition("\n")[0])
        else:
            row = compiled(program, architectures, flags, pool)
            row.errors += [f"natively: {one}" for one in _native_faults(given, form)]
            yield row


def _native_faults(given: Module, form: str) -> list[str]:
    """The functions of C++ that are too long or broken; none where something has no place in memory."""
    pipeline = form.removeprefix(" -")
    try:
        made = hloopt.optimize(given, pipeline=pipeline, target="host") if form else given
        program = written_natively(made, form)
        return [*too_long(program.sizes), *program.broken]
    except UnsupportedError:
        return []


def _figures(row: Row, arch: str) -> str:
    made = row.made.get(arch)
    if made is None:
        return f"{'-':>4} {'-':>5} {'-':>5}"
    taken = made.resources.values()
    registers = max(one.registers for one in taken)
    spills = sum(one.spill_stores + one.spill_loads for one in taken)
    return f"{registers:4} {spills:5} {max(one.stack for one in taken):5}"


def _print(row: Row, architectures: Sequence[str]) -> None:
    if row.refused:
        print(f"{row.name:36} refused: {row.refused}", flush=True)
        return
    figures = "  ".join(_figures(row, arch) for arch in architectures)
    seconds = sum(made.seconds for made in row.made.values())
    warnings = {line for made in row.made.values() for line in made.warnings}
    noted = f"  {len(warnings)} warnings" if warnings else ""
    each = max((size / count for size, count in row.sizes.values()), default=0)
    print(
        f"{row.name:36} {row.kernels:7} {each:6.0f}  {figures}  {seconds:7.2f}{noted}", flush=True
    )


def _files(given: Sequence[Path]) -> Iterator[tuple[Path, bool, bool]]:
    """Each with whether XLA fused it, and whether it must have kernels."""
    if given:
        yield from ((path, False, True) for path in given)
        return
    for folder in ("", "cartpole", "loops"):
        for path in sorted((ROOT / "samples" / folder).glob("*.hlo")):
            yield path, False, True
    if corpus := os.environ.get("HLOOPT_CORPUS"):
        folder = Path(corpus) / "jax"
        yield from ((path, False, False) for path in sorted(folder.glob("*.before.hlo")))
        yield from ((path, True, False) for path in sorted(folder.glob("*.fused.hlo")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--arch", action="append", help=f"default: {', '.join(ARCHITECTURES)}")
    parser.add_argument("--flags", choices=sorted(FLAGS), default="verify")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    architectures, flags = options.arch or ARCHITECTURES, FLAGS[options.flags]
    try:
        compilers = ", ".join(sorted({str(nvrtc_for(arch)) for arch in architectures}))
    except HlooptError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{compilers}, {flags}")
    heads = "  ".join(f"{arch:>16}" for arch in architectures)
    print(f"{'':36} {'':7} {'':6}  {heads}")
    columns = "  ".join("regs spill stack" for _ in architectures)
    print(f"{'program':36} {'kernels':>7} {'B/inst':>6}  {columns}  {'seconds':>7}")
    rows: list[Row] = []
    wrong: list[str] = []
    start = time.perf_counter()
    with ThreadPoolExecutor(options.workers) as pool:
        for path, is_fused, must in _files(options.files):
            for row in _rows(path, is_fused, architectures, flags, pool):
                _print(row, architectures)
                rows.append(row)
                wrong += [f"{row.name}: {fault}" for fault in faults(row, must=must)]
    _summary(rows, wrong, time.perf_counter() - start)
    return 1 if wrong else 0


def _summary(rows: Sequence[Row], wrong: Sequence[str], elapsed: float) -> None:
    refused = sum(bool(row.refused) for row in rows)
    total = sum(row.kernels * len(row.made) for row in rows)
    certain = sum(row.places.certain for row in rows)
    places = certain + sum(row.places.unknown for row in rows)
    print(
        f"{len(rows)} programs, {refused} refused; {sum(row.kernels for row in rows)} kernels, "
        f"compiled {total} times; {certain} of {places} elements certainly lie in their arrays; "
        f"{len(wrong)} wrong; {elapsed:.1f} s"
    )
    for line in wrong:
        print(line)


if __name__ == "__main__":
    sys.exit(main())
