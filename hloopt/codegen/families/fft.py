"""Discrete Fourier transforms in shared memory.

Stockham's form of decimation in frequency: with n = r m elements of a line left to transform and s = N / n
done, a step of radix r makes, for p < m, q < s and j < r,

    y[q + s (r p + j)] = w_n^(p j) sum over k < r of w_r^(j k) x[q + s (p + m k)],    w_n = exp(-2 pi i / n)

and leaves lines in order at the end.  All roots of unity are powers of w_N, computed once a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hloopt.analysis.index import Index, Symbol, delinearize
from hloopt.codegen.writer import FunctionWriter, Pointee
from hloopt.dataclass import dataclass
from hloopt.kernels.families.fft import AxisTransform, axis_transforms, radices
from hloopt.types import dtype

__all__ = ["EMITTERS"]

_UNROLLED = 8  # the largest radix whose elements a thread has in registers


def emit(f: FunctionWriter) -> None:
    """The transform of one dimension."""
    number = int(f.launch.function.removeprefix("_"))
    _Transform(f, axis_transforms(f.region.instruction)[number]).emit()


@dataclass
class _Transform:
    f: FunctionWriter
    axis: AxisTransform

    def __post_init__(self) -> None:
        f = self.f
        source = f.region.instruction.operands[0].array.dtype
        result = f.region.instruction.array.dtype
        wide = "f64" in (source.name, result.name) or "c128" in (source.name, result.name)
        self.complex = f.uses.type(dtype("c128" if wide else "c64"))
        self.real = "double" if wide else "float"
        self.lines, self.threads = f.tile["lines"], f.launch.block[0]
        self.length = self.axis.length

    def emit(self) -> None:
        f, axis = self.f, self.axis
        pointees = list(f.pointees.values())
        buffers = [f.shared(self.complex, (self.lines, self.length), name) for name in ("x", "y")]
        roots = f.shared(self.complex, (self.length,), "roots")
        first = f.elements.symbol(
            f.block() * self.lines, "first_line", 0, (f.launch.grid[0] - 1) * self.lines
        )
        self._roots(roots)
        self._read(pointees[0], buffers[0], first)
        f.barrier()
        done = 1
        for radix in radices(self.length):
            f.scope.line(f"// {self.length // done} elements left to transform, by radix {radix}.")
            if radix <= _UNROLLED:
                self._butterflies(buffers, roots, radix, done)
            else:
                self._sums(buffers, roots, radix, done)
            f.barrier()
            buffers.reverse()
            done *= radix
        self._write(pointees[-1], buffers[0], first, axis)

    def _each(self, count: int, hint: str) -> tuple[str, Index]:
        """The head of a loop that shares numbers below ``count`` among threads, and the number."""
        name = self.f.scope.names.fresh(hint)
        kind = self.f.loads.index_type
        head = (
            f"for ({kind} {name} = {self.f.thread()}; {name} < {count}; {name} += {self.threads})"
        )
        return head, Symbol(name, 0, count - 1).index

    def _roots(self, roots: str) -> None:
        e = self.f.elements
        head, number = self._each(self.length, "i")
        with e.within(e.scope.block(head)):
            e.scope.line(f"{roots}[{number}] = {self._root(str(number), self.length)};")

    def _root(self, power: str, length: int) -> str:
        """A power of the root of unity of ``length``, named."""
        e = self.f.elements
        suffix, sign = "" if self.real == "double" else "f", "" if self.axis.is_inverse else "-"
        # The angle next to 0, where its rounding is least.
        near = f"({power} > {length // 2} ? {power} - {length} : {power})"
        turn = e.scope.declare(self.real, f"{sign}2 * ({self.real}){near} / {length}", "half_turns")
        sine, cosine = e.scope.names.fresh("sine"), e.scope.names.fresh("cosine")
        e.scope.line(f"{self.real} {sine}, {cosine};")
        e.scope.line(f"sincospi{suffix}({turn}, &{sine}, &{cosine});")
        return e.scope.declare(self.complex, f"{self.complex}{{{cosine}, {sine}}}", "root")

    def _place(self, first: Index, extent: int, hint: str) -> tuple[str, Index, Index, Index, str]:
        """A loop over elements of the block's lines: its head, line, element, address, and a test."""
        axis = self.axis
        head, number = self._each(self.lines * extent, hint)
        if axis.inner == 1:
            line, at = delinearize(number, (self.lines, extent))
        else:
            at, line = delinearize(number, (extent, self.lines))
        every = first + line
        test = f"{every} < {axis.lines}" if every.high >= axis.lines else ""
        return head, line, at, every, test

    def _address(self, every: Index, at: Index, extent: int) -> Index:
        axis = self.axis
        outer, inner = delinearize(every, (axis.outer, axis.inner))
        return outer * (extent * axis.inner) + at * axis.inner + inner

    def _line_number(self, every: Index) -> Index:
        """The number of a line that is known to be one."""
        e = self.f.elements
        named = e.symbol(every, "line", 0, max(every.high, 0))
        if named.is_constant:
            return named
        ((atom, _),) = named.terms
        assert isinstance(atom, Symbol)
        return Symbol(atom.name, 0, min(atom.high, self.axis.lines - 1), atom.multiple).index

    def _read(self, source: Pointee, buffer: str, first: Index) -> None:
        """Lines into shared memory; zeros behind the last line."""
        e, axis = self.f.elements, self.axis
        head, line, at, every, test = self._place(first, self.length, "i")
        with e.within(e.scope.block(head)):
            value = e.scope.variable(self.complex, "element", f"{self.complex}{{}}")
            with self._tested(test):
                number = self._line_number(every)
                if axis.kind == "IRFFT" and axis.rows == 1:
                    self._mirror(source, value, number, at)
                else:
                    element = f"{source.name}[{self._address(number, at, axis.read)}]"
                    part = f"{value}.re" if axis.kind == "RFFT" else value
                    e.scope.line(f"{part} = {element};")
            e.scope.line(f"{buffer}[{line}][{at}] = {value};")

    def _mirror(self, source: Pointee, value: str, number: Index, at: Index) -> None:
        """An element of the spectrum of a real line, of which half is stored; what has no partner is real."""
        e, axis = self.f.elements, self.axis
        whole = self.length * axis.columns
        outer, column = delinearize(number, (axis.outer, axis.columns))
        place = e.symbol(at * axis.columns + column, "place", 0, whole - 1)
        mirrored = f"{place} <= {whole // 2} ? {place} : {whole} - {place.factor_text}"
        name = e.scope.declare(self.f.loads.index_type, mirrored, "stored")
        stored = Symbol(name, 0, whole // 2).index
        e.scope.line(f"{value} = {source.name}[{outer * axis.read + stored}];")
        e.scope.line(f"if ({place} > {whole // 2}) {value}.im = -{value}.im;")
        alone = f"{place} == 0" if whole % 2 else f"{place} == 0 || {place} == {whole // 2}"
        e.scope.line(f"if ({alone}) {value}.im = 0;")

    def _butterflies(self, buffers: list[str], roots: str, radix: int, done: int) -> None:
        """A thread: all results of a radix of one p and q."""
        e, names, each = self.f.elements, self.f.scope.names, self.length // radix
        head, number = self._each(self.lines * each, "i")
        with e.within(e.scope.block(head)):
            line, at = delinearize(number, (self.lines, each))
            at = e.symbol(at, "at", 0, each - 1)
            line = e.symbol(line, "line", 0, self.lines - 1)
            a = names.fresh("a")
            e.scope.line(f"{self.complex} {a}[{radix}];")
            for k in range(radix):
                e.scope.line(f"{a}[{k}] = {buffers[0]}[{line}][{at + k * each}];")
            p, q = at // done, at % done
            for j, sum_name in enumerate(self._small(a, roots, radix)):
                target = f"{buffers[1]}[{line}][{q + p * (done * radix) + j * done}]"
                if j == 0 or radix * done == self.length:
                    e.scope.line(f"{target} = {sum_name};")
                    continue
                root = e.scope.declare(self.complex, f"{roots}[{p * (j * done)}]", "root")
                e.scope.line(f"{target} = {self._product(sum_name, root)};")

    def _small(self, a: str, roots: str, radix: int) -> list[str]:
        """A transform of ``radix`` elements in registers."""
        e = self.f.elements
        x = [f"{a}[{k}]" for k in range(radix)]
        if radix == 1:
            return x
        if radix == 2:
            return [self._combined(x[0], x[1], "+"), self._combined(x[0], x[1], "-")]
        if radix == 4:
            even, odd = self._combined(x[0], x[2], "+"), self._combined(x[1], x[3], "+")
            rest, turned = self._combined(x[0], x[2], "-"), self._combined(x[1], x[3], "-")
            # Times -i forward, times i backward.
            signs = ("-", "") if self.axis.is_inverse else ("", "-")
            turned = e.scope.declare(
                self.complex,
                f"{self.complex}{{{signs[0]}{turned}.im, {signs[1]}{turned}.re}}",
                "turned",
            )
            return [
                self._combined(even, odd, "+"),
                self._combined(rest, turned, "+"),
                self._combined(even, odd, "-"),
                self._combined(rest, turned, "-"),
            ]
        sums = []
        powers = [
            e.scope.declare(self.complex, f"{roots}[{k * (self.length // radix)}]", "power")
            for k in range(1, radix)
        ]
        for j in range(radix):
            total = e.scope.variable(self.complex, "total", x[0])
            for k in range(1, radix):
                power = (j * k) % radix
                self._add(total, x[k], powers[power - 1] if power else "")
            sums.append(total)
        return sums

    def _combined(self, one: str, other: str, sign: str) -> str:
        value = f"{self.complex}{{{one}.re {sign} {other}.re, {one}.im {sign} {other}.im}}"
        return self.f.elements.scope.declare(self.complex, value, "part")

    def _product(self, x: str, w: str) -> str:
        real, imaginary = f"{x}.re * {w}.re - {x}.im * {w}.im", f"{x}.re * {w}.im + {x}.im * {w}.re"
        return f"{self.complex}{{{real}, {imaginary}}}"

    def _add(self, total: str, x: str, w: str) -> None:
        """``total += x w``, or ``total += x``."""
        scope = self.f.elements.scope
        if not w:
            scope.line(f"{total}.re += {x}.re;")
            scope.line(f"{total}.im += {x}.im;")
            return
        scope.line(f"{total}.re += {x}.re * {w}.re - {x}.im * {w}.im;")
        scope.line(f"{total}.im += {x}.re * {w}.im + {x}.im * {w}.re;")

    def _sums(self, buffers: list[str], roots: str, radix: int, done: int) -> None:
        """A thread: one result, the sum over a large radix."""
        e, each = self.f.elements, self.length // radix
        head, number = self._each(self.lines * self.length, "i")
        with e.within(e.scope.block(head)):
            line, at = delinearize(number, (self.lines, self.length))
            at = e.symbol(at, "at", 0, self.length - 1)
            p, j, q = delinearize(at, (each // done, radix, done))
            p, j = e.symbol(p, "p", 0, each // done - 1), e.symbol(j, "j", 0, radix - 1)
            # The power of the root: j (p s + k N / r), modulo N.
            power = e.scope.variable("int", "power", f"{j.factor_text} * {(p * done).factor_text}")
            total = e.scope.variable(self.complex, "total", f"{self.complex}{{}}")
            block, k = e.loop(radix, "k")
            with e.within(block):
                x = e.scope.declare(
                    self.complex, f"{buffers[0]}[{line}][{q + p * done + k * each}]", "element"
                )
                root = e.scope.declare(self.complex, f"{roots}[{power}]", "root")
                self._add(total, x, root)
                e.scope.line(f"{power} += {(j * each)};")
                e.scope.line(f"if ({power} >= {self.length}) {power} -= {self.length};")
            e.scope.line(f"{buffers[1]}[{line}][{at}] = {total};")

    def _write(self, target: Pointee, buffer: str, first: Index, axis: AxisTransform) -> None:
        e = self.f.elements
        extent = axis.written if axis.rows == 1 else self.length
        head, line, at, every, test = self._place(first, extent, "i")
        with e.within(e.scope.block(head)), self._tested(test):
            value = e.scope.variable(self.complex, "element", f"{buffer}[{line}][{at}]")
            is_real = axis.kind == "IRFFT" and axis.columns == 1
            if axis.is_inverse and self.length > 1:
                e.scope.line(f"{value}.re /= {self.length};")
                if not is_real:
                    e.scope.line(f"{value}.im /= {self.length};")
            part = f"{value}.re" if is_real else value
            number = self._line_number(every)
            if axis.columns > 1:
                self._turn(value, number, at)
            if axis.rows > 1:
                self._write_column(target, part, number, at)
                return
            address = self._address(number, at, axis.written)
            e.scope.line(f"{target.name}[{address}] = {part};")

    def _turn(self, value: str, number: Index, at: Index) -> None:
        """Between the halves of a long line: times the root of the element's row and column."""
        e, axis = self.f.elements, self.axis
        whole = self.length * axis.columns
        _, column, _ = delinearize(number, (axis.outer, axis.columns, axis.inner // axis.columns))
        at, column = (
            e.symbol(at, "at", 0, self.length - 1),
            e.symbol(column, "column", 0, axis.columns - 1),
        )
        power = f"{at.factor_text} * {column.factor_text}"
        name = e.scope.declare("int", power, "power")
        root = self._root(name, whole)
        e.scope.line(f"{value} = {self._product(value, root)};")

    def _write_column(self, target: Pointee, value: str, number: Index, at: Index) -> None:
        """The second half of a long line: results of a row go down a column."""
        e, axis = self.f.elements, self.axis
        whole, row, inner = delinearize(number, (axis.outer // axis.rows, axis.rows, axis.inner))
        place = e.symbol(at * axis.rows + row, "place", 0, self.length * axis.rows - 1)
        address = whole * (axis.written * axis.inner) + place * axis.inner + inner
        line = f"{target.name}[{address}] = {value};"
        short = axis.written < self.length * axis.rows
        e.scope.line(f"if ({place} < {axis.written}) {line}" if short else line)

    @contextmanager
    def _tested(self, test: str) -> Iterator[None]:
        e = self.f.elements
        with e.within(e.scope.when(f"{test}") if test else e.scope):
            yield


EMITTERS = {"fft-shared": emit}
