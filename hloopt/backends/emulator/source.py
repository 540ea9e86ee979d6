"""From a program to a C++ translation unit that includes our headers.

Kernels become members of a class, so that ``threadIdx`` and its kin are members of one object for each CUDA
thread.  Kernel IR is printed directly (``printer.py``).  The text of CUDA C that a user wrote is
rewritten: for fast runs only ``extern "C"`` and ``__shared__``, for checked ones every access of memory
(``checks.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.backends.emulator.checks import check_function, struct_names, vector_overloads
from hloopt.backends.emulator.printer import CheckedPrinter, EmulatorPrinter
from hloopt.backends.emulator.shared import declare_shared, dynamic_bytes
from hloopt.backends.emulator.tokens import (
    SourceFunction,
    SourceToken,
    find_functions,
    join,
    synchronizing,
    tokenize,
    without_linkage,
)
from hloopt.codegen.device import library
from hloopt.codegen.program import KernelProgram, ProgramPart
from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError
from hloopt.kernel_ir.expressions import Array, Call, subexpressions
from hloopt.kernel_ir.printer import Printer
from hloopt.kernel_ir.statements import (
    Agree,
    Barrier,
    Declare,
    LoadMatrices,
    MultiplyMatrices,
    Statement,
    expressions_of,
    walk,
)
from hloopt.kernel_ir.statements import (
    Function as Kernel,
)

__all__ = ["KernelSource", "ProgramSource", "translate"]

_NAME = "program.cu"


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel of a program; ``most_threads`` is what its launch bounds say of a block.

    ``line`` is where it begins; ``dynamic`` is how many bytes of shared memory a launch must give.
    """

    name: str
    synchronizes: bool
    parameters: tuple[str, ...]
    most_threads: int | None
    line: int
    dynamic: int = 0


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """A translation unit and its kernels in the order of their numbers."""

    text: str
    kernels: tuple[KernelSource, ...]


def translate(program: KernelProgram | str, *, is_checked: bool) -> ProgramSource:
    """The translation unit of a program, or of a text of CUDA C.

    Raises ``DeviceError`` where a text does not keep the conventions of generated code.
    """
    if isinstance(program, str):
        program = KernelProgram("", (), (ProgramPart((), text=program),))
    parts, kernels = [_HEAD], []
    if is_checked:
        parts.append(_CHECKED_HEAD)
    parts.append(f'#line 1 "{_NAME}"\n{program.library}\n')
    if is_checked:
        parts.append(vector_overloads(program.uses))
    line = program.library.count("\n") + 2 if program.library else 1
    helpers = frozenset(name for name, entry in library().items() if entry.synchronizes)
    for part in program.parts:
        parts.append(f'\n#line {line} "{_NAME}"\n')
        if part.function is not None:
            written, kernel = _kernel(part, part.function, line, helpers, is_checked)
            parts.append(written)
            kernels.append(kernel)
        else:
            remarks = "".join(f"{remark}\n" for remark in part.remarks)
            written, found = _user_text(part.text, line + len(part.remarks), is_checked)
            parts.append(remarks + written)
            kernels += found
        line += sum(text.count("\n") + 1 for text in part.lines(Printer()))
    names = [kernel.name for kernel in kernels]
    for name in names:
        if names.count(name) > 1:
            raise DeviceError(f"the generated code has two kernels called {name}")
    parts.append("\n};\n}  // namespace\n")
    parts.append(_table(kernels, is_checked))
    return ProgramSource("".join(parts), tuple(kernels))


def _kernel(
    part: ProgramPart, function: Kernel, line: int, helpers: frozenset[str], is_checked: bool
) -> tuple[str, KernelSource]:
    """The member that a kernel becomes; its body's lines are those of the CUDA C."""
    printer = CheckedPrinter(function, helpers) if is_checked else EmulatorPrinter(function)
    body = list(printer.body(function.body, 1))
    head = sum(1 for _ in part.lines(Printer())) - len(body) - 1
    parameters = ", ".join(map(printer.parameter, function.parameters))
    kernel = KernelSource(
        function.name,
        any(_synchronizes(statement, helpers) for statement in walk(function.body)),
        tuple(parameter.target.name for parameter in function.parameters),
        function.threads,
        line + len(part.remarks),
        _given(function),
    )
    lines = [*part.remarks, f"{printer.head(function)}{parameters}) {{{printer.opening(function)}"]
    lines += [f'#line {line + head} "{_NAME}"', *body, "}"]
    return "\n".join(lines), kernel


def _synchronizes(statement: Statement, helpers: frozenset[str]) -> bool:
    """Whether a statement synchronises threads."""
    return isinstance(statement, Agree | Barrier | LoadMatrices | MultiplyMatrices) or any(
        isinstance(one, Call) and one.name in helpers
        for expr in expressions_of(statement)
        for one in subexpressions(expr)
    )


def _given(function: Kernel) -> int:
    """Bytes of shared memory that a launch must give at least."""
    return max(
        (
            statement.offset + target.byte_size
            for statement in walk(function.body)
            if isinstance(statement, Declare)
            and statement.offset is not None
            and isinstance(target := statement.target, Array)
        ),
        default=0,
    )


def _user_text(source: str, line: int, is_checked: bool) -> tuple[str, list[KernelSource]]:
    try:
        tokens = tokenize(source, line)
        functions = find_functions(tokens)
    except ValueError as error:
        raise DeviceError(f"the generated code cannot be read: {error}") from error
    syncs = synchronizing(functions)
    kernels = [
        KernelSource(
            kernel.name,
            kernel.name in syncs,
            tuple(parameter.name for parameter in kernel.parameters),
            kernel.most_threads,
            kernel.tokens[kernel.begin].line,
            dynamic_bytes(kernel.tokens[kernel.begin : kernel.end]),
        )
        for kernel in functions
        if kernel.is_kernel
    ]
    return "".join(_body(tokens, functions, syncs, is_checked)), kernels


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
    tokens: Sequence[SourceToken],
    functions: Sequence[SourceFunction],
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
        parts.append(vector_overloads([function.name for function in functions]))
    return parts


def _table(kernels: Sequence[KernelSource], is_checked: bool) -> str:
    lines = []
    for kernel in kernels:
        names = "".join(f'"{name}", ' for name in kernel.parameters)
        synchronizes = str(kernel.synchronizes).lower()
        lines.append(f"HLOOPT_KERNEL({kernel.name}, {synchronizes}, {names}nullptr)")
    rows = ", ".join(f"hloopt_kernel_{kernel.name}()" for kernel in kernels)
    first = min((kernel.line for kernel in kernels), default=1)
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
