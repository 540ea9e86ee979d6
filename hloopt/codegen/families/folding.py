"""Accumulators of the reduction kernels: a thread takes elements in, threads exchange what they have.

Where the reducer has an identity, accumulators start with it and every lane takes part.  Elsewhere a flag says
whether an accumulator holds anything yet; lanes without elements are skipped.  The init value is folded in
once, when a result is finished: it need not be an identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from hloopt.analysis.index import Index, delinearize
from hloopt.codegen.elements import Elements
from hloopt.codegen.reducer import ReducerCode
from hloopt.codegen.scalars import literal
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import FALSE, TRUE, Array, Element, Expr, Var, as_expr
from hloopt.kernel_ir.types import BOOL, INT
from hloopt.kernels.families.sweeps import WARP
from hloopt.ops.traits import ASSOCIATIVE, op_table
from hloopt.types import ArrayShape, DType, leaves

__all__ = [
    "ThreadFold",
    "begin",
    "everywhere",
    "finish",
    "finished",
    "identity",
    "keep",
    "merge",
    "reload",
    "shared_tiles",
    "take",
    "tree",
]

_HINTS = op_table(
    {
        "add": "sum",
        "multiply": "product",
        "maximum": "largest",
        "minimum": "least",
        "and": "all",
        "or": "any",
        "xor": "parity",
    },
    ASSOCIATIVE,
)


@dataclass(frozen=True)
class ThreadFold:
    """The accumulators of a reduce in a thread.

    names     variables, one an output
    has       the flag, None where accumulators start with the identity
    """

    hero: Instruction
    reducer: ReducerCode
    names: tuple[Var, ...]
    has: Var | None = None

    @property
    def variables(self) -> tuple[Var, ...]:
        """All that threads exchange."""
        return self.names if self.has is None else (*self.names, self.has)


def identity(reducer: ReducerCode) -> Expr | None:
    """The literal of the reducer's identity, None where none is known.

    -0 is that of a sum of floats: 0 would make -0 of nothing but -0 a +0.
    """
    plain, kind = reducer.plain, reducer.accumulators[0]
    value: complex
    if plain == "add":
        value = complex(-0.0, -0.0) if kind.is_complex else -0.0 if kind.is_float else 0
    elif plain in ("multiply", "maximum", "minimum"):
        # (1, 0) is none of products: infinity times it is NaN.
        if kind.is_complex:
            return None
        value = 1 if plain == "multiply" else _extreme(kind, plain == "maximum")
    elif plain == "and":
        value = True if kind.is_pred else -1
    elif plain in ("or", "xor"):
        value = 0
    else:
        return None
    return literal(value, kind)


def _extreme(kind: DType, is_least: bool) -> float | int | bool:
    if kind.is_pred:
        return not is_least
    if kind.is_integer:
        signed = kind.kind == "signed"
        if is_least:
            return -(1 << (kind.bits - 1)) if signed else 0
        return (1 << (kind.bits - signed)) - 1
    infinity = -np.inf if is_least else np.inf
    if np.isinf(np.asarray(infinity).astype(kind.numpy).astype(np.float64)):
        return infinity
    limits: Any = ml_dtypes.finfo(kind.numpy)  # type: ignore[no-untyped-call]
    return float(limits.min if is_least else limits.max)


def begin(e: Elements, hero: Instruction, values: Sequence[Expr] = ()) -> ThreadFold:
    """Declare accumulators that hold nothing, or ``values`` (the flag's last)."""
    reducer = ReducerCode.of(hero)
    start = identity(reducer)
    hint = _HINTS.get(reducer.plain, "best" if len(reducer.dtypes) > 1 else "folded")
    kinds = reducer.accumulators
    given = values or [*(start or literal(0, kind) for kind in kinds), FALSE]
    names = tuple(e.variable(kind, hint, value) for kind, value in zip(kinds, given, strict=False))
    has = None if start else e.scope.variable(BOOL, "has", given[len(kinds)])
    return ThreadFold(hero, reducer, names, has)


def take(e: Elements, fold: ThreadFold, elements: Sequence[Expr], *, holds: bool = False) -> None:
    """Take in an element of each operand; ``holds`` says that the accumulators hold something for sure."""
    values = fold.reducer.lift(e, elements)
    if holds:
        fold.reducer.assign(e, fold.names, values)
    else:
        merge(e, fold, values)


def merge(e: Elements, fold: ThreadFold, others: Sequence[Expr]) -> None:
    """Take in other accumulators; a flag behind them says whether they hold something, else they do."""
    if fold.has is None:
        fold.reducer.assign(e, fold.names, others)
        return
    count = len(fold.names)
    with e.when(*others[count:]):
        with e.when(fold.has):
            fold.reducer.assign(e, fold.names, others[:count])
        with e.within(e.scope.otherwise()) as first:
            for name, other in zip(fold.names, others, strict=False):
                first.set(name, other)
            first.set(fold.has, TRUE)


def tree(
    e: Elements, folds: Sequence[ThreadFold], distance: int, exchange: str = "shuffle_down"
) -> None:
    """Fold ``2 * distance`` neighbouring lanes into the first of them; all lanes of the warp take part."""
    if distance < 1 or not folds:
        return
    if distance == 1:
        _from_others(e, folds, exchange, as_expr(1))
        return
    loop, at = e.scope.loop(distance, 0, "distance", INT, 2, test=">", change="/=")
    with e.within(loop):
        _from_others(e, folds, exchange, at)


def everywhere(e: Elements, folds: Sequence[ThreadFold], lanes: int, thread: Index) -> None:
    """Fold ``lanes`` neighbouring lanes, a power of two, so that each of them has the result.

    Both sides of an exchange fold the same two values: in the same order, where it could matter.
    """
    plain = [fold for fold in folds if fold.has is None]
    tree(e, plain, lanes // 2, "shuffle_xor")
    others = [fold for fold in folds if fold.has is not None]
    tree(e, others, lanes // 2)
    if lanes > 1:
        head = thread % WARP - thread % lanes if lanes < WARP else 0
        for fold in others:
            for var in fold.variables:
                e.scope.set(var, e.uses.call("shuffle_index", var, head, type=var.type))


def _from_others(e: Elements, folds: Sequence[ThreadFold], exchange: str, distance: Expr) -> None:
    for fold in folds:
        others = [
            e.scope.declare(var.type, e.uses.call(exchange, var, distance, type=var.type), "other")
            for var in fold.variables
        ]
        merge(e, fold, others)


def shared_tiles(
    e: Elements, folds: Sequence[ThreadFold], dims: Sequence[int]
) -> list[list[Array]]:
    """A tile of shared memory for each variable."""
    return [
        [e.scope.array(v.type, dims, f"{v.name}_tile", space="shared") for v in fold.variables]
        for fold in folds
    ]


def keep(e: Elements, fold: ThreadFold, places: Sequence[Element]) -> None:
    """Write accumulators to a place of shared tiles."""
    for var, place in zip(fold.variables, places, strict=True):
        e.scope.set(place, var)


def reload(
    e: Elements, hero: Instruction, places: Sequence[Element], tests: Sequence[Expr] = ()
) -> ThreadFold:
    """Accumulators read from a place of shared tiles; where a test fails they hold nothing."""
    if not tests:
        return begin(e, hero, places)
    fold = begin(e, hero)
    with e.when(*tests) as inner:
        for var, place in zip(fold.variables, places, strict=True):
            inner.set(var, place)
    return fold


def finish(e: Elements, fold: ThreadFold, position: Index) -> None:
    """Fold the init values in, round, and record the hero's elements at a kept position."""
    shapes = [leaf for leaf in leaves(fold.hero.shape) if isinstance(leaf, ArrayShape)]
    for leaf, name in enumerate(finished(e, fold)):
        e.remember(fold.hero, delinearize(position, shapes[leaf].dims), leaf, name)


def finished(e: Elements, fold: ThreadFold) -> list[Expr]:
    """The init values folded in, and rounded: one name a result."""
    inits = [e.value(init) for init in fold.hero.operands[len(fold.names) :]]
    totals = fold.reducer.combined(e, fold.reducer.lift(e, inits), fold.names)
    named = [
        e.declare(kind, total, "total")
        for kind, total in zip(fold.reducer.accumulators, totals, strict=True)
    ]
    return fold.reducer.lower(e, named)
