"""TileProducts of tiles in the attention kernel: by matrix units, or each lane its own elements.

Both leave a lane's elements where a matrix unit has them: ``sums[j, 2 half + pair]`` is of row ``g + 8 half``,
column ``8 j + 2 t + pair``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from hloopt.analysis.attention import TiledProduct, matrix_kind
from hloopt.analysis.index import Index
from hloopt.codegen.elements import Elements
from hloopt.codegen.scalars import convert, literal
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import (
    Array,
    Binary,
    Call,
    Element,
    Expr,
    Make,
    Number,
    Select,
    eq,
)
from hloopt.kernel_ir.statements import LoadMatrices, MultiplyMatrices
from hloopt.kernel_ir.types import FLOAT, INT, UINT, VOID, vector
from hloopt.kernels.families.attention import WARP_ROWS, padded_row
from hloopt.types import DType, dtype

__all__ = [
    "EIGHT",
    "F32",
    "HALVES",
    "PAIR",
    "LaneProducts",
    "MatrixProducts",
    "Tf32Products",
    "TileProducts",
    "WarpLanes",
    "stored_factor",
]

HALVES = 2
"""Rows of a lane."""
PAIR = 2
"""Neighbouring columns of a lane."""
EIGHT = 8
"""Columns of a step of a matrix unit."""
F32 = dtype("f32")


@dataclass(frozen=True)
class WarpLanes:
    """Where a thread is: ``row`` is the first of its rows in the block, ``base`` the first of its warp."""

    lane: Index
    g: Index
    t: Index
    base: Index
    row: Index


@dataclass
class TileProducts(ABC):
    """Multiplies tiles in shared memory: ``width`` columns at a time."""

    f: FunctionWriter
    lanes: WarpLanes
    width: int
    rounds_copies: ClassVar[bool] = False
    """Whether what was copied asynchronously has to be rounded in shared memory."""

    @property
    def e(self) -> Elements:
        """What computes elements."""
        return self.f.elements

    @abstractmethod
    def kind(self, product: TiledProduct) -> DType:
        """The type of elements in shared memory."""

    def rounds(self, product: TiledProduct, kind: DType) -> bool:
        """Whether weights are rounded to ``kind`` when they are multiplied."""
        return False

    @abstractmethod
    def row_length(self, depth: int) -> int:
        """Elements from row to row of a tile with so many in a row."""

    @abstractmethod
    def depth(self, depth: int) -> int:
        """How many elements of a row are multiplied: behind the last one there are zeros."""

    @abstractmethod
    def weights(self, hint: str) -> Array:
        """Where a lane's weights are kept until they are multiplied."""

    @abstractmethod
    def weight(self, array: Array, j: Index, half: int, pair: int) -> Element:
        """The place of one of them."""

    @abstractmethod
    def scores(self, product: TiledProduct, own: Array, tile: Array, sums: Array) -> None:
        """Add rows times columns to a lane's sums, along k."""

    @abstractmethod
    def context(self, product: TiledProduct, weights: Array, tile: Array, sums: Array) -> None:
        """Add weights times values to a lane's sums, along the columns."""

    def cleared(self, eights: int, hint: str) -> Array:
        """Sums of nothing."""
        sums = self.e.scope.array(FLOAT, (eights, HALVES * PAIR), hint)
        self.every(sums, lambda _j, _at: literal(0, F32))
        return sums

    def every(self, sums: Array, value: Callable[[Index, int], Expr]) -> None:
        """Set each of a lane's sums."""
        with self.e.counting(0, sums.dims[0], "j", type=INT, unroll=0) as j:
            for at in range(HALVES * PAIR):
                self.e.scope.set(sums[j, at], value(j, at))

    def inner_eights(self, product: TiledProduct) -> int:
        """Eights of columns that a context has."""
        return self.depth(product.contraction.size("n")) // EIGHT

    def stored(self, value: Expr) -> Expr:
        """An element as products take it from shared memory."""
        return value

    def put(self, tile: Array, at: Index, values: Sequence[Expr]) -> None:
        """Write neighbours to shared memory."""
        for lane, value in enumerate(values):
            self.e.scope.set(tile[at + lane], value)


class LaneProducts(TileProducts):
    """Each lane multiplies and adds in f32: what matrix units do not take, or devices without them."""

    def kind(self, product: TiledProduct) -> DType:
        return F32

    def row_length(self, depth: int) -> int:
        return padded_row(depth, 0)

    def depth(self, depth: int) -> int:
        return -(-depth // EIGHT) * EIGHT

    def weights(self, hint: str) -> Array:
        rows = self.f.tile["rows"]
        return self.f.shared_in_launch(FLOAT, rows * self.row_length(self.width), 4, hint)

    def weight(self, array: Array, j: Index, half: int, pair: int) -> Element:
        row = (self.lanes.row + EIGHT * half) * self.row_length(self.width)
        return array[row + j * EIGHT + self.lanes.t * PAIR + pair]

    def scores(self, product: TiledProduct, own: Array, tile: Array, sums: Array) -> None:
        depth = product.contraction.size("k")
        length = self.row_length(depth)
        with self.e.counting(0, depth, "k", type=INT, unroll=1) as k:
            left = self._rows(own, length, k)
            with self.e.counting(0, sums.dims[0], "j", type=INT, unroll=0) as j:
                for pair in range(PAIR):
                    column = j * EIGHT + self.lanes.t * PAIR + pair
                    self._add(sums, j, pair, left, tile[column * length + k])

    def context(self, product: TiledProduct, weights: Array, tile: Array, sums: Array) -> None:
        # A warp reads what its own lanes have written.
        self.e.scope.barrier("warp")
        length = self.row_length(product.contraction.size("n"))
        with self.e.counting(0, self.width, "k", type=INT, unroll=1) as k:
            left = self._rows(weights, self.row_length(self.width), k)
            with self.e.counting(0, sums.dims[0], "j", type=INT, unroll=0) as j:
                for pair in range(PAIR):
                    column = j * EIGHT + self.lanes.t * PAIR + pair
                    self._add(sums, j, pair, left, tile[k * length + column])
        # The next weights are written where these have been read.
        self.e.scope.barrier("warp")

    def _rows(self, tile: Array, length: int, k: Index) -> list[Expr]:
        return [
            self.e.scope.declare(FLOAT, tile[(self.lanes.row + EIGHT * half) * length + k], "left")
            for half in range(HALVES)
        ]

    def _add(self, sums: Array, j: Index, pair: int, left: Sequence[Expr], right: Expr) -> None:
        factor = self.e.scope.declare(FLOAT, right, "right")
        for half in range(HALVES):
            self.e.scope.set(sums[j, half * PAIR + pair], left[half] * factor, "+")


class MatrixProducts(TileProducts):
    """A warp multiplies 16 rows by 8 columns, 16 deep, in one step, or in two of half the depth.

    Rows of a tile lie an odd number of 16 bytes apart, so that eight of them never meet in a bank.
    """

    deep: ClassVar[int] = 16
    """Of what is read of a row at once: two chunks of 16 bytes."""

    def kind(self, product: TiledProduct) -> DType:
        return dtype(matrix_kind(product.contraction)[0])

    def rounds(self, product: TiledProduct, kind: DType) -> bool:
        name, terms = matrix_kind(product.contraction)
        return terms == 1 and name == kind.name

    def row_length(self, depth: int) -> int:
        return padded_row(depth, self.f.tile["units"])

    def depth(self, depth: int) -> int:
        return -(-depth // self.deep) * self.deep

    def weights(self, hint: str) -> Array:
        return self.e.scope.array(FLOAT, (self.width // EIGHT, HALVES * PAIR), hint)

    def weight(self, array: Array, j: Index, half: int, pair: int) -> Element:
        return array[j, half * PAIR + pair]

    def put(self, tile: Array, at: Index, values: Sequence[Expr]) -> None:
        width = min(len(values), self.deep // 2)
        if width == 1 or not at.is_multiple(width):
            super().put(tile, at, values)
            return
        type = vector(tile.element, width)
        for start in range(0, len(values), width):
            whole = self.e.scope.declare(
                type, Make(type, tuple(values[start : start + width])), "run"
            )
            self.e.scope.do(
                self.f.uses.call("store_vector", tile.address(at + start), whole, type=VOID)
            )

    def scores(self, product: TiledProduct, own: Array, tile: Array, sums: Array) -> None:
        depth = product.contraction.size("k")
        length, lane = self.row_length(depth), self.lanes.lane
        deep, chunk = self.deep, self.deep // 2
        with self.e.counting(0, self.depth(depth) // deep, "k", type=INT, unroll=1) as k:
            row = self.lanes.base + lane % WARP_ROWS
            left = self._loaded(own, row * length + k * deep + lane // WARP_ROWS * chunk, "left")
            with self.e.counting(0, sums.dims[0] // 2, "j", type=INT, unroll=0) as j:
                column = j * WARP_ROWS + lane // WARP_ROWS * EIGHT + lane % EIGHT
                place = k * deep + lane // EIGHT % 2 * chunk
                right = self._loaded(tile, column * length + place, "right")
                self._multiply(product, sums, j, [left[at] for at in range(4)], right)

    def context(self, product: TiledProduct, weights: Array, tile: Array, sums: Array) -> None:
        lane = self.lanes.lane
        length = self.row_length(product.contraction.size("n"))
        kind, terms = matrix_kind(product.contraction)
        for k in range(self.width // self.deep):
            places = [
                weights[2 * k + at // 2, at % 2 * PAIR + pair]
                for at in range(4)
                for pair in range(PAIR)
            ]
            lefts = self._packed(places, kind, terms)
            with self.e.counting(0, sums.dims[0] // 2, "j", type=INT, unroll=0) as j:
                row = lane % self.deep + k * self.deep
                column = j * self.deep + lane // self.deep * EIGHT
                right = self._loaded(tile, row * length + column, "right", is_transposed=True)
                for left in lefts:
                    self._multiply(product, sums, j, left, right)

    def _loaded(self, tile: Array, at: Index, hint: str, *, is_transposed: bool = False) -> Array:
        registers = self.e.scope.array(UINT, (4,), hint)
        every = tuple(registers[number] for number in range(4))
        self.e.scope.add(LoadMatrices(every, tile.address(at), is_transposed))
        return registers

    def _multiply(
        self, product: TiledProduct, sums: Array, j: Index, left: Sequence[Expr], right: Array
    ) -> None:
        kind, halves = self.kind(product).name, self.f.tile["units"]
        for side in range(2):
            targets = tuple(sums[j * 2 + side, at] for at in range(HALVES * PAIR))
            pair = (right[2 * side], right[2 * side + 1])
            if halves == 1:
                step = MultiplyMatrices(f"m16n8k16.{kind}", targets, tuple(left), pair)
                self.e.scope.add(step)
                continue
            for half in range(halves):
                own = tuple(left[2 * half : 2 * half + 2])
                step = MultiplyMatrices(f"m16n8k8.{kind}", targets, own, (pair[half],))
                self.e.scope.add(step)

    def _packed(self, places: Sequence[Expr], kind: str, terms: int) -> list[list[Expr]]:
        """Registers of the weights, the high parts first where they are of several terms."""
        rest = list(places)
        found: list[list[Expr]] = []
        for term in range(terms):
            last = term + 1 == terms
            parts = rest if last else [self._cut(one) for one in rest]
            found.append(
                [
                    self.e.scope.declare(
                        UINT,
                        self.f.uses.call(
                            f"pack_{kind}", parts[2 * at], parts[2 * at + 1], type=UINT
                        ),
                        "left",
                    )
                    for at in range(len(parts) // 2)
                ]
            )
            if not last:
                rest = [
                    self.e.scope.declare(
                        FLOAT, Select.of(eq(one, part), literal(0, F32), one - part), "rest"
                    )
                    for one, part in zip(rest, parts, strict=True)
                ]
        return found

    def _cut(self, value: Expr) -> Expr:
        """The upper half of an f32's bits: a bf16 no greater in size."""
        bits = _bits(value)
        upper = Binary("&", bits, Number("0xffff0000u", UINT, 0xFFFF0000), UINT)
        return self.e.scope.declare(FLOAT, Call("__uint_as_float", (upper,), FLOAT), "upper")


class Tf32Products(MatrixProducts):
    """The same of f32, 8 deep: factors are rounded in shared memory, once for all warps.

    Which of the elements along k a lane has does not matter as long as both operands have the same.  Of weights
    it has neighbours, so it reads two rows of the values that follow each other.
    """

    deep: ClassVar[int] = 8
    rounds_copies: ClassVar[bool] = True

    def kind(self, product: TiledProduct) -> DType:
        return F32

    def rounds(self, product: TiledProduct, kind: DType) -> bool:
        return False

    def context(self, product: TiledProduct, weights: Array, tile: Array, sums: Array) -> None:
        length = self.row_length(product.contraction.size("n"))
        for k in range(self.width // self.deep):
            left = [
                self._rounded(weights[k, half * PAIR + pair], "left")
                for pair in range(PAIR)
                for half in range(HALVES)
            ]
            with self.e.counting(0, sums.dims[0], "j", type=INT, unroll=0) as j:
                row, column = self.lanes.t * PAIR + k * self.deep, j * EIGHT + self.lanes.g
                right = [
                    self.e.scope.declare(UINT, _bits(tile[(row + pair) * length + column]), "right")
                    for pair in range(PAIR)
                ]
                self._step(sums, j, left, right)

    def stored(self, value: Expr) -> Expr:
        return Call("__uint_as_float", (self._rounded(value, "rounded"),), FLOAT)

    def _multiply(
        self, product: TiledProduct, sums: Array, j: Index, left: Sequence[Expr], right: Array
    ) -> None:
        for side in range(2):
            self._step(sums, j * 2 + side, left, (right[2 * side], right[2 * side + 1]))

    def _step(self, sums: Array, j: Index, left: Sequence[Expr], right: Sequence[Expr]) -> None:
        targets = tuple(sums[j, at] for at in range(HALVES * PAIR))
        self.e.scope.add(MultiplyMatrices("m16n8k8.tf32", targets, tuple(left), tuple(right)))

    def _rounded(self, value: Expr, hint: str) -> Expr:
        nearest = self.f.uses.call("nearest_tf32", _bits(value), type=UINT)
        return self.e.scope.declare(UINT, nearest, hint)


def _bits(value: Expr) -> Expr:
    return Call("__float_as_uint", (value,), UINT)


def stored_factor(
    e: Elements, value: Expr, source: DType, product: TiledProduct, kind: DType
) -> Expr:
    """An element of an operand as it lies in shared memory: rounded to the type of the products before."""
    middle = product.contraction.kind
    for target in (middle, kind):
        if source is not target:
            value = e.declare(target, convert(value, source, target, e.uses), "factor")
            source = target
    return value
