"""A block of the attention kernel: where its threads are, tiles in shared memory, values at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

from hloopt.analysis.attention import Attention, TiledProduct
from hloopt.analysis.attention.axes import Along, AxisNumber
from hloopt.analysis.index import Index, Indices, delinearize, linearize
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import At, Emission, ValuePlace
from hloopt.codegen.families.attention_products import (
    EIGHT,
    F32,
    HALVES,
    LaneProducts,
    MatrixProducts,
    Tf32Products,
    TileProducts,
    WarpLanes,
)
from hloopt.codegen.scalars import convert, literal, scalar_op
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Array, Expr, Select, as_expr, both
from hloopt.kernels.families.attention import TF32, WARP_ROWS, masking_in
from hloopt.kernels.families.sweeps import WARP

__all__ = ["AttentionBlock"]


class _Bound(ValuePlace):
    """A value of which a lane has one element at a time, whatever its index."""

    def __init__(self) -> None:
        self.now: Expr | None = None

    def holds(self, e: Elements, index: Indices) -> bool:
        return self.now is not None

    def element(self, e: Elements, index: Indices) -> Emission:
        assert self.now is not None, "it holds one"
        return self.now
        yield


class _Inverted(_Bound):
    """A division by a value a row, as two products: its inverse alone may overflow where it is small."""

    def __init__(self, numerator: Instruction) -> None:
        super().__init__()
        self.numerator = numerator
        self.scale: Expr | None = None

    def element(self, e: Elements, index: Indices) -> Emission:
        assert self.now is not None, "it holds one"
        assert self.scale is not None, "with it"
        value = yield At(self.numerator, index)
        first = e.declare(F32, value * self.now, "share")
        return e.declare(F32, first * self.scale, "quotient")


@dataclass
class AttentionBlock:
    """``height`` rows of one batch, against all columns in steps of ``width``.

    own    rows of each product of scores, in shared memory
    found  values a row that earlier sweeps left, of both rows of a lane
    sums   a lane's sums of each context
    inverted  divisions by what is known of a lane's rows, with the two factors of each row
    """

    f: FunctionWriter
    form: Attention
    bound: dict[Instruction, _Bound] = field(default_factory=dict)
    own: dict[Instruction, Array] = field(default_factory=dict)
    found: dict[Instruction, list[Expr]] = field(default_factory=dict)
    sums: dict[Instruction, Array] = field(default_factory=dict)
    inverted: dict[Instruction, list[tuple[Expr, Expr]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        f, form = self.f, self.form
        self.e = f.elements
        self.height, self.width = f.tile["rows"], f.tile["columns"]
        self.threads = f.launch.block[0]
        self.columns = form.count(form.columns)
        self._place()
        kinds: dict[int, type[TileProducts]] = {0: LaneProducts, TF32: Tf32Products}
        kind = kinds.get(f.tile["units"], MatrixProducts)
        self.products = kind(f, self.lanes, self.width)
        depths = [one.contraction.size("k") for one in form.scores]
        inner = [one.contraction.size("n") for one in form.contexts]
        for product, depth in zip(form.scores, depths, strict=True):
            self.own[product.hero] = self._shared(self.height, depth, f"{product.hero.name}_rows")
        widest = max(depths + inner)
        count = 2 if f.tile["prefetch"] else 1
        self.tiles = [self._shared(self.width, widest, "tile") for _ in range(count)]
        if inner:
            self.weights = self.products.weights("weights")

    def _shared(self, lines: int, depth: int, hint: str) -> Array:
        kind = self.products.kind(self.form.scores[0])
        elements = lines * self.products.row_length(depth)
        return self.f.shared_in_launch(self.f.uses.type(kind), elements, kind.bits // 8, hint)

    def _place(self) -> None:
        """Which rows of which batch this block has, and which of them, and which columns, this lane."""
        f, e, form = self.f, self.e, self.form
        batch, rows = form.count(form.batch), form.count(form.rows)
        blocks = -(-rows // self.height)
        number, block = delinearize(f.block(), (batch, blocks))
        if self._last_has_most():
            block = Index(blocks - 1) - block
        self.at = self.axes(form.batch, e.symbol(number, "batch", 0, batch - 1))
        last = (blocks - 1) * self.height
        self.first = e.symbol(block * self.height, "first_row", 0, last)
        lane = e.symbol(f.thread() % WARP, "lane", 0, WARP - 1)
        warp = e.symbol(f.thread() // WARP, "warp", 0, self.threads // WARP - 1)
        g, self.t = e.symbol(lane // 4, "g", 0, 7), e.symbol(lane % 4, "t", 0, 3)
        base = warp * WARP_ROWS
        own = e.symbol(base + g, "lane_row", 0, self.height - WARP_ROWS + 7)
        self.lanes = WarpLanes(lane, g, self.t, base, own)
        self.rows: list[Index] = []
        self.inside: list[Index] = []
        for half in range(HALVES):
            high = last + self.height - 1
            row = e.symbol(self.first + self.lanes.row + half * EIGHT, "row", 0, high)
            self.rows.append(row)
            self.inside.append(self.clamped(row, rows, "inside"))

    def _last_has_most(self) -> bool:
        """Whether the last rows have fewer tiles left out than the first: what takes longest begins first."""
        masking = masking_in(self.form, self.f.tile)
        if masking is None:
            return False
        left_out = masking.table(self.height, self.width).sum(axis=1)
        return bool(left_out[0] > left_out[-1])

    def clamped(self, at: Index, size: int, hint: str) -> Index:
        """The same place, or the last one there is."""
        if at.high < size:
            return at
        choice = Select.of(as_expr(at) < size, at, size - 1)
        return self.e.symbol(choice, hint, 0, size - 1)

    def axes(self, axes: Sequence[AxisNumber], count: Index) -> dict[AxisNumber, Index]:
        """Where each of some axes is, that are counted together."""
        sizes = [self.form.sizes[axis] for axis in axes]
        return dict(zip(axes, delinearize(count, sizes), strict=True))

    def invert(self) -> None:
        """Invert, once a row, what is known by now and scores are divided by."""
        e, form = self.e, self.form
        late = form.late_factors()
        for division, factor in form.row_divisions().items():
            if division in self.inverted or factor in late or not self._is_known(factor):
                continue
            divisor = division.operands[1]
            pairs: list[tuple[Expr, Expr]] = []
            with self.rows_bound() as bind:
                for half in range(HALVES):
                    bind(half)
                    zeros = self.axes(form.columns, Index(0))
                    known = {**self.row_axes(half), **zeros}
                    value = e.value(divisor, self.index(form.along[division], known))
                    small = as_expr(value) < literal(2.0**-63, F32)
                    small = both([small, as_expr(value) > literal(-(2.0**-63), F32)])
                    choice = Select.of(small, literal(2.0**64, F32), literal(1, F32))
                    scale = e.declare(F32, choice, "scale")
                    inverse = scalar_op(
                        "divide", F32, [literal(1, F32), value * scale], self.f.uses
                    )
                    pairs.append((e.declare(F32, inverse, "inverse"), scale))
            self.inverted[division] = pairs
            place = _Inverted(division.operands[0])
            self.bound[division] = self.e.places[self.e.frame, division, 0] = place

    def _is_known(self, value: Instruction) -> bool:
        """Whether all reductions that a value a row is computed from have been made."""
        pending, seen = [value], {value}
        while pending:
            one = pending.pop()
            if one in self.found or one not in self.form.along:
                continue
            if one.opcode in ("reduce", "dot"):
                return False
            new = [part for part in one.operands if part not in seen]
            seen.update(new)
            pending += new
        return True

    def bind_rows(self, half: int, others: Mapping[Instruction, list[Expr]] | None = None) -> None:
        """Have what is known of a lane's row at hand."""
        for hero, values in {**self.found, **(others or {})}.items():
            self.place(hero).now = values[half]
        for division, pairs in self.inverted.items():
            place = self.bound[division]
            assert isinstance(place, _Inverted), "of a division"
            place.now, place.scale = pairs[half]

    def unbind(self) -> None:
        """Forget the elements at hand."""
        for place in self.bound.values():
            place.now = None

    def place(self, instruction: Instruction) -> _Bound:
        """Where a value's current element is kept."""
        found = self.bound.get(instruction)
        if found is None:
            found = self.bound[instruction] = _Bound()
            self.e.places[self.e.frame, instruction, 0] = found
        return found

    @contextmanager
    def rows_bound(self) -> Iterator[Callable[[int], None]]:
        """What was found of rows, known in the block: the function given binds those of a lane's row."""
        yield self.bind_rows
        self.unbind()

    def row_axes(self, half: int) -> dict[AxisNumber, Index]:
        """The batch, and a lane's row."""
        return {**self.at, **self.axes(self.form.rows, self.inside[half])}

    def index(self, along: Along, known: Mapping[AxisNumber, Index]) -> Indices:
        """The element of a value at a place."""
        found = []
        for part in along:
            assert part is not None, "only values with a place for every dimension are asked for"
            sizes = [self.form.sizes[axis] for axis in part]
            found.append(linearize([known[axis] for axis in part], sizes))
        return tuple(found)

    def rounded(self, product: TiledProduct, total: Expr) -> Expr:
        """A sum as an element of the dot's result: rounded to the type of the products first."""
        e, uses = self.e, self.f.uses
        kind, result = product.contraction.kind, product.contraction.result_dtype
        if kind is not F32:
            total = convert(total, F32, kind, uses)
            if kind is not result:
                total = e.declare(kind, total, "rounded")
        return e.declare(result, convert(total, kind, result, uses), product.hero.name)
