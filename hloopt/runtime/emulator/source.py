"""From a program of CUDA C to a C++ translation unit against our headers.

The text becomes the inside of a class, so that ``threadIdx`` and its kin are members of one object for each
CUDA thread.  For fast runs only ``extern "C"`` and ``__shared__`` are rewritten; for checked ones, ``checks``
rewrites every access of memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError
from hloopt.runtime.emulator.checks import check_function, struct_names, vector_overloads
from hloopt.runtime.emulator.shared import declare_shared, dynamic_bytes
from hloopt.runtime.emulator.tokens import (
    Function,
    Token,
    find_functions,
    join,
    synchronizing,
    tokenize,
    without_linkage,
)

__all__ = ["KernelSource", "ProgramSource", "translate"]

_NAME = "program.cu"


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel of a program; ``most_threads`` is what its launch bounds say of a block.

    ``dynamic`` is how many bytes of shared memory a launch must give.
    """

    name: str
    synchronizes: bool
    parameters: tuple[str, ...]
    most_threads: int | None
    dynamic: int = 0


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """A translation unit and its kernels in the order of their numbers."""

    text: str
    kernels: tuple[KernelSource, ...]


def translate(source: str, *, is_checked: bool) -> ProgramSource:
    """The translation unit of a program.

    Raises ``DeviceError`` where the text does not keep the conventions of generated code.
    """
    try:
        tokens = tokenize(source)
        functions = find_functions(tokens)
    except ValueError as error:
        raise DeviceError(f"the generated code cannot be read: {error}") from error
    syncs = synchronizing(functions)
    kernels = [function for function in functions if function.is_kernel]
    names = [kernel.name for kernel in kernels]
    for name in names:
        if names.count(name) > 1:
            raise DeviceError(f"the generated code has two kernels called {name}")
    parts = [_HEAD]
    if is_checked:
        parts.append(_CHECKED_HEAD)
    parts.append(f'#line 1 "{_NAME}"\n')
    parts.extend(_body(tokens, functions, syncs, is_checked))
    parts.append("\n};\n}  // namespace\n")
    parts.append(_table(kernels, syncs, is_checked))
    return ProgramSource(
        "".join(parts),
        tuple(
            KernelSource(
                kernel.name,
                kernel.name in syncs,
                tuple(parameter.name for parameter in kernel.parameters),
                kernel.most_threads,
                dynamic_bytes(kernel.tokens[kernel.begin : kernel.end]),
            )
            for kernel in kernels
        ),
    )


_HEAD = """#include "emulator.h"
namespace {
struct Program : hloopt::Thread {
"""

_CHECKED_HEAD = """Program* hloopt_at(int line) {
  hloopt::worker->fibers[hloopt::worker->current].caller_line = line;
  return this;
}
"""


def _body(
    tokens: Sequence[Token],
    functions: Sequence[Function],
    syncs: frozenset[str],
    is_checked: bool,
) -> list[str]:
    parts = []
    at = 0
    kernels = [function.name for function in functions if function.is_kernel]
    structs = struct_names(tokens)
    for function in functions:
        parts.append(join(without_linkage(tokens[at : function.begin])))
        at = function.end
        whole = without_linkage(function.tokens[function.begin : function.end])
        if not is_checked:
            parts.append(declare_shared(function, whole))
            continue
        if not function.is_kernel:
            parts.append(join(whole))
        copy = check_function(function, structs, syncs - set(kernels))
        if copy is not None:
            line = function.tokens[function.begin].line
            blanks = function.is_kernel * function.tokens[function.begin].before.count("\n")
            behind = tokens[at - 1].line
            parts.append(f'\n#line {line - blanks} "{_NAME}"\n')
            parts.append(copy)
            parts.append(f'\n#line {behind} "{_NAME}"\n')
    parts.append(join(without_linkage(tokens[at:])))
    if is_checked:
        parts.append(vector_overloads(functions))
    return parts


def _table(kernels: Sequence[Function], syncs: frozenset[str], is_checked: bool) -> str:
    lines = []
    for kernel in kernels:
        names = "".join(f'"{parameter.name}", ' for parameter in kernel.parameters)
        synchronizes = str(kernel.name in syncs).lower()
        lines.append(f"HLOOPT_KERNEL({kernel.name}, {synchronizes}, {names}nullptr)")
    rows = ", ".join(f"hloopt_kernel_{kernel.name}()" for kernel in kernels)
    first = min((kernel.tokens[kernel.begin].line for kernel in kernels), default=1)
    lines += [
        'extern "C" {',
        f"extern const hloopt::Kernel hloopt_kernels[] = {{{rows or '{}'}}};",
        f"extern const int hloopt_kernel_count = {len(kernels)};",
        f"extern const bool hloopt_is_checked = {str(is_checked).lower()};",
        f"extern const int hloopt_kernels_begin = {first};",
        "}",
        "",
    ]
    return "\n".join(lines)
