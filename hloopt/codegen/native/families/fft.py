"""Discrete Fourier transforms: for some lines side by side the passes of fourier.h."""

from __future__ import annotations

from hloopt.analysis.index import Index
from hloopt.codegen.native.nest import tasks
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernels.families.fft import AxisTransform, radices, whole_transforms
from hloopt.kernels.families.native_fft import Working, working

__all__ = ["EMITTERS"]

_WRITTEN_OUT = (2, 3, 4, 5)


def _emit(f: FunctionWriter) -> None:
    f.uses.include("fourier.h")
    transform = whole_transforms(f.region.instruction)[f.launch.part]
    _Transform(f, transform, working(transform)).emit()


@dataclass
class _Transform:
    f: FunctionWriter
    axis: AxisTransform
    way: Working

    def line(self, text: str) -> None:
        self.f.elements.scope.line(text)

    def name(self, hint: str) -> str:
        return self.f.scope.names.fresh(hint)

    def emit(self) -> None:
        f, axis, way = self.f, self.axis, self.way
        *places, room = f.pointees.values()
        source, target = places[0], places[-1]
        passes, fill = self.passes()
        halves = self.table("halves", 2 * way.length) if way.pairs else ""
        chirp = self.table("chirp", 2 * way.length) if way.is_chirp else ""
        spectrum = self.table("spectrum", 2 * way.passes) if way.is_chirp else ""
        groups = -(-axis.lines // way.wide)
        with tasks(f, "group", f.tile["groups"], groups) as group:
            task = group // f.tile["groups"]
            own = f"{room.name} + {task * (4 * way.plane)}"
            # Filled by whoever comes first, with room of its own.
            self.line(f"static const bool is_ready = [&](double* room) {{ {' '.join(fill)}")
            if halves:
                count = way.length
                self.line(
                    f"for (long k = 0; k < {count}; ++k) hloopt::root_of_unity("
                    f"k, {2 * count}, {halves} + 2 * k, {halves} + 2 * k + 1);"
                )
            if chirp:
                lengths = f"{way.length}, {way.passes}"
                self.line(f"hloopt::fill_chirp({lengths}, {chirp}, {spectrum}, room, {passes});")
            self.line(f"return true; }}({own});")
            on = self.name("on")
            self.line(f"hloopt::Lines {on}({own}, {way.plane});")
            self.read(on, source.name, group)
            if axis.kind == "IRFFT" and way.pairs:
                self.line(f"hloopt::join_halves({on}, {way.wide}, {way.length}, {halves});")
            if axis.is_inverse:
                self.line(f"{on}.invert();")
            if chirp:
                given = f"{way.length}, {way.passes}, {chirp}, {spectrum}, {passes}"
                self.line(f"hloopt::chirped({on}, {way.wide}, {given});")
            else:
                self.line(f"{passes}({on}, {way.wide});")
            if axis.is_inverse:
                self.line(f"{on}.invert();")
            if axis.kind == "RFFT" and way.pairs:
                self.line(f"hloopt::split_halves({on}, {way.wide}, {way.length}, {halves});")
            self.write(on, target.name, group)

    def table(self, hint: str, size: int) -> str:
        """Numbers that are the same in every run."""
        name = self.name(hint)
        self.line(f"static double {name}[{size}];")
        return name

    def passes(self) -> tuple[str, list[str]]:
        """A function of lines and how many there are side by side; what fills its tables."""
        roots: list[tuple[int, int]] = []
        left = self.way.passes
        for radix in radices(left):
            left //= radix
            roots.append((radix, left))
        table = self.table("roots", max(2, sum(2 * (radix - 1) * m for radix, m in roots)))
        own = {radix for radix, _ in roots if radix not in _WRITTEN_OUT}
        units = {radix: self.table(f"units_{radix}", 2 * radix) for radix in sorted(own)}
        name = self.name("passes")
        self.line(f"const auto {name} = [](hloopt::Lines& on, long wide) {{")
        offset, done = 0, 1
        fill = [f"double* to = {table};"]
        for radix, m in roots:
            rest = f"{m}, {done} * wide, {table} + {offset}"
            if radix in units:
                self.line(f"  hloopt::any_pass(on, {radix}, {rest}, {units[radix]});")
            else:
                self.line(f"  hloopt::pass<{radix}>(on, {rest});")
            fill.append(f"to = hloopt::fill_roots(to, {radix}, {m});")
            offset += 2 * (radix - 1) * m
            done *= radix
        self.line("};")
        for radix, units_name in units.items():
            each = f"{units_name} + 2 * k, {units_name} + 2 * k + 1"
            fill.append(
                f"for (long k = 0; k < {radix}; ++k) hloopt::root_of_unity(k, {radix}, {each});"
            )
        return name, fill

    def places(self, extent: int, group: Index) -> str:
        """Where lines of so many elements lie, and the first one of a group."""
        axis, wide = self.axis, self.way.wide
        return f"hloopt::Places{{{axis.lines}, {extent}, {axis.inner}}}, {group * wide}, {wide}"

    def read(self, on: str, source: str, group: Index) -> None:
        axis, way = self.axis, self.way
        places = self.places(axis.read, group)
        if axis.kind == "IRFFT":
            kept = min(axis.read, axis.length // 2 + 1)
            if way.pairs:
                function, length = "read_lines", way.length + 1
            else:
                function, length = "read_half", way.length
        else:
            kept = min(axis.read, axis.length)
            function, length = "read_pairs" if way.pairs else "read_lines", way.length
        self.line(f"hloopt::{function}({source}, {places}, {kept}, {length}, {on});")

    def write(self, on: str, target: str, group: Index) -> None:
        axis, way = self.axis, self.way
        scale = f"1.0 / {axis.length}" if axis.is_inverse else "1"
        places = self.places(axis.written, group)
        function, written = "write_lines", axis.written
        if axis.kind == "IRFFT" and way.pairs:
            function, written = "write_pairs", way.length
        self.line(f"hloopt::{function}({on}, {scale}, {target}, {places}, {written});")


EMITTERS = {"native-fft": _emit}
"""What writes the kernel of this family."""
