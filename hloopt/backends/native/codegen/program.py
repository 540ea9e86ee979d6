"""The C++ of a whole plan: used device functions, one or more functions per instruction, the driver.

Functions that are equal, names aside, are written once.  A large program is split into translation units,
compiled in parallel; ``UNIT`` separates them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from hloopt.analysis.index import Index, Symbol
from hloopt.backends.native.codegen.driver import ENTRY, driver
from hloopt.backends.native.codegen.families import emitters
from hloopt.codegen.device import Uses
from hloopt.codegen.program import ProgramPart, comment, kernel_steps, launched
from hloopt.codegen.writer import write_function
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Array, ArrayValue, Call, Expr, Number, Var
from hloopt.kernel_ir.printer import Printer
from hloopt.kernel_ir.statements import Declare, Do, For, Function, Let, Parameter
from hloopt.kernel_ir.types import VOID, Type
from hloopt.kernels.plan import KernelStep, Plan, WhileStep, function_name, walk_steps

__all__ = ["HEADER", "UNIT", "NativePrinter", "parts", "render", "step_text"]

UNIT: Final = "\f"
"""The separator of translation units, which occurs in no comment or string that is written."""

# Compiling these takes some seconds; another unit costs the 0.2 s of the headers.
_FUNCTIONS_OF_A_UNIT: Final = 128

HEADER: Final = "program.h"
"""What each unit begins with."""

_HEAD: Final = f'#include "{HEADER}"\n'

_EXTERNAL: Final = 'extern "C" __attribute__((visibility("hidden"))) void'
"""Linkage of a function that other translation units call."""

_ENTRY: Final = 'extern "C" int'
"""Linkage of the function that this process calls."""


class NativePrinter(Printer):
    """Writes kernel IR as C++ for the host; ``linkage`` precedes a function's name."""

    def __init__(self, linkage: str = "static void") -> None:
        self.linkage = linkage

    def head(self, function: Function) -> str:
        """No launch bounds: the range of tasks is given by parameters."""
        return f"{self.linkage} {function.name}("

    def unroll(self, times: int | None) -> str | None:
        """Nothing: the host's compiler knows its processor."""
        return None

    def prototype(self, function: Function) -> str:
        """A function's declaration."""
        return f"{self.head(function)}{', '.join(map(self.parameter, function.parameters))});"


_STATIC_PRINTER: Final = NativePrinter()
# A call takes nanoseconds, which count in a loop only.  Inlined calls make the driver of many steps one
# function of thousands of blocks, and some passes of GCC take time quadratic in these.
_CALLED_PRINTER: Final = NativePrinter("static __attribute__((noinline)) void")
_EXTERNAL_PRINTER: Final = NativePrinter(_EXTERNAL)


def parts(plan: Plan) -> list[ProgramPart]:
    """The kernels of a plan.

    Raises ``UnsupportedError`` for an instruction inside a kernel that no kernel can compute.
    """
    functions = _Functions.of(plan, Uses(native=True))
    return [ProgramPart(tuple(one.comment), one.function) for one in functions.written]


def render(
    plan: Plan,
    functions_of_a_unit: int = _FUNCTIONS_OF_A_UNIT,
    *,
    is_timed: bool = False,
    entry: str = ENTRY,
) -> str:
    """The source text of a program against ``backends/native/include``; the others as ``driver`` takes them.

    All symbols that it defines begin with ``entry``, or belong to the namespace ``hloopt``.

    Raises ``UnsupportedError`` for an instruction inside a kernel that no kernel can compute.
    """
    uses = Uses(native=True)
    functions = _Functions.of(plan, uses)
    library = "".join(f'#include "{header}"\n' for header in uses.headers()), uses.source()
    written, called = functions.written, functions.called
    if len(written) <= functions_of_a_unit:
        return _unit(library, written) + _driver(plan, called, entry, is_timed=is_timed)
    wrappers = {
        one.function.name: _wrapper(one.function, f"{entry}_{number}")
        for number, one in enumerate(written)
    }
    units = []
    for start in range(0, len(written), functions_of_a_unit):
        part = written[start : start + functions_of_a_unit]
        lines = [
            line for one in part for line in _EXTERNAL_PRINTER.function(wrappers[one.function.name])
        ]
        units.append(_unit(library, part) + "\n".join([*lines, ""]))
    prototypes = "".join(
        f"{_EXTERNAL_PRINTER.prototype(wrapper)}\n" for wrapper in wrappers.values()
    )
    through = {name: wrappers[function.name] for name, function in called.items()}
    last = _driver(plan, through, entry, is_timed=is_timed)
    return UNIT.join([*units, _HEAD + prototypes + last])


def step_text(step: KernelStep) -> str:
    """The C++ of one instruction, without the device functions that it calls."""
    functions = _Functions(Uses(native=True))
    functions.add(step)
    lines = ((*one.comment, *_STATIC_PRINTER.function(one.function)) for one in functions.written)
    return "\n".join(line for part in lines for line in part)


@dataclass
class _Written:
    """A function of a kernel, its comment, and whether the driver calls it in a loop."""

    function: Function
    comment: Sequence[str]
    is_in_loop: bool = False

    def lines(self) -> list[str]:
        printer = _STATIC_PRINTER if self.is_in_loop else _CALLED_PRINTER
        return [*self.comment, *printer.function(self.function)]


@dataclass
class _Functions:
    """The written functions; ``called`` has the function that each launch calls."""

    uses: Uses
    written: list[_Written] = field(default_factory=list)
    called: dict[str, Function] = field(default_factory=dict)
    known: dict[object, _Written] = field(default_factory=dict)

    @staticmethod
    def of(plan: Plan, uses: Uses) -> _Functions:
        """Those of all kernels of a plan."""
        functions = _Functions(uses)
        loops = [step for step in walk_steps(plan.steps) if isinstance(step, WhileStep)]
        inside = {id(one) for loop in loops for one in kernel_steps(loop.condition + loop.body)}
        for step in kernel_steps(plan.steps):
            functions.add(step, is_in_loop=id(step) in inside)
        return functions

    def add(self, step: KernelStep, *, is_in_loop: bool = False) -> None:
        """The functions of a step's launches."""
        launches = launched(step)
        said = list(comment(step.instruction)) if launches else []
        for launch in launches:
            emit = emitters()[step.spec.kernel]
            function = write_function(step, launch, emit, self.uses, native=True)
            new = _Written(function, said)
            known = self.known.setdefault(_nameless(function), new)
            known.is_in_loop |= is_in_loop
            if known is new:
                self.written.append(new)
                said = []
            self.called[function_name(step, launch)] = known.function


def _nameless(function: Function) -> object:
    """A function with its names numbered: two that are equal do the same."""
    numbers: dict[str, int] = {}

    def number(name: str) -> str | int:
        return numbers.get(name, name)

    def nameless(node: object) -> object:
        match node:
            case Var():
                return number(node.name), node.type.name
            case Symbol():
                return number(node.name)
            case Index():
                return node.constant, *[(nameless(atom), count) for atom, count in node.terms]
            case Array():
                dims = () if node.space == "global" else node.dims
                return number(node.name), node.element.name, dims, node.space
            case Type():
                return node.name
            case Number():
                return node.text, node.type.name
            case tuple():
                return tuple([nameless(one) for one in node])
            case Let() | For():
                numbers[node.var.name] = len(numbers)
            case Declare() | Parameter():
                numbers[node.target.name] = len(numbers)
        names = getattr(node, "__dataclass_fields__", ())
        return (type(node), *[nameless(getattr(node, name)) for name in names]) if names else node

    return nameless((function.parameters, function.body))


def _wrapper(function: Function, called: str) -> Function:
    """The externally visible wrapper of a function, which takes void pointers and is ``called`` so."""
    parameters = []
    given: list[Expr] = []
    for number, one in enumerate(function.parameters):
        name, target = f"p{number}", one.target
        if isinstance(target, Var):
            parameters.append(Parameter(Var(name, target.type)))
            given.append(Var(name, target.type))
        else:
            memory = Array(name, VOID, (), target.space)
            parameters.append(Parameter(memory, is_read=one.is_read))
            given.append(ArrayValue(memory).cast(one.type))
    call = Do(Call(function.name, tuple(given), VOID))
    return Function(called, tuple(parameters), (call,))


def _driver(plan: Plan, called: Mapping[str, Function], entry: str, *, is_timed: bool) -> str:
    run, door = driver(plan, called, is_timed=is_timed, entry=entry)
    lines = [*NativePrinter("static int").function(run), *NativePrinter(_ENTRY).function(door)]
    return "\n".join([*lines, ""])


def _unit(library: tuple[str, str], functions: Sequence[_Written]) -> str:
    included, device = library
    lines = [device]
    for one in functions:
        lines += [*one.lines(), ""]
    body = "\n".join(lines)
    return f"{_HEAD}{included}namespace {{\n{body}\n}}  // namespace\n"
