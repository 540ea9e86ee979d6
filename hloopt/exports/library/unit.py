"""The unit of a library that has its tables: C++ against ``include/library.h`` of the native back end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hloopt.backends.native.bindings import COPY_RESULT
from hloopt.backends.native.codegen.driver import loops
from hloopt.exports.library.interface import Interface, LibraryArray
from hloopt.exports.library.names import c_literal
from hloopt.interpret.control import endless
from hloopt.kernels.plan import Plan, WhileStep

__all__ = ["DATA", "HEADER", "PAGE", "file_head", "run_name", "share_name", "write_unit"]

HEADER: Final = "interface.h"
"""What the header is called while it is compiled."""

DATA: Final = "data.bin"
"""And the file of constants and weights."""

PAGE: Final = 4096
"""Bytes before the data in a file of weights, so that they are aligned where they are mapped."""

_HOMES: Final = {"given": "kGiven", "data": "kData", "memory": "kMemory"}
_EMBEDDED: Final = f"""
extern "C" const char library_data[] __attribute__((visibility("hidden")));
#ifdef __APPLE__
#define LIBRARY_SECTION ".const_data"
#define LIBRARY_SYMBOL "_" LIBRARY_DATA
#else
#define LIBRARY_SECTION ".section .rodata"
#define LIBRARY_SYMBOL LIBRARY_DATA
#endif
asm(LIBRARY_SECTION "\\n.balign 256\\n.globl " LIBRARY_SYMBOL "\\n"
    LIBRARY_SYMBOL ":\\n.incbin \\"{DATA}\\"\\n.text\\n");
"""


def run_name(prefix: str) -> str:
    """The symbol that runs the steps of a plan; others of its units begin with it."""
    return f"{prefix}_internal_run"


def share_name(prefix: str) -> str:
    """The symbol that shares work among threads."""
    return f"{prefix}_internal_share"


def file_head(build: str) -> bytes:
    """What a file of weights begins with."""
    return b"hloopt-weights-1" + build.encode()


def write_unit(
    interface: Interface, plan: Plan, build: str, features: Iterable[str], *, has_file: bool
) -> str:
    """The text of the unit.

    ``build`` tells this build from others; ``features`` are what the kernels need of the processor, as
    ``__builtin_cpu_supports`` calls them; ``has_file`` says whether the data are in a file of their own.
    """
    prefix = interface.prefix
    head = file_head(build) if has_file else b"\0"
    needs = "".join(f" HAS({c_literal(one)})" for one in features)
    embedded = bool(interface.data_size) and not has_file
    lines = [
        f"#define LIBRARY(name) {prefix}_##name",
        f"#define LIBRARY_FEATURES(HAS){needs}",
        f'#define LIBRARY_DATA "{prefix}_internal_data"',
        f"#define library_data {prefix}_internal_data",
        f'#include "{HEADER}"',
        '#include "library.h"',
        _EMBEDDED if embedded else "",
        f'extern "C" int {run_name(prefix)}(char* const*, hloopt::Host*);',
        f'extern "C" int {share_name(prefix)}(int, long long, hloopt::Range*, void*, int (*)(void*), void*);',
        "namespace {",
        "using namespace hloopt;",
        *_tensors("library_inputs", interface.inputs),
        *_tensors("library_results", interface.results),
        *_table("Place", "places", ((_HOMES[one.home], one.offset) for one in interface.places)),
        *_table("Binding", "bounds", interface.bound, cast="(BindingKind)"),
        *_loops(loops(plan)),
        f"const char library_head[] = {{{', '.join(map(str, head))}}};",
        f"const long long library_page = {PAGE};",
    ]
    before = sum(one.kind != COPY_RESULT for one in interface.bound)
    fields = (
        run_name(prefix),
        share_name(prefix),
        len(interface.inputs),
        len(interface.results),
        "places",
        len(interface.places),
        "bounds",
        before,
        len(interface.bound) - before,
        "loop_pointers",
        interface.memory,
        "library_data" if embedded else "nullptr",
        "library_head" if has_file else "nullptr",
        PAGE + interface.data_size if has_file else 0,
        c_literal(build),
    )
    lines += [f"const Library library = {{{', '.join(map(str, fields))}}};", "}  // namespace"]
    return "\n".join([*lines, '#include "library.cpp"', ""])


def _tensors(name: str, arrays: Sequence[LibraryArray]) -> Iterator[str]:
    for number, one in enumerate(arrays):
        for what, values in (("dims", one.shape.dims), ("strides", one.strides)):
            listed = ", ".join(map(str, values)) or "0"
            yield f"const int64_t {name}_{what}_{number}[] = {{{listed}}};"
    yield f"const LIBRARY(tensor) {name}[] = {{"
    for number, one in enumerate(arrays):
        yield (
            f"    {{{c_literal(one.name)}, {c_literal(one.shape.dtype.name)}, {len(one.shape.dims)}, "
            f"{name}_dims_{number}, {name}_strides_{number}, {one.byte_size}, {one.alignment}}},"
        )
    # A table of C has at least one row.
    yield "    {}};"


def _table(type: str, name: str, rows: Iterable[Sequence[object]], cast: str = "") -> Iterator[str]:
    yield f"const {type} {name}[] = {{"
    for row in rows:
        yield f"    {{{', '.join([f'{cast}{row[0]}', *map(str, row[1:])])}}},"
    yield "    {}};"


def _loops(steps: Sequence[WhileStep]) -> Iterator[str]:
    yield "const Loop loops[] = {"
    for step in steps:
        error = endless(step.instruction, "%lld", alone=True)
        said = None if error is None else str(error).replace("%", "%%").replace("%%lld", "%lld")
        yield f"    {{{'nullptr' if said is None else c_literal(said)}}},"
    yield "    {}};"
    pointers = ", ".join([*(f"(void*)&loops[{number}]" for number in range(len(steps))), "nullptr"])
    yield f"void* const loop_pointers[] = {{{pointers}}};"
