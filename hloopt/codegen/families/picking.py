"""The first elements of rows in their order: ``topk`` by the threads of a row.

An element's key is its bits in their total order, above its place from the end of the row, so that no two are
equal, and of equal elements the first has the larger one.  Each thread sorts its keys.  Then, as often as
elements are wanted, the threads find the largest of their first keys, and whose it was goes on to its next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

from hloopt.analysis.index import Index, Indices, delinearize
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import Emission, ValuePlace
from hloopt.codegen.families.folding import ThreadFold, begin
from hloopt.codegen.scalars import literal
from hloopt.codegen.scalars.forms import code, of_code
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, build, edit
from hloopt.kernel_ir.expressions import Array, Expr, Select, as_expr, eq
from hloopt.kernel_ir.types import BOOL, FLOAT, INT, UINT, ULONG
from hloopt.kernels.families.sweeps import WARP
from hloopt.types import DType, array, dtype

__all__ = ["Picking", "network"]

_KEY = dtype("u64")
_LAST = 0xFFFFFFFE
"""The lower half of the first place's key; that of the last place is not 0 either."""


class Picking:
    """A ``topk`` of the row that some threads of a block have."""

    def __init__(self, f: FunctionWriter, topk: Instruction, slots: int) -> None:
        """``slots`` elements of a row are a thread's at most."""
        self.f = f
        self.topk = topk
        self.count: int = topk.attributes["k"]
        self.largest = bool(topk.attributes.get("largest", True))
        self.kind = topk.operands[0].array.dtype
        e = f.elements
        self.keys = e.scope.array(ULONG, (slots,), f"{topk.name}_keys")
        with e.counting(0, slots, "slot", unroll=0) as slot:
            e.scope.set(self.keys[slot], _none())

    def take(self, slot: Index, position: Index, place: Index) -> None:
        """Compute the element at a position, the one at ``place`` of its row, and keep its key."""
        e, source = self.f.elements, self.topk.operands[0]
        value = e.value(source, delinearize(position, source.array.dims))
        high = _order(e, value, self.kind).cast(UINT) ^ literal(1 << 31, dtype("u32"))
        if not self.largest:
            high = ~high
        low = literal(_LAST, dtype("u32")) - as_expr(place).cast(UINT)
        e.scope.set(self.keys[slot], high.cast(ULONG) << 32 | low.cast(ULONG))

    def pick(self, exchange: Callable[[Sequence[ThreadFold]], list[ThreadFold]]) -> None:
        """Find them; from here on the elements of the ``topk`` are known.

        ``exchange`` folds the accumulators of all threads of the row.
        """
        f, e = self.f, self.f.elements
        rows, threads = f.tile["rows"], f.tile["threads"]
        used = self._sort()
        picked = f.shared(ULONG, (rows, self.count), f"{self.topk.name}_picked")
        row = f.thread() // threads
        with e.counting(0, self.count, "pick") as pick:
            (whole,) = exchange([begin(e, _largest_key(), [self.keys[0]])])
            (largest,) = whole.names
            with e.when(eq(self.keys[0], largest)) as own:
                own.set(picked[row, pick], largest)
                for slot in range(used):
                    own.set(self.keys[slot], self.keys[slot + 1] if slot + 1 < used else _none())
            if threads > WARP:
                # Some threads may still read what the next exchange overwrites.
                f.barrier()
        if threads <= WARP:
            f.barrier()
        for leaf in range(2):
            place = _Picked(picked, row, self.kind, self.largest, leaf)
            e.places[e.frame, self.topk, leaf] = place

    def _sort(self) -> int:
        """Sort the thread's keys, the largest first; how many of them may be wanted."""
        scope = self.f.elements.scope
        (slots,) = self.keys.dims
        for before, behind in network(slots):
            first = scope.declare(ULONG, self.keys[before], "first")
            second = scope.declare(ULONG, self.keys[behind], "second")
            swap = scope.declare(BOOL, first < second, "swap")
            scope.set(self.keys[before], Select.of(swap, second, first))
            scope.set(self.keys[behind], Select.of(swap, first, second))
        return min(slots, self.count)


@dataclass(frozen=True)
class _Picked(ValuePlace):
    """The values (leaf 0) or places (leaf 1) of the thread's row, by the keys in shared memory."""

    memory: Array
    row: Index
    kind: DType
    largest: bool
    leaf: int

    def element(self, e: Elements, index: Indices) -> Emission:
        """Of the key at the last of the indices."""
        yield from ()
        key = e.declare(_KEY, self.memory[self.row, index[-1]], "key")
        if self.leaf:
            place = literal(_LAST, dtype("u32")) - key.cast(UINT)
            return e.declare(dtype("s32"), place.cast(INT), "place")
        high = (key >> 32).cast(UINT)
        if not self.largest:
            high = ~high
        order = (high ^ literal(1 << 31, dtype("u32"))).cast(INT)
        return e.declare(self.kind, _of_order(e, order, self.kind), "picked")


def network(count: int) -> Iterator[tuple[int, int]]:
    """Batcher's odd-even merge sort: the pairs of places to compare, in order; the first is that in front.

    K. E. Batcher, "Sorting networks and their applications", AFIPS 1968; D. E. Knuth, "The Art of Computer
    Programming", volume 3, 5.2.2, algorithm M.
    """
    size = 1
    while size < count:
        step = size
        while step:
            for start in range(step % size, count - step, 2 * step):
                for at in range(start, min(start + step, count - step)):
                    if at // (2 * size) == (at + step) // (2 * size):
                        yield at, at + step
            step //= 2
        size *= 2


def _order(e: Elements, value: Expr, kind: DType) -> Expr:
    """The number, as an ``int``, that an element has in its order."""
    if kind.name == "f32":
        return e.uses.call("total_order_f32", value, type=INT)
    if kind.is_float:
        return e.uses.call("total_order_16", code(value, kind), type=INT)
    if kind.name == "u32":
        return (value ^ literal(1 << 31, kind)).cast(INT)
    return value.cast(INT)


def _of_order(e: Elements, order: Expr, kind: DType) -> Expr:
    """The element that has such a number."""
    if kind.name == "f32":
        return e.uses.call("of_total_order_f32", order, type=FLOAT)
    if kind.is_float:
        return of_code(e.uses.call("of_total_order_16", order, type=UINT), kind, e.uses)
    if kind.name == "u32":
        return order.cast(UINT) ^ literal(1 << 31, kind)
    return order.cast(e.uses.type(kind))


def _none() -> Expr:
    """The key of no element: smaller than all others."""
    return literal(0, _KEY)


@cache
def _largest_key() -> Instruction:
    """A reduction of keys, in no module: threads exchange as those of any other do."""
    region = Computation("largest_key")
    scalar = array(_KEY)
    parameters = tuple(
        edit.append(
            region,
            Instruction(f"key_{number}", "parameter", scalar, (), {"parameter_number": number}),
        )
        for number in range(2)
    )
    region.root = build.make(region, "maximum", parameters)
    keys = Instruction("keys", "parameter", scalar, (), {"parameter_number": 0})
    none = Instruction("none", "parameter", scalar, (), {"parameter_number": 1})
    return Instruction("largest", "reduce", scalar, (keys, none), {"to_apply": region})
