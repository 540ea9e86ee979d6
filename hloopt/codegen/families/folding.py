"""Accumulators of the reduction kernels: a thread takes elements in, threads exchange what they have.

Where the reducer has an identity, accumulators start with it and every lane takes part.  Elsewhere a flag says
whether an accumulator holds anything yet; lanes without elements are passed over.  The init value is folded in
once, when a result is finished: it need not be an identity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from hloopt.analysis.index import Index, delinearize
from hloopt.codegen.elements import Elements
from hloopt.codegen.reducer import Reducer
from hloopt.codegen.scalars import literal
from hloopt.codegen.types import register_type
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernels.families.sweeps import WARP
from hloopt.ops.traits import ASSOCIATIVE, op_table
from hloopt.types import ArrayShape, DType, leaves

__all__ = [
    "Fold",
    "begin",
    "everywhere",
    "finish",
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
class Fold:
    """The accumulators of a reduce in a thread.

    names     C variables, one an output
    has       the flag, empty where accumulators start with the identity
    """

    hero: Instruction
    reducer: Reducer
    names: tuple[str, ...]
    has: str

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """Type and name of all that threads exchange."""
        kinds = [register_type(kind) for kind in self.reducer.accumulators]
        pairs = tuple(zip(kinds, self.names, strict=True))
        return (*pairs, ("bool", self.has)) if self.has else pairs


def identity(reducer: Reducer) -> str:
    """The literal of the reducer's identity, empty where none is known.

    -0 is that of a sum of floats: 0 would make -0 of nothing but -0 a +0.
    """
    plain, kind = reducer.plain, reducer.accumulators[0]
    if plain == "add":
        if kind.is_complex:
            return literal(complex(-0.0, -0.0), kind)
        return literal(-0.0, kind) if kind.is_float else literal(0, kind)
    if plain == "multiply":
        # (1, 0) is none: infinity times it is NaN.
        return "" if kind.is_complex else literal(1, kind)
    if plain in ("maximum", "minimum"):
        return "" if kind.is_complex else literal(_extreme(kind, plain == "maximum"), kind)
    if plain == "and":
        return literal(True, kind) if kind.is_pred else literal(-1, kind)
    if plain in ("or", "xor"):
        return literal(0, kind)
    return ""


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


def begin(e: Elements, hero: Instruction, values: Sequence[str] = ()) -> Fold:
    """Declare accumulators that hold nothing, or ``values`` (the flag's last)."""
    reducer = Reducer.of(hero)
    start = identity(reducer)
    hint = _HINTS.get(reducer.plain, "best" if len(reducer.dtypes) > 1 else "folded")
    kinds = reducer.accumulators
    given = values or [*(start or literal(0, kind) for kind in kinds), "false"]
    names = tuple(
        e.scope.variable(register_type(kind), hint, value)
        for kind, value in zip(kinds, given, strict=False)
    )
    has = "" if start else e.scope.variable("bool", "has", given[len(kinds)])
    return Fold(hero, reducer, names, has)


def take(e: Elements, fold: Fold, elements: Sequence[str], *, holds: bool = False) -> None:
    """Take in an element of each operand; ``holds`` says that the accumulators hold something for sure."""
    values = fold.reducer.lift(e, elements)
    if holds:
        fold.reducer.assign(e, fold.names, values)
    else:
        merge(e, fold, values, "")


def merge(e: Elements, fold: Fold, others: Sequence[str], there: str) -> None:
    """Take in other accumulators, in the case of flags those that hold something (``there``, empty: do)."""
    if not fold.has:
        fold.reducer.assign(e, fold.names, others)
        return
    outer = e.scope.when(f"{there}") if there else e.scope
    with e.within(outer):
        with e.within(outer.when(f"{fold.has}")):
            fold.reducer.assign(e, fold.names, others)
        with e.within(outer.otherwise()) as first:
            for name, other in zip(fold.names, others, strict=True):
                first.line(f"{name} = {other};")
            first.line(f"{fold.has} = true;")


def tree(e: Elements, folds: Sequence[Fold], distance: int, exchange: str = "shuffle_down") -> None:
    """Fold ``2 * distance`` neighbouring lanes into the first of them; all lanes of the warp take part."""
    if distance < 1 or not folds:
        return
    if distance == 1:
        _from_others(e, folds, exchange, "1")
        return
    name = e.scope.names.fresh("distance")
    loop = e.scope.block(f"for (int {name} = {distance}; {name} > 0; {name} /= 2)")
    with e.within(loop):
        _from_others(e, folds, exchange, name)


def everywhere(e: Elements, folds: Sequence[Fold], lanes: int, thread: Index) -> None:
    """Fold ``lanes`` neighbouring lanes, a power of two, so that each of them has the result.

    Both sides of an exchange fold the same two values: in the same order, where it could matter.
    """
    plain = [fold for fold in folds if not fold.has]
    tree(e, plain, lanes // 2, "shuffle_xor")
    others = [fold for fold in folds if fold.has]
    tree(e, others, lanes // 2)
    if lanes > 1:
        head = str(thread % WARP - thread % lanes) if lanes < WARP else "0"
        for fold in others:
            for _, name in fold.variables:
                e.scope.line(f"{name} = {e.uses.call('shuffle_index', name, head)};")


def _from_others(e: Elements, folds: Sequence[Fold], exchange: str, distance: str) -> None:
    for fold in folds:
        others = [
            e.scope.declare(kind, e.uses.call(exchange, name, distance), "other")
            for kind, name in fold.variables
        ]
        count = len(fold.names)
        merge(e, fold, others[:count], others[count] if fold.has else "")


def shared_tiles(folds: Sequence[Fold], shared: Callable[[str, str], str]) -> list[tuple[str, ...]]:
    """A tile of shared memory for each variable; ``shared`` declares one of a type and a hint."""
    return [tuple(shared(kind, f"{name}_tile") for kind, name in fold.variables) for fold in folds]


def keep(e: Elements, fold: Fold, tiles: Sequence[str], place: str) -> None:
    """Write accumulators to a place of shared tiles."""
    for (_, name), tile in zip(fold.variables, tiles, strict=True):
        e.scope.line(f"{tile}{place} = {name};")


def reload(
    e: Elements, hero: Instruction, tiles: Sequence[str], place: str, condition: str
) -> Fold:
    """Accumulators read from a place of shared tiles; where ``condition`` is false they hold nothing."""
    values = [f"{tile}{place}" for tile in tiles]
    if not condition:
        return begin(e, hero, values)
    fold = begin(e, hero)
    inner = e.scope.when(f"{condition}")
    for (_, name), value in zip(fold.variables, values, strict=True):
        inner.line(f"{name} = {value};")
    return fold


def finish(e: Elements, fold: Fold, position: Index) -> None:
    """Fold the init values in, round, and let the region know the hero's elements at a kept position."""
    count = len(fold.names)
    inits = [e.value(init) for init in fold.hero.operands[count:]]
    totals = fold.reducer.combined(e, fold.reducer.lift(e, inits), fold.names)
    named = [
        e.scope.declare(register_type(kind), total, "total")
        for kind, total in zip(fold.reducer.accumulators, totals, strict=True)
    ]
    shapes = [leaf for leaf in leaves(fold.hero.shape) if isinstance(leaf, ArrayShape)]
    for leaf, name in enumerate(fold.reducer.lower(e, named)):
        e.remember(fold.hero, delinearize(position, shapes[leaf].dims), leaf, name)
