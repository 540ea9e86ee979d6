"""Attention and its gradients: products whose results are weighted, reduced and multiplied again tile by tile.

    scores = rows . columns          weights = f(scores)          contexts = weights . values

A *score* is an element for each row and each column of a batch; what is computed from scores element by element
has such elements, too, and is never written to memory: a kernel has a tile of it at a time.  *Heroes* reduce it
over the columns, to a value a row; *contexts* are products that contract the columns.  Of a gradient several
products give scores, and rows and columns may have changed places.

A *sweep* goes over all columns once.  What it reduces may need what earlier ones found.  The greatest score,
the sum of the exponentials of what scores lie below it, and contexts of these exponentials need no more than
one: what was found so far is scaled whenever a greater score is met (Milakov, Gimelshein: Online normalizer
calculation for softmax, 2018; Dao et al.: FlashAttention, 2022).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Final

from hloopt.analysis.attention.axes import Along, AxisNumber, known_along
from hloopt.analysis.attention.reading import ScoreReader
from hloopt.analysis.attention.rescaling import Rescaling, of_a_row, rescaling_of
from hloopt.analysis.contraction import Axis, Contraction, of_dot
from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import REARRANGING
from hloopt.targets import Target
from hloopt.types import ArrayShape

__all__ = [
    "Attention",
    "ScoreSweep",
    "TiledProduct",
    "attention_form",
    "matrix_kind",
    "matrix_unit",
]

_VIEWS: Final = REARRANGING - {"reverse", "slice"}
_UNITS: Final = ("bf16", "f16")
"""What matrix units multiply, with sums in f32."""
_IN_BF16: Final = "dot_bf16_bf16_f32"
_IN_TF32: Final = "dot_tf32_tf32_f32"
_SIXTEEN_BITS: Final = frozenset({_IN_TF32, "dot_bf16_bf16_f32_x3"})
"""Algorithms to which an f32 is as good as the sum of two bf16."""
_TO_TF32: Final = frozenset({"f32", "bf16"})
_FIRST_UNITS: Final[Mapping[str, tuple[int, int]]] = {
    "f16": (7, 5),
    "bf16": (8, 0),
    "f32": (8, 0),
}


@dataclass(frozen=True)
class TiledProduct:
    """A product with its rows along m: of scores its columns along n, of a context along k.

    axes  what each axis of the product is in the form
    """

    contraction: Contraction
    axes: Mapping[Axis, tuple[AxisNumber, ...]]

    @property
    def hero(self) -> Instruction:
        """The dot."""
        return self.contraction.hero


@dataclass(frozen=True)
class ScoreSweep:
    """What is computed while all columns are traversed once.

    rescaling  how sums and contexts of exponentials are kept in step with the greatest score; None where all
               that they need is known
    scores     the products of scores that it needs
    computed   what is computed for a score
    """

    heroes: tuple[Instruction, ...]
    contexts: tuple[TiledProduct, ...]
    rescaling: Rescaling | None = None
    scores: tuple[TiledProduct, ...] = ()
    computed: frozenset[Instruction] = frozenset()


@dataclass(frozen=True)
class Attention:
    """A region that multiplies, weights and multiplies again.

    sizes    of each axis
    batch, rows, columns  the axes of each kind, the last one quickest
    inner    of each context the further axes of its values
    scores   the products that give scores
    sweeps   in order
    along    what each value that depends on scores lies along
    """

    sizes: Mapping[AxisNumber, int]
    batch: tuple[AxisNumber, ...]
    rows: tuple[AxisNumber, ...]
    columns: tuple[AxisNumber, ...]
    inner: Mapping[Instruction, tuple[AxisNumber, ...]]
    scores: tuple[TiledProduct, ...]
    sweeps: tuple[ScoreSweep, ...]
    along: Mapping[Instruction, Along]

    def count(self, axes: Iterable[AxisNumber]) -> int:
        """How many places axes have."""
        return prod(self.sizes[axis] for axis in axes)

    @property
    def contexts(self) -> tuple[TiledProduct, ...]:
        """The products that contract the columns."""
        return tuple(one for sweep in self.sweeps for one in sweep.contexts)

    def late_factors(self) -> set[Instruction]:
        """Values a row that contexts are multiplied or divided by at the end, not the weights."""
        every = (sweep.rescaling for sweep in self.sweeps)
        factors = (late for one in every if one is not None for late in one.kept.values())
        return {late.value for late in factors if late is not None}

    def row_divisions(self) -> dict[Instruction, Instruction]:
        """Divisions in f32, an element a score, by a value a row: that one's inverse is multiplied with."""
        found = {}
        places = {*self.batch, *self.rows, *self.columns}
        for one, along in self.along.items():
            if one.opcode != "divide" or one.array.dtype.name != "f32":
                continue
            if None in along or set(known_along(along)) != places:
                continue
            numerator, divisor = one.operands
            if numerator not in self.along or divisor.opcode != "broadcast":
                continue
            where = [along[at] or () for at in divisor.attributes.get("dimensions", ())]
            if not {axis for part in where for axis in part} & set(self.columns):
                found[one] = of_a_row(divisor) or divisor.operands[0]
        return found

    @property
    def multiply_adds(self) -> int:
        """Those of all products, with the scores as often as columns are traversed."""
        every = (one for sweep in self.sweeps for one in sweep.scores)
        again = sum(one.contraction.multiply_adds for one in every)
        return again + sum(one.contraction.multiply_adds for one in self.contexts)


def attention_form(region: Region) -> Attention | str:
    """The form of a region, or why it has none."""
    return _Reader().read(region)


class _Reader(ScoreReader):
    """The form of one region."""

    def read(self, region: Region) -> Attention | str:
        self.region = region
        for inner in self.region.body:
            if inner.opcode == "tuple" and not inner.users:
                continue  # results as they were laid out before
            if inner.shape.is_dynamic or not isinstance(inner.shape, ArrayShape):
                return f"{inner.name} is {inner.shape}: no array of a known size"
            problem = self.visit(inner)
            if problem:
                return problem
            if inner.opcode == "reduce" and inner in self.along and inner not in self.heroes:
                return f"{inner.name} reduces dimensions of size 1"
        if not self.scores:
            return "nothing is multiplied"
        if not self.heroes and not self.contexts:
            return f"nothing reduces what {self.scores[0].name} gives"
        return self._assembled()

    def _assembled(self) -> Attention | str:
        along = {one: self.axes.resolved(own) for one, own in self.along.items()}
        folded = {**self.heroes, **self.contexts}
        contracting = self._contracting()
        contracted = [set(map(self.axes.find, folded[one])) for one in contracting]
        first = contracted[0]
        for axes, one in zip(contracted, contracting, strict=True):
            if axes != first or not axes:
                return f"{one.name} contracts other axes than {contracting[0].name}"
        scores, kinds = [], None
        for dot in self.scores:
            product = self._product(of_dot(dot), along[dot])
            if set(_axes_of(product, "n")) != first:
                product = self._product(of_dot(dot).swapped(), along[dot])
            found = _axes_of(product, "b"), _axes_of(product, "m"), _axes_of(product, "n")
            if len(set().union(*found)) != sum(map(len, found)):
                return f"two dimensions of {dot.name} are one axis"
            if set(found[2]) != first:
                return f"{dot.name} gives no columns for {contracting[0].name}"
            kinds = kinds or found
            if any(set(one) != set(other) for one, other in zip(kinds, found, strict=True)):
                return f"{dot.name} has other rows than {self.scores[0].name}"
            scores.append(product)
        assert kinds is not None, "there are scores"
        contexts = self._contexts_along(along, kinds)
        if isinstance(contexts, str):
            return contexts
        inner = {dot: _axes_of(product, "n") for dot, product in contexts.items()}
        sizes = {axis: self.axes.sizes[axis] for own in along.values() for axis in known_along(own)}
        sweeps = self._sweeps(contexts, scores)
        batch, rows, columns = kinds
        return Attention(sizes, batch, rows, columns, inner, tuple(scores), sweeps, along)

    def _contracting(self) -> list[Instruction]:
        """Heroes and contexts, in the order in which they were met."""
        both = {*self.heroes, *self.contexts}
        return [one for one in self.region.body if one in both]

    def _contexts_along(
        self, along: Mapping[Instruction, Along], kinds: tuple[tuple[AxisNumber, ...], ...]
    ) -> dict[Instruction, TiledProduct] | str:
        """The contexts as products whose rows are the scores' rows."""
        batch, rows, columns = kinds
        contexts = {}
        for dot in self.contexts:
            contraction = of_dot(dot)
            if dot.operands[0] not in along:
                contraction = contraction.swapped()
            product = self._product(contraction, along[dot], along[contraction.lhs.instruction])
            found = tuple(_axes_of(product, group) for group in ("b", "m", "k"))
            if any(set(one) != set(other) for one, other in zip(found, kinds, strict=True)):
                return f"{dot.name} has another batch, or other rows, than {self.scores[0].name}"
            own = set(_axes_of(product, "n"))
            if not own or own & {*batch, *rows, *columns}:
                return f"{dot.name} gives no further axis"
            contexts[dot] = product
        return contexts

    def _product(self, contraction: Contraction, *alongs: Along) -> TiledProduct:
        """A contraction with what the axes of its result, and of its weights, are in the form."""
        positions = (contraction.result, contraction.lhs.positions)
        axes = {
            position.terms[0][0]: part or ()
            for every, along in zip(positions, alongs, strict=False)
            for position, part in zip(every, along, strict=True)
        }
        return TiledProduct(contraction, axes)

    def _sweeps(
        self, contexts: Mapping[Instruction, TiledProduct], scores: Iterable[TiledProduct]
    ) -> tuple[ScoreSweep, ...]:
        """Each hero and each context in the first sweep for which all is known that it needs."""
        needs = self._needs()
        known: set[Instruction] = set()
        pending = self._contracting()
        found: list[ScoreSweep] = []
        while pending:
            ready = [one for one in pending if needs[one] <= known]
            rescaling = None
            greatest = [one for one in ready if _is_greatest(one)]
            if len(greatest) == 1:
                rescaling = rescaling_of(self.region.body, greatest[0], self.along)
                ready += rescaling.follow(pending, needs, known)
                if not rescaling.kept:
                    rescaling = None
            known.update(one for one in ready if one.opcode == "reduce")
            pending = [one for one in pending if one not in ready]
            computed = self._computed(ready)
            found.append(
                ScoreSweep(
                    tuple(one for one in ready if one.opcode == "reduce"),
                    tuple(contexts[one] for one in ready if one in contexts),
                    rescaling,
                    tuple(one for one in scores if one.hero in computed),
                    computed,
                )
            )
        return tuple(found)

    def _computed(self, ready: Iterable[Instruction]) -> frozenset[Instruction]:
        """What heroes and contexts are computed from, up to other heroes."""
        pending = [part for one in ready for part in one.operands if part in self.along]
        found = set(pending)
        while pending:
            one = pending.pop()
            if one in self.heroes or one in self.contexts:
                continue
            new = [part for part in one.operands if part in self.along and part not in found]
            found.update(new)
            pending += new
        return frozenset(found)

    def _needs(self) -> dict[Instruction, set[Instruction]]:
        """The heroes that each hero and each context is computed from."""
        behind: dict[Instruction, frozenset[Instruction]] = {}
        needs = {}
        for inner in self.region.body:
            if inner not in self.along:
                continue
            above = frozenset().union(*(behind.get(part, frozenset()) for part in inner.operands))
            needs[inner] = set(above)
            behind[inner] = above | {inner} if inner in self.heroes else above
        return needs


def _axes_of(product: TiledProduct, group: str) -> tuple[AxisNumber, ...]:
    return tuple(_each(product, group))


def _each(product: TiledProduct, group: str) -> Iterator[AxisNumber]:
    for (own, _), axes in sorted(product.axes.items()):
        if own == group:
            yield from axes


def _is_greatest(reduce: Instruction) -> bool:
    if reduce.opcode != "reduce" or reduce.attributes["to_apply"].root.opcode != "maximum":
        return False
    return reduce.array.dtype.is_float


def matrix_kind(contraction: Contraction) -> tuple[str, int]:
    """The 16-bit type in which a product is made, and of how many terms lhs is; ("", 0) where it is not.

    What was widened to f32 before is exact in its own type; the algorithm ``dot_bf16_bf16_f32`` rounds f32.  An
    f32 is the sum of three bf16, 8 bits each: their products with a bf16 are exact, and summed in f32 as the
    product itself would be.  Two are enough for algorithms that round more.
    """
    lhs, rhs = (_exact(side.instruction) for side in (contraction.lhs, contraction.rhs))
    algorithm = _algorithm(contraction)
    if algorithm == _IN_BF16:
        return ("bf16", 1) if {lhs, rhs} <= {"bf16", "f32"} else ("", 0)
    if rhs not in _UNITS:
        return "", 0
    if lhs == rhs:
        return rhs, 1
    if lhs == "f32" and rhs == "bf16" and contraction.kind.name == "f32":
        return rhs, 2 if algorithm in _SIXTEEN_BITS else 3
    return "", 0


def matrix_unit(form: Attention, target: Target) -> str:
    """The type in which matrix units of a device multiply all products of a form; empty where they do not.

    ``mma.sync`` with sums in f32 takes f16 from sm_75 on, bf16 and TF32 from sm_80 on; f32 stands for TF32, as
    in the rates of targets.
    """
    products = [one.contraction for one in (*form.scores, *form.contexts)]
    kinds = {matrix_kind(one)[0] for one in products}
    if len(kinds) == 1 and all(matrix_kind(one.contraction)[1] == 1 for one in form.scores):
        (kind,) = kinds
        if target.capability >= _FIRST_UNITS[kind]:
            return kind
    if target.capability >= _FIRST_UNITS["f32"] and all(map(_is_tf32, products)):
        return "f32"
    return ""


def _is_tf32(contraction: Contraction) -> bool:
    """Whether the factors of a product may be rounded to TF32."""
    kinds = {one.array.dtype.name for one in contraction.hero.operands[:2]}
    return _algorithm(contraction) == _IN_TF32 and kinds <= _TO_TF32


def _algorithm(contraction: Contraction) -> str:
    return str(contraction.hero.attributes.get("algorithm", ""))


def _exact(value: Instruction) -> str:
    """The narrowest type that is known to hold the elements of a value."""
    one = value
    while one.opcode in _VIEWS and one.operands:
        one = one.operands[0]
    if one.opcode == "convert" and one.array.dtype.name == "f32":
        source = one.operands[0].array.dtype.name
        if source in _UNITS:
            return source
    return value.array.dtype.name
