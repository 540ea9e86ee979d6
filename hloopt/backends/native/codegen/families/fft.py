"""Discrete Fourier transforms: for some lines side by side the passes of fourier.h."""

from __future__ import annotations

from dataclasses import field

from hloopt.analysis.index import Index
from hloopt.backends.native.codegen.nest import tasks
from hloopt.backends.native.kernels.fft import Working, working
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import (
    Array,
    ArrayValue,
    Call,
    Expr,
    Make,
    Number,
    Operand,
    Var,
    as_expr,
    both,
)
from hloopt.kernel_ir.statements import Declare
from hloopt.kernel_ir.types import BOOL, DOUBLE, VOID, Type, struct
from hloopt.kernels.families.fft import AxisTransform, radices, whole_transforms

__all__ = ["EMITTERS"]

# A pass of a larger radix has a table of its own roots (``Pass``).
_WRITTEN_OUT = 5


def _emit(f: FunctionWriter) -> None:
    f.uses.include("fourier.h")
    transform = whole_transforms(f.region.instruction)[f.launch.part]
    _Transform(f, transform, working(transform)).emit()


def _call(name: str, *given: Operand, type: Type = VOID) -> Call:
    return Call(f"hloopt::{name}", tuple(map(as_expr, given)), type)


@dataclass
class _Transform:
    """Writing the transform of a dimension; ``fill`` are the calls that fill its tables."""

    f: FunctionWriter
    axis: AxisTransform
    way: Working
    fill: list[Call] = field(default_factory=list)

    def emit(self) -> None:
        f, axis, way = self.f, self.axis, self.way
        *places, room = (pointee.memory for pointee in f.pointees.values())
        source, target = places[0], places[-1]
        passes = self.passes()
        halves = self.table("halves", 2 * way.length) if way.pairs else None
        chirp = self.table("chirp", 2 * way.length) if way.is_chirp else None
        spectrum = self.table("spectrum", 2 * way.passes) if way.is_chirp else None
        groups = -(-axis.lines // way.wide)
        with tasks(f, "group", f.tile["groups"], groups) as group:
            scope = f.elements.scope
            own = room.address(group // f.tile["groups"] * (4 * way.plane))
            self.fill.append(_call("fill_passes", passes, type=BOOL))
            if halves is not None:
                self.fill.append(_call("fill_halves", way.length, halves, type=BOOL))
            if chirp is not None and spectrum is not None:
                given = (way.length, way.passes, chirp, spectrum)
                self.fill.append(_call("fill_chirp", *given, own, passes, type=BOOL))
            # Each task has separate scratch memory.
            ready = Var(scope.names.fresh("is_ready"), BOOL)
            scope.add(Declare(ready, (both(self.fill),), is_static=True))
            lines = struct("hloopt::Lines")
            on = scope.variable(lines, "on", Call(lines.name, (own, as_expr(way.plane)), lines))
            self.read(on, source, group)
            if halves is not None and axis.kind == "IRFFT":
                scope.do(_call("join_halves", on, way.wide, way.length, halves))
            if axis.is_inverse:
                scope.do(_call("invert", on))
            if chirp is not None and spectrum is not None:
                given = (way.length, way.passes, chirp, spectrum)
                scope.do(_call("chirped", on, way.wide, *given, passes))
            else:
                scope.do(Call(passes.name, (on, as_expr(way.wide)), VOID))
            if axis.is_inverse:
                scope.do(_call("invert", on))
            if halves is not None and axis.kind == "RFFT":
                scope.do(_call("split_halves", on, way.wide, way.length, halves))
            self.write(on, target, group)

    def table(self, hint: str, size: int) -> ArrayValue:
        """A table of numbers that are the same in every run."""
        return ArrayValue(self.f.elements.scope.array(DOUBLE, (size,), hint, is_static=True))

    def passes(self) -> Var:
        """The passes, which a call runs on lines and how many there are side by side."""
        each, size, left = [], 0, self.way.passes
        for radix in radices(left):
            left //= radix
            each.append(f"hloopt::Pass<{radix}, {left}>")
            size += 2 * (radix - 1) * left + (2 * radix if radix > _WRITTEN_OUT else 0)
        type = struct(f"hloopt::Passes<{', '.join(each)}>")
        return self.f.elements.scope.declare(
            type, Make(type, (self.table("roots", max(2, size)),)), "passes"
        )

    def places(self, extent: int, group: Index) -> tuple[Expr, Expr, Expr]:
        """Where lines of so many elements lie, the first one of a group, and how many those are."""
        axis, wide = self.axis, self.way.wide
        lying = Make(
            struct("hloopt::Places"), tuple(map(as_expr, (axis.lines, extent, axis.inner)))
        )
        return lying, as_expr(group * wide), as_expr(wide)

    def read(self, on: Var, source: Array, group: Index) -> None:
        axis, way = self.axis, self.way
        if axis.kind == "IRFFT":
            kept = min(axis.read, axis.length // 2 + 1)
            if way.pairs:
                function, length = "read_lines", way.length + 1
            else:
                function, length = "read_half", way.length
        else:
            kept = min(axis.read, axis.length)
            function, length = "read_pairs" if way.pairs else "read_lines", way.length
        places = self.places(axis.read, group)
        self.f.elements.scope.do(_call(function, ArrayValue(source), *places, kept, length, on))

    def write(self, on: Var, target: Array, group: Index) -> None:
        axis, way = self.axis, self.way
        scale: Expr = Number("1.0", DOUBLE, 1.0)
        if axis.is_inverse:
            scale = scale / axis.length
        function, written = "write_lines", axis.written
        if axis.kind == "IRFFT" and way.pairs:
            function, written = "write_pairs", way.length
        places = self.places(axis.written, group)
        self.f.elements.scope.do(_call(function, on, scale, ArrayValue(target), *places, written))


EMITTERS = {"native-fft": _emit}
"""What writes the kernel of this family."""
