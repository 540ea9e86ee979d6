"""The C++ of a whole plan: device functions that are used, a function or more an instruction, the driver.

Functions of equal text, names aside, are written once.  A program of many is cut into units that are compiled
side by side; ``UNIT`` stands between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final

from hloopt.codegen.device import Uses
from hloopt.codegen.native.driver import driver, parameter_types
from hloopt.codegen.native.families import emitters
from hloopt.codegen.program import comment, kernel_steps
from hloopt.codegen.writer import write_function
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.printer import Printer
from hloopt.kernel_ir.statements import Declare, For, Function, Let, walk
from hloopt.kernels.plan import KernelStep, Plan, function_name
from hloopt.kernels.spec import Launch

__all__ = ["UNIT", "render"]

UNIT: Final = "\f"
"""What stands between units: no comment and no string that is written holds it."""

# Compiling these takes some seconds; a unit more costs the 0.2 s of the headers.
_FUNCTIONS_OF_A_UNIT: Final = 128

_HEAD: Final = '#include "native.h"\n#include "vector_math.h"\n'
_WORD: Final = re.compile(r"\.?[A-Za-z_]\w*")


def render(plan: Plan, functions_of_a_unit: int = _FUNCTIONS_OF_A_UNIT) -> str:
    """The source text of a program against ``runtime/native/include``.

    Raises ``UnsupportedError`` for an instruction inside a kernel that no kernel can compute.
    """
    uses = Uses(native=True)
    functions = _Functions(uses)
    for step in kernel_steps(plan.steps):
        functions.add(step)
    library = "".join(f'#include "{header}"\n' for header in uses.headers()), uses.source()
    if len(functions.written) <= functions_of_a_unit:
        own = driver(plan, uses, functions.names)
        return _unit(library, functions.written, own)
    units = []
    for start in range(0, len(functions.written), functions_of_a_unit):
        part = functions.written[start : start + functions_of_a_unit]
        units.append(_unit(library, part, "".join(one.door for one in part)))
    prototypes = "".join(one.prototype for one in functions.written)
    doors = {name: f"{one}_door" for name, one in functions.names.items()}
    own = driver(plan, uses, doors, by_doors=True)
    return UNIT.join([*units, _HEAD + prototypes + own])


@dataclass(frozen=True)
class _Function:
    """A function of a kernel; ``door`` lets other units call it, by pointers to anything."""

    lines: Sequence[str]
    prototype: str
    door: str


@dataclass
class _Functions:
    """What was written; ``names`` says which function each launch calls."""

    uses: Uses
    written: list[_Function] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)

    def add(self, step: KernelStep) -> None:
        """The functions of a step's launches."""
        launches: dict[str, Launch] = {}
        for part in step.spec.steps:
            if isinstance(part, Launch):
                launches.setdefault(part.function, part)
        said = list(comment(step.instruction)) if launches else []
        for launch in launches.values():
            emit = emitters()[step.spec.kernel]
            function = write_function(step, launch, emit, self.uses, native=True)
            lines = list(NativePrinter().function(function))
            name = function_name(step, launch)
            key = _nameless(lines, _own_names(function) | {name})
            if key not in self.known:
                self.known[key] = name
                types = parameter_types(step, launch, self.uses)
                self.written.append(_Function([*said, *lines, ""], *_door(name, types)))
                said = []
            self.names[name] = self.known[key]


class NativePrinter(Printer):
    """Writes C++ for the host."""

    def head(self, function: Function) -> str:
        """A function that its own unit alone calls."""
        return f"static void {function.name}("


def _own_names(function: Function) -> set[str]:
    found = {one.target.name for one in function.parameters}
    for statement in walk(function.body):
        if isinstance(statement, Let | For):
            found.add(statement.var.name)
        elif isinstance(statement, Declare):
            found.add(statement.target.name)
    return found


def _nameless(lines: Sequence[str], names: set[str]) -> str:
    """A function's text with its own names numbered: two of equal text do the same."""
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        word = match[0]
        return numbers.setdefault(word, f"${len(numbers)}") if word in names else word

    return _WORD.sub(number, "\n".join(lines))


def _door(name: str, types: Sequence[str]) -> tuple[str, str]:
    """The prototype and the text of what calls a function from other units."""
    given = [
        f"int p{at}" if kind == "int" else f"{'const ' * kind.startswith('const ')}void* p{at}"
        for at, kind in enumerate(types)
    ]
    head = (
        f'extern "C" __attribute__((visibility("hidden"))) void {name}_door('
        f"{', '.join(['long long begin', 'long long end', *given])})"
    )
    passed = [f"({kind})p{at}" for at, kind in enumerate(types)]
    call = f"{name}({', '.join(['begin', 'end', *passed])})"
    return f"{head};\n", f"{head} {{ {call}; }}\n"


def _unit(library: tuple[str, str], functions: Sequence[_Function], rest: str) -> str:
    included, device = library
    body = "\n".join([device, *_lines(functions)])
    return f"{_HEAD}{included}namespace {{\n{body}\n}}  // namespace\n{rest}"


def _lines(functions: Sequence[_Function]) -> Iterator[str]:
    for function in functions:
        yield from function.lines
