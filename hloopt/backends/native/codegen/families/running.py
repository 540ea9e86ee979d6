"""Running reductions: lines side by side as lanes, or one line by pieces that run at once."""

from __future__ import annotations

from hloopt.analysis.index import Index, delinearize
from hloopt.backends.native.codegen.accumulators import counter, declared, lanes_of
from hloopt.backends.native.codegen.nest import least, tasks
from hloopt.backends.native.kernels.running import CHAINS, STEPS, columns_of
from hloopt.codegen.families.folding import identity
from hloopt.codegen.reducer import ReducerCode
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Array, Expr, Var
from hloopt.kernels.families.running_reduction import RunningLines, running_lines
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.targets.target import HOST

__all__ = ["EMITTERS"]


def _emit(f: FunctionWriter) -> None:
    lines = running_lines(f.region)
    columns = columns_of(Site(f.region, HOST, Limits()))
    across = -(-lines.inner // columns)
    writer = _Running(f, lines, ReducerCode.of(lines.hero))
    with tasks(f, "group", f.tile["groups"], lines.outer * across) as group:
        if lines.inner == 1:
            writer.by_pieces(group * lines.length)
        else:
            writer.side_by_side(group, across, columns)


@dataclass(frozen=True)
class _Running:
    """Writing a group of lines."""

    f: FunctionWriter
    lines: RunningLines
    reducer: ReducerCode

    @property
    def start(self) -> Expr:
        """What accumulators begin with."""
        found = identity(self.reducer)
        assert found is not None, "the reducer has an identity"
        return found

    def element(self, step: Index) -> Index:
        """The place in its line of what comes after ``step`` others."""
        return Index(self.lines.length - 1) - step if self.lines.reverse else step

    def side_by_side(self, group: Index, across: int, columns: int) -> None:
        """A group of neighbouring lines; where groups do not fit, the last one is moved back."""
        f, lines = self.f, self.lines
        first = group % across * columns
        if lines.inner % columns:
            most = lines.inner - columns
            first = f.elements.symbol(least(first, most), "column", 0, most)
        begin = group // across * (lines.length * lines.inner) + first
        running = declared(f, lines.hero, columns, "running")
        with lanes_of(f, columns) as lane:
            f.elements.scope.set(running.at(lane)[0], self.start)
        with (
            counter(f, Index(0), Index(lines.length), lines.length) as step,
            lanes_of(f, columns) as lane,
        ):
            place = begin + self.element(step) * lines.inner + lane
            (own,) = running.at(lane)
            found = self.combined(own, self.value(place))
            f.elements.scope.set(own, found)
            self.store(place, own)

    def by_pieces(self, begin: Index) -> None:
        """One line whose elements are neighbours, block by block."""
        f, length = self.f, self.lines.length
        block = CHAINS * STEPS
        kind = self.reducer.accumulators[0]
        carry = f.elements.variable(kind, "carry", self.start)
        part = f.elements.scope.array(f.uses.storage(kind), (min(block, length),), "part", align=64)
        whole, rest = divmod(length, block)
        if whole:
            with counter(f, Index(0), Index(whole), whole, "block") as number:
                self.block(begin, number * block, (CHAINS, STEPS), carry, part)
        done = whole * block
        for chains, steps in ((CHAINS, rest // CHAINS), (1, rest % CHAINS)):
            if steps:
                self.block(begin, Index(done), (chains, steps), carry, part)
                done += chains * steps

    def block(
        self, begin: Index, first: Index, form: tuple[int, int], carry: Var, part: Array
    ) -> None:
        """Some elements: read as vectors, run by chains, and written as vectors with what precedes them."""
        f, e = self.f, self.f.elements
        chains, steps = form
        with lanes_of(f, chains * steps) as lane:
            value = self.value(begin + self.element(first + lane))
            e.scope.set(part[lane], value)
        if chains > 1:
            self.run(part, chains, steps)
        ends = self.ends(carry, part, chains, steps)
        if chains == 1:
            # The carry goes through all of them.
            with counter(f, Index(0), Index(steps), steps) as step:
                e.scope.set(carry, self.combined(carry, part[step]))
                e.scope.set(part[step], carry)
        for chain, before in enumerate(ends):
            with lanes_of(f, steps) as lane:
                at = lane + chain * steps
                found = self.combined(before, part[at]) if chains > 1 else part[at]
                self.store(begin + self.element(first + at), found)

    def run(self, part: Array, chains: int, steps: int) -> None:
        """Fold each piece by itself; the pieces take turns."""
        f, e = self.f, self.f.elements
        kind = self.reducer.accumulators[0]
        owns = [e.variable(kind, "own", self.start) for _ in range(chains)]
        with counter(f, Index(0), Index(steps), steps) as step:
            for chain, own in enumerate(owns):
                at = step + chain * steps
                e.scope.set(own, self.combined(own, part[at]))
                e.scope.set(part[at], own)

    def ends(self, carry: Var, part: Array, chains: int, steps: int) -> list[Expr]:
        """What precedes each piece; the carry has all of them then."""
        e = self.f.elements
        if chains == 1:
            return [carry]
        found: list[Expr] = []
        for chain in range(chains):
            found.append(e.declare(self.reducer.accumulators[0], carry, "before"))
            end = part[Index((chain + 1) * steps - 1)]
            e.scope.set(carry, self.combined(carry, end))
        return found

    def value(self, place: Index) -> Expr:
        """An element as it is accumulated."""
        (source,) = self.lines.hero.fold_inputs
        e = self.f.elements
        (wide,) = self.reducer.lift(e, [e.value(source, delinearize(place, source.array.dims))])
        return wide

    def combined(self, left: Expr, right: Expr) -> Expr:
        """Two accumulators as one."""
        (found,) = self.reducer.combined(self.f.elements, [left], [right])
        return found

    def store(self, place: Index, running: Expr) -> None:
        """The init value folded in, and the results computed from that."""
        f, e, hero = self.f, self.f.elements, self.lines.hero
        inits = self.reducer.lift(e, [e.value(init) for init in hero.fold_inits])
        total = e.declare(self.reducer.accumulators[0], self.combined(inits[0], running), "total")
        (value,) = self.reducer.lower(e, [total])
        e.remember(hero, delinearize(place, hero.array.dims), 0, value)
        values = []
        for result in f.region.results:
            index = delinearize(place, result.shape.dims)
            values.append(e.value(result.instruction, index, result.leaf))
        for number, found in enumerate(values):
            f.store(f.result(number), place, found)


EMITTERS = {"native-running": _emit}
