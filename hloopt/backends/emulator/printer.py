"""Kernel IR as the emulator's C++: shared arrays in the memory of the running block, accesses checked or not.

Every statement takes as many lines as in CUDA C, so that a line means the same in both.
"""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.backends.emulator.shared import SharedArray, SharedLayout
from hloopt.kernel_ir.expressions import Array, Call, Element, Member, Var
from hloopt.kernel_ir.printer import Printer
from hloopt.kernel_ir.statements import (
    Commit,
    Copy,
    Function,
    LoadMatrices,
    MultiplyMatrices,
    Parameter,
    Wait,
    expressions_of,
    walk,
)

__all__ = ["CheckedPrinter", "EmulatorPrinter"]


class EmulatorPrinter(Printer):
    """Writes a kernel as a member of the emulator's class."""

    def __init__(self, function: Function) -> None:
        self.layout = SharedLayout(function.name)

    def head(self, function: Function) -> str:
        """A member has no linkage."""
        return super().head(function).removeprefix('extern "C" ')

    def opening(self, function: Function) -> str:
        """What a function begins with: the asynchronous copies of a thread, where it makes any."""
        makes = any(isinstance(one, Copy | Commit | Wait) for one in walk(function.body))
        return " hloopt::Copies hloopt_copies;" if makes else ""

    def together(self, statement: Copy | Commit | Wait | LoadMatrices | MultiplyMatrices) -> str:
        """A call of what the emulator has in place of the device's instruction."""
        given = [self.expression(one) for one in expressions_of(statement)]
        match statement:
            case Copy():
                return f"hloopt_copies.begin<{statement.bytes}>({', '.join(given)});"
            case Commit():
                return "hloopt_copies.commit();"
            case Wait():
                return f"hloopt_copies.wait({statement.groups});"
            case LoadMatrices():
                function = f"load_matrices<{str(statement.is_transposed).lower()}>"
            case MultiplyMatrices():
                function = f"multiply_matrices<hloopt::{statement.step.replace('.', '_')}>"
        return f"hloopt::{function}({', '.join(['__LINE__', *given])});"

    def shared(self, array: Array, offset: int | None, align: int) -> Iterator[str]:
        """A reference into the memory of the block, or of the launch."""
        if offset == 0:
            yield ""
        yield self.declared(_described(array, offset))

    def declared(self, array: SharedArray) -> str:
        """The declarations of an array, in a line."""
        name = array.name
        return (
            f"{self.layout.place(array)}{name}__type& {name} = "
            f"*({name}__type*)(hloopt::worker->shared + {name}__at); "
        )


class CheckedPrinter(EmulatorPrinter):
    """Has each access of global and shared memory checked.

    ``helpers`` are the device functions that synchronise: a kernel records its line where it calls one.
    """

    def __init__(self, function: Function, helpers: frozenset[str]) -> None:
        super().__init__(function)
        self.helpers = helpers

    def parameter(self, parameter: Parameter) -> str:
        """A checked pointer."""
        target = parameter.target
        if isinstance(target, Var):
            return super().parameter(parameter)
        const = "const " if parameter.is_read else ""
        return f"hloopt::Checked<{const}{target.element}> {target.name}"

    def call(self, call: Call) -> str:
        """A call."""
        place = "hloopt_at(__LINE__)->" if call.name in self.helpers else ""
        return place + super().call(call)

    def element(self, element: Element) -> str:
        """What is read."""
        return self._access(element, "load") or super().element(element)

    def address(self, element: Element) -> str:
        """Where an element lies."""
        if element.array.space == "global":
            return f"({element.array.name} + ({self._where(element)}))"
        return self._access(element, "pointer") or super().address(element)

    def target(self, target: Var | Element | Member) -> str:
        """What is written."""
        if isinstance(target, Element):
            return self._access(target, "slot") or super().element(target)
        if isinstance(target, Member) and isinstance(target.operand, Element):
            place = target.operand
            if place.array.space in ("global", "shared"):
                at = "" if target.at is None else f"[{self.expression(target.at)}]"
                select = f"[&](auto& whole) -> auto& {{ return whole.{target.name}{at}; }}"
                return f"{place.array.name}.member({self._where(place)}, {select})"
        return super().target(target)

    def declared(self, array: SharedArray) -> str:
        """A checked array, in a line."""
        sizes = ", ".join(array.sizes)
        return (
            f"{self.layout.place(array)}"
            f"static hloopt::SharedArray<{array.element}, {sizes}> {array.name}; "
        )

    def _access(self, element: Element, verb: str) -> str:
        """The checked access of an element of memory; empty for an array private to a thread."""
        if element.array.space not in ("global", "shared"):
            return ""
        return f"{element.array.name}.{verb}({self._where(element)})"

    def _where(self, element: Element) -> str:
        if element.array.space == "global":
            return self.expression(element.at[0])
        values = ", ".join(f"(int64_t)({self.expression(at)})" for at in element.at)
        return f'"{element.array.name}", {{{{{values}}}}}'


def _described(array: Array, offset: int | None) -> SharedArray:
    sizes = tuple(map(str, array.dims)) or ("1",)
    return SharedArray(array.name, str(array.element), sizes, "" if offset is None else str(offset))
