"""Discrete Fourier transforms in shared memory.

Stockham's form of decimation in frequency: with n = r m elements of a line left to transform and s = N / n
done, a step of radix r makes, for p < m, q < s and j < r,

    y[q + s (r p + j)] = w_n^(p j) sum over k < r of w_r^(j k) x[q + s (p + m k)],    w_n = exp(-2 pi i / n)

and leaves lines in order at the end.  All roots of unity are powers of w_N, computed once a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from hloopt.analysis.index import Index, delinearize, narrowed
from hloopt.codegen.writer import FunctionWriter, Pointee
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import (
    Address,
    Array,
    Binary,
    Call,
    Cast,
    Expr,
    Make,
    Member,
    Select,
    Var,
    as_expr,
    below,
    either,
    eq,
)
from hloopt.kernel_ir.types import DOUBLE, FLOAT, INT, VOID
from hloopt.kernels.families.fft import AxisTransform, axis_transforms, radices
from hloopt.types import dtype

__all__ = ["EMITTERS"]

_UNROLLED = 8  # the largest radix whose elements a thread has in registers


def emit(f: FunctionWriter) -> None:
    """The transform of one dimension."""
    _Transform(f, axis_transforms(f.region.instruction)[f.launch.part]).emit()


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
        self.real = DOUBLE if wide else FLOAT
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
            if radix <= _UNROLLED:
                self._butterflies(buffers, roots, radix, done)
            else:
                self._sums(buffers, roots, radix, done)
            f.barrier()
            buffers.reverse()
            done *= radix
        self._write(pointees[-1], buffers[0], first, axis)

    def _each(self, count: int) -> AbstractContextManager[Index]:
        """A loop that shares numbers below ``count`` among threads; gives the number."""
        return self.f.elements.counting(self.f.thread(), count, "i", self.threads)

    def _roots(self, roots: Array) -> None:
        with self._each(self.length) as number:
            root = self._root(as_expr(number), self.length)
            self.f.elements.scope.set(roots[number], root)

    def _root(self, power: Expr, length: int) -> Var:
        """A power of the root of unity of ``length``, named."""
        e = self.f.elements
        # The angle next to 0, where its rounding is least.
        near = Select.of(power > length // 2, power - length, power)
        two = as_expr(2 if self.axis.is_inverse else -2)
        turn = e.scope.declare(self.real, two * Cast(self.real, near) / length, "half_turns")
        sine = e.scope.variable(self.real, "sine")
        cosine = e.scope.variable(self.real, "cosine")
        name = "sincospi" if self.real == DOUBLE else "sincospif"
        e.scope.do(Call(name, (turn, Address(sine), Address(cosine)), VOID))
        return e.scope.declare(self.complex, Make(self.complex, (cosine, sine)), "root")

    @contextmanager
    def _place(self, first: Index, extent: int) -> Iterator[tuple[Index, Index, Index, list[Expr]]]:
        """A loop over elements of the block's lines: gives line, element, number of the line, tests."""
        with self._each(self.lines * extent) as number:
            if self.axis.inner == 1:
                line, at = delinearize(number, (self.lines, extent))
            else:
                at, line = delinearize(number, (extent, self.lines))
            every = first + line
            yield line, at, every, below(every, self.axis.lines)

    def _address(self, every: Index, at: Index, extent: int) -> Index:
        axis = self.axis
        outer, inner = delinearize(every, (axis.outer, axis.inner))
        return outer * (extent * axis.inner) + at * axis.inner + inner

    def _line_number(self, every: Index) -> Index:
        """The number of a line that is known to be one."""
        named = self.f.elements.symbol(every, "line", 0, max(every.high, 0))
        return narrowed(named, self.axis.lines)

    def _read(self, source: Pointee, buffer: Array, first: Index) -> None:
        """Lines into shared memory; zeros behind the last line."""
        e, axis = self.f.elements, self.axis
        with self._place(first, self.length) as (line, at, every, tests):
            value = e.scope.variable(self.complex, "element", Make(self.complex, ()))
            with e.when(*tests):
                number = self._line_number(every)
                if axis.kind == "IRFFT" and axis.rows == 1:
                    self._mirror(source, value, number, at)
                else:
                    element = source.memory[self._address(number, at, axis.read)]
                    e.scope.set(self._re(value) if axis.kind == "RFFT" else value, element)
            e.scope.set(buffer[line, at], value)

    def _re(self, value: Expr) -> Member:
        return Member(value, "re", self.real)

    def _im(self, value: Expr) -> Member:
        return Member(value, "im", self.real)

    def _mirror(self, source: Pointee, value: Var, number: Index, at: Index) -> None:
        """An element of the spectrum of a real line, of which half is stored; what has no partner is real."""
        e, axis = self.f.elements, self.axis
        whole = self.length * axis.columns
        outer, column = delinearize(number, (axis.outer, axis.columns))
        place = as_expr(e.symbol(at * axis.columns + column, "place", 0, whole - 1))
        mirrored = Select.of(place <= whole // 2, place, whole - place)
        stored = e.symbol(mirrored, "stored", 0, whole // 2)
        e.scope.set(value, source.memory[outer * axis.read + stored])
        e.scope.when(place > whole // 2).set(self._im(value), -self._im(value))
        alone = [eq(place, 0)] + [eq(place, whole // 2)] * (whole % 2 == 0)
        e.scope.when(either(alone)).set(self._im(value), 0)

    def _butterflies(self, buffers: list[Array], roots: Array, radix: int, done: int) -> None:
        """A thread: all results of a radix of one p and q."""
        e, each = self.f.elements, self.length // radix
        with self._each(self.lines * each) as number:
            line, at = delinearize(number, (self.lines, each))
            at = e.symbol(at, "at", 0, each - 1)
            line = e.symbol(line, "line", 0, self.lines - 1)
            a = e.scope.array(self.complex, (radix,), "a")
            for k in range(radix):
                e.scope.set(a[k], buffers[0][line, at + k * each])
            p, q = at // done, at % done
            for j, sum_name in enumerate(self._small(a, roots, radix)):
                target = buffers[1][line, q + p * (done * radix) + j * done]
                if j == 0 or radix * done == self.length:
                    e.scope.set(target, sum_name)
                    continue
                root = e.scope.declare(self.complex, roots[p * (j * done)], "root")
                e.scope.set(target, self._product(sum_name, root))

    def _small(self, a: Array, roots: Array, radix: int) -> Sequence[Expr]:
        """A transform of ``radix`` elements in registers."""
        e = self.f.elements
        x = [a[k] for k in range(radix)]
        if radix == 1:
            return x
        if radix == 2:
            return [self._combined(x[0], x[1], "+"), self._combined(x[0], x[1], "-")]
        if radix == 4:
            even, odd = self._combined(x[0], x[2], "+"), self._combined(x[1], x[3], "+")
            rest, turned = self._combined(x[0], x[2], "-"), self._combined(x[1], x[3], "-")
            # Times -i forward, times i backward.
            parts: tuple[Expr, Expr] = self._im(turned), -self._re(turned)
            if self.axis.is_inverse:
                parts = -self._im(turned), self._re(turned)
            turned = e.scope.declare(self.complex, Make(self.complex, parts), "turned")
            return [
                self._combined(even, odd, "+"),
                self._combined(rest, turned, "+"),
                self._combined(even, odd, "-"),
                self._combined(rest, turned, "-"),
            ]
        sums = []
        powers = [
            e.scope.declare(self.complex, roots[k * (self.length // radix)], "power")
            for k in range(1, radix)
        ]
        for j in range(radix):
            total = e.scope.variable(self.complex, "total", x[0])
            for k in range(1, radix):
                power = (j * k) % radix
                self._add(total, x[k], powers[power - 1] if power else None)
            sums.append(total)
        return sums

    def _combined(self, one: Expr, other: Expr, sign: str) -> Var:
        parts = tuple(Binary.of(sign, part(one), part(other)) for part in (self._re, self._im))
        return self.f.elements.scope.declare(self.complex, Make(self.complex, parts), "part")

    def _parts(self, x: Expr, w: Expr) -> tuple[Expr, Expr]:
        """Real and imaginary part of a product."""
        re, im = self._re, self._im
        return re(x) * re(w) - im(x) * im(w), re(x) * im(w) + im(x) * re(w)

    def _product(self, x: Expr, w: Expr) -> Expr:
        return Make(self.complex, self._parts(x, w))

    def _add(self, total: Var, x: Expr, w: Expr | None) -> None:
        """``total += x w``, or ``total += x``."""
        real, imaginary = (self._re(x), self._im(x)) if w is None else self._parts(x, w)
        self.f.elements.scope.set(self._re(total), real, "+")
        self.f.elements.scope.set(self._im(total), imaginary, "+")

    def _sums(self, buffers: list[Array], roots: Array, radix: int, done: int) -> None:
        """A thread: one result, the sum over a large radix."""
        e, each = self.f.elements, self.length // radix
        with self._each(self.lines * self.length) as number:
            line, at = delinearize(number, (self.lines, self.length))
            at = e.symbol(at, "at", 0, self.length - 1)
            p, j, q = delinearize(at, (each // done, radix, done))
            p, j = e.symbol(p, "p", 0, each // done - 1), e.symbol(j, "j", 0, radix - 1)
            # The power of the root: j (p s + k N / r), modulo N.
            power = e.scope.variable(INT, "power", as_expr(j) * (p * done))
            total = e.scope.variable(self.complex, "total", Make(self.complex, ()))
            with e.counting(0, radix, "k") as k:
                x = e.scope.declare(
                    self.complex, buffers[0][line, q + p * done + k * each], "element"
                )
                root = e.scope.declare(self.complex, roots[power], "root")
                self._add(total, x, root)
                e.scope.set(power, j * each, "+")
                e.scope.when(power >= self.length).set(power, self.length, "-")
            e.scope.set(buffers[1][line, at], total)

    def _write(self, target: Pointee, buffer: Array, first: Index, axis: AxisTransform) -> None:
        e = self.f.elements
        extent = axis.written if axis.rows == 1 else self.length
        with self._place(first, extent) as (line, at, every, tests), e.when(*tests):
            value = e.scope.variable(self.complex, "element", buffer[line, at])
            is_real = axis.kind == "IRFFT" and axis.columns == 1
            if axis.is_inverse and self.length > 1:
                e.scope.set(self._re(value), self.length, "/")
                if not is_real:
                    e.scope.set(self._im(value), self.length, "/")
            part = self._re(value) if is_real else value
            number = self._line_number(every)
            if axis.columns > 1:
                self._turn(value, number, at)
            if axis.rows > 1:
                self._write_column(target, part, number, at)
                return
            address = self._address(number, at, axis.written)
            e.scope.set(target.memory[address], part)

    def _turn(self, value: Var, number: Index, at: Index) -> None:
        """Between the halves of a long line: times the root of the element's row and column."""
        e, axis = self.f.elements, self.axis
        whole = self.length * axis.columns
        _, column, _ = delinearize(number, (axis.outer, axis.columns, axis.inner // axis.columns))
        at, column = (
            e.symbol(at, "at", 0, self.length - 1),
            e.symbol(column, "column", 0, axis.columns - 1),
        )
        power = e.scope.declare(INT, as_expr(at) * column, "power")
        e.scope.set(value, self._product(value, self._root(power, whole)))

    def _write_column(self, target: Pointee, value: Expr, number: Index, at: Index) -> None:
        """The second half of a long line: results of a row go down a column."""
        e, axis = self.f.elements, self.axis
        whole, row, inner = delinearize(number, (axis.outer // axis.rows, axis.rows, axis.inner))
        place = e.symbol(at * axis.rows + row, "place", 0, self.length * axis.rows - 1)
        address = whole * (axis.written * axis.inner) + place * axis.inner + inner
        with e.when(*below(place, axis.written)) as block:
            block.set(target.memory[address], value)


EMITTERS = {"fft-shared": emit}
