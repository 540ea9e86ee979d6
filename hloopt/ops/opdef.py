"""What one row of the op table says.

A scalar op is one complete row: its NumPy function, flops and algebra.  A structural op has arity,
attribute schema and shape inference here; its evaluation and everything else is registered under its
opcode in the room that owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.types import DType, Shape

__all__ = [
    "MANY",
    "Arity",
    "Attribute",
    "Infer",
    "InferArgs",
    "Kind",
    "OpDef",
    "ScalarArgs",
    "Signature",
    "family",
]

MANY = 1 << 30


class Kind(Enum):
    """How an attribute's value is written; the values in Python are listed in ``types/attrs.py``.

    A kind makes attributes of itself: ``Kind.INT("k", required=True)``.
    """

    INT = auto()
    FLOAT = auto()
    BOOL = auto()
    WORD = auto()
    STRING = auto()
    INTS = auto()
    GROUPS = auto()
    SLICES = auto()
    WINDOW = auto()
    PADDING = auto()
    CONV_DIMS = auto()
    COMPUTATION = auto()
    COMPUTATIONS = auto()
    SHAPE = auto()
    SHAPES = auto()
    LITERAL = auto()
    VERBATIM = auto()

    def __call__(
        self, name: str, *, required: bool = False, words: tuple[str, ...] = ()
    ) -> Attribute:
        return Attribute(name, self, required, words)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of an op: ``words`` are the values a WORD may have (empty: any)."""

    name: str
    kind: Kind
    required: bool = False
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameter shapes and result shape of a called computation."""

    parameters: tuple[Shape, ...]
    result: Shape


@dataclass(frozen=True, slots=True)
class InferArgs:
    """What shape inference sees of an instruction.

    ``calls`` maps attribute names to the signatures of the computations they name
    (``branch_computations`` to several).  ``declared`` is the shape written in the text, or None:
    ops whose shape cannot be inferred (parameter, iota, reshape, custom-call ...) check and return it.
    """

    opcode: str
    operands: tuple[Shape, ...]
    attributes: Mapping[str, Any]
    calls: Mapping[str, tuple[Signature, ...]]
    declared: Shape | None


@dataclass(frozen=True, slots=True)
class ScalarArgs:
    """What an elementwise op's NumPy function sees beside its arrays.

    ``operand`` is the element type of the last operand (the one a select or clamp passes through),
    ``result`` that of the result.
    """

    operand: DType
    result: DType
    attributes: Mapping[str, Any]


ScalarFunction: TypeAlias = Callable[..., Any]
Infer: TypeAlias = Callable[[InferArgs], Shape]
Arity: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class OpDef:
    """One opcode.

    opcode          the word in the text
    arity           least and most operands; ``MANY`` for no limit
    family          elementwise, movement, indexing, reduction, window, linear, sort, control, tuple,
                    random, collective, async, host, custom, source; unknown is none of the table
    attributes      the schema, beside ``COMMON_ATTRIBUTES`` that every op has
    infer           result shape from operands and attributes; raises ``ShapeError`` naming the constraint
    numpy           elementwise ops: ``f(args, x, y)`` with arrays in their compute types
                    (``DType.compute``), result in the compute type of ``args.result``; the caller
                    widens before and rounds after
    flops           per result element, transcendental functions not counted
    transcendentals per result element
    commutative     op(a, b) == op(b, a), bit for bit but for the payload of a NaN
    associative     for integers and pred exactly; for floats up to rounding
    identity        x such that op(x, a) == a; ``lowest``/``highest`` stand for the type's bounds
    passes_on       ``numpy`` may give back memory of its operand
    idempotent      op(a, a) == a
    bitwise         a bit of the result depends on the same bits of the operands only
    modular         for integers: the low bits of the result depend on the low bits of the operands only
    monotone        op(a) <= op(b) for all a <= b that are not NaN; of real numbers, and of all of them
    integral        the result is an integer, also in a float type
    within_one      |op(a)| <= 1 for all real a
    moves           how elements of operands become those of the result, unchanged, by indices that depend
                    on no value: ``permutes`` them (each once), ``selects`` (some, or one several times) or
                    ``joins`` (several operands); ``indexes`` where values of operands say which
    folds           an element of the result is many of the operands', combined
    aliases         the result is memory of the operands under another name, shape or order of events
    constrains      computes nothing: only keeps the compiler from moving, merging or removing
    calls           how the computations it names run: ``sequence`` (step by step, in its place), ``async``
                    (so, until its done), ``fused`` (as one kernel), ``elements`` (for each element)
    phase           ``start``, ``update`` or ``done`` of what takes time beside other instructions
    cheap           when XLA's fusion takes computing it again for cheap: ``always``, for ``real`` numbers,
                    on a ``gpu``, or never
    elemental       a thread can compute any one element of the result; beside all elementwise ops
    hero            XLA's GPU backend has an emitter for kernels around it
    side_effect     never removed or merged (an attribute may add to this: see ``ir.walk.has_side_effect``)
    inferable       the text may leave the result shape out
    """

    opcode: str
    arity: Arity
    family: str
    infer: Infer
    attributes: tuple[Attribute, ...] = ()
    numpy: ScalarFunction | None = None
    flops: int = 0
    transcendentals: int = 0
    commutative: bool = False
    associative: bool = False
    identity: object = None
    passes_on: bool = False
    idempotent: bool = False
    bitwise: bool = False
    modular: bool = False
    monotone: bool = False
    integral: bool = False
    within_one: bool = False
    moves: str = ""
    folds: bool = False
    aliases: bool = False
    constrains: bool = False
    calls: str = ""
    phase: str = ""
    cheap: str = ""
    elemental: bool = False
    hero: bool = False
    side_effect: bool = False
    inferable: bool = True
    doc: str = ""

    @property
    def is_elementwise(self) -> bool:
        """Whether each result element depends on the elements at the same index only."""
        return self.numpy is not None

    def attribute(self, name: str) -> Attribute | None:
        """The schema entry called ``name``, if the op has one."""
        return next((entry for entry in self.attributes if entry.name == name), None)

    def computation_attributes(self) -> Sequence[str]:
        """Names of the attributes that hold computations."""
        kinds = (Kind.COMPUTATION, Kind.COMPUTATIONS)
        return [entry.name for entry in self.attributes if entry.kind in kinds]


def family(name: str, **columns: Any) -> Callable[..., OpDef]:
    """What makes the rows of a family: opcode, number of operands or least and most, inference, attributes.

    ``columns`` are those that its rows share where they do not say otherwise.
    """

    def row(
        opcode: str, arity: int | Arity, infer: Infer, *attributes: Attribute, **others: Any
    ) -> OpDef:
        limits = (arity, arity) if isinstance(arity, int) else arity
        return OpDef(opcode, limits, name, infer, attributes, **columns | others)

    return row
