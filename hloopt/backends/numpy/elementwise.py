"""Elementwise ops as functions of arrays.

Where a NumPy function is what the op's row calls, it is used as it is; everything else goes through the
row.  Both give the same bits, but for the f32 functions of ``quick_math``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hloopt.backends.numpy import block_limits
from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.choosing import MANY, mask_code, select_code, where
from hloopt.backends.numpy.plan import Code, Function
from hloopt.backends.numpy.quick_math import QUICK
from hloopt.backends.numpy.scalars import (
    BITS,
    FLOATS,
    INTEGERS,
    REALS,
    SIGNED,
    UNSIGNED,
    scalar_code,
)
from hloopt.backends.numpy.writer import code_function
from hloopt.dataclass import dataclass
from hloopt.interpret.context import Context
from hloopt.ir import Instruction
from hloopt.ops import ScalarArgs
from hloopt.ops.elementwise import STEADY, keeps_bits
from hloopt.ops.traits import ELEMENTWISE, PASSING_ON, op_table
from hloopt.types import Array, DType, rounded

__all__ = ["elementwise", "lower"]

Known = Sequence["Array | None"]


@dataclass(frozen=True, slots=True)
class _Lowered:
    """``ufunc``: takes ``out=``, an array to write into; ``view``: may return an operand."""

    function: Function | None
    ufunc: bool = False
    view: bool = False
    code: Code | None = None


_COMPLEX = frozenset({"c64", "c128"})
_NUMBERS = REALS | _COMPLEX

# opcode -> ufunc (or what takes ``out=`` like one) and the element types for which the op's row does
# nothing else.
_UFUNCS: Mapping[str, tuple[Function, frozenset[str]]] = op_table(
    {
        **{opcode: (function, FLOATS) for opcode, function in STEADY.items()},
        "abs": (np.absolute, REALS),
        "add": (np.add, _NUMBERS | {"pred"}),
        "and": (np.bitwise_and, BITS),
        "ceil": (np.ceil, FLOATS),
        "divide": (np.divide, FLOATS),
        "floor": (np.floor, FLOATS),
        "maximum": (np.maximum, BITS),
        "minimum": (np.minimum, BITS),
        "multiply": (np.multiply, REALS | {"pred"}),
        "negate": (np.negative, _NUMBERS),
        "not": (np.invert, BITS),
        "or": (np.bitwise_or, BITS),
        "sign": (np.sign, INTEGERS),
        "remainder": (np.fmod, FLOATS),
        "round-nearest-even": (np.rint, FLOATS),
        "sqrt": (np.sqrt, FLOATS),
        "subtract": (np.subtract, _NUMBERS),
        "xor": (np.bitwise_xor, BITS),
    },
    ELEMENTWISE,
    "the function of its row",
)
_COMPARISONS: Mapping[str, np.ufunc] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def elementwise(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    """Add an elementwise op; its result is as large as the largest array among its operands."""
    line = builder.line
    same_type = instruction.array.dtype is instruction.operands[0].array.dtype
    if instruction.opcode in ("copy", "convert") and same_type:
        # Values are never overwritten while they are live, so a copy is another name.
        return operands[0]
    dims = np.broadcast_shapes(*[line.dims[slot] for slot in operands])
    known = [line.constants.get(slot) for slot in operands]
    out = line.slot(builder.context.carrier(instruction.array.dtype), dims)
    if all(line.is_scalar(slot) for slot in (*operands, out)):
        code = scalar_code(instruction, known)
        if code is not None:
            return line.once(code_function(code), tuple(operands), out, code=code)
    elif instruction.opcode == "select":
        if line.is_scalar(operands[0]):
            return _chosen(builder, operands, out)
        if line.dims[operands[2]] == dims and prod(dims) < MANY:
            return _assigned(builder, operands, out)
        blended = _blended(builder, operands, out)
        if blended is not None:
            return blended
    if _is_signed_quotient(instruction, known):
        return _quotient(builder, operands, out)
    lowered = lower(instruction, builder.context, known)
    if lowered.ufunc and all(line.is_scalar(slot) for slot in (*operands, out)):
        return line.once(None, tuple(operands), out, code=_of_scalars(lowered, len(operands)))
    return line.once(
        lowered.function,
        tuple(operands),
        out,
        ufunc=lowered.ufunc,
        view=lowered.view,
        code=lowered.code,
    )


def _is_signed_quotient(instruction: Instruction, known: Known) -> bool:
    if instruction.opcode != "divide" or instruction.array.dtype.name not in SIGNED:
        return False
    return known[1] is not None and bool(known[1].all() and (known[1] != -1).all())


def _quotient(builder: Builder, operands: Sequence[int], out: int) -> int:
    """Towards zero: of what is left without the rest, which may be wanted as well."""
    line = builder.line
    kind, dims = line.kinds[out], line.dims[out]
    divided, divisor = operands
    rest = line.once(np.fmod, (divided, divisor), line.slot(kind, dims), ufunc=True)
    even = line.once(np.subtract, (divided, rest), line.slot(kind, dims), ufunc=True)
    return line.once(np.floor_divide, (even, divisor), out, ufunc=True)


def _of_scalars(lowered: _Lowered, count: int) -> Code:
    """A function that takes what it is given for arrays."""
    arguments = ", ".join(f"{{{at}}}" for at in range(count))
    text = f"{{r}} = {{function}}({arguments})[()]"
    bound = {"function": lowered.function}
    return Code(text, frozenset(range(count)), scalar=True, bound=bound)


def _assigned(builder: Builder, operands: Sequence[int], out: int) -> int:
    """Elements of the second array assigned where the predicate holds, into the third if it has no other use.

    For few elements that takes half the time of ``np.where``.
    """

    def choose(own: frozenset[int]) -> Code:
        target = "{0}" if own else "{0}.copy()"
        return Code(f"{{r}} = {target}\n{{copyto}}({{r}}, {{2}}, where={{1}})", bound=bound)

    bound = {"copyto": np.copyto}
    line = builder.line
    predicate, chosen, other = operands
    ins = (other, predicate, chosen)
    if line.kinds[out] == np.bool_ or other in line.inputs or other in line.constants:
        # To own an input, a loop copies its first state, which pays for updates only.  An array of pred may be
        # the predicate too, which NumPy does not look for.
        return line.once(None, ins, out, code=choose(frozenset()))
    return line.step(None, ins, out, view=True, writes=(0,), choose=choose)


def _blended(builder: Builder, operands: Sequence[int], out: int) -> int | None:
    """By bits, of many elements; several selects by a predicate share its mask.

    Not of arrays that blocks may take (``blocks``): a mask would have to leave them.
    """
    line = builder.line
    kind, dims = line.kinds[out], line.dims[out]
    predicate, *arrays = operands
    whole = np.broadcast_shapes(*[line.dims[slot] for slot in arrays]) == dims
    known = [line.constants.get(slot) for slot in arrays]
    masked = prod(dims) < block_limits.DEFAULT.least
    code = select_code(kind, prod(dims), *known, whole=whole, masked=masked)
    if code is None:
        return None
    if masked:
        mask = mask_code(kind)
        bits = line.slot(np.dtype(f"i{kind.itemsize}"), line.dims[predicate])
        predicate = line.once(code_function(mask), (predicate,), bits, code=mask)
    return line.once(code_function(code), (predicate, *arrays), out, code=code)


def _chosen(builder: Builder, operands: Sequence[int], out: int) -> int:
    """One of two arrays as a whole."""
    predicate, *arrays = operands
    dims = builder.line.dims[out]
    full = [builder.full(slot, dims) for slot in arrays]
    code = Code("{r} = {1} if {0} else {2}", frozenset({0}))
    return builder.line.once(code_function(code), (predicate, *full), out, view=True, code=code)


def lower(instruction: Instruction, context: Context, known: Known) -> _Lowered:
    """How an elementwise op is computed; ``known`` are the arrays of operands that are constants."""
    opcode = instruction.opcode
    result = instruction.array.dtype
    kinds = [operand.array.dtype for operand in instruction.operands]
    ufunc, names = _UFUNCS.get(opcode, (None, frozenset()))
    if opcode in QUICK and not context.exact:
        ufunc, names = QUICK[opcode], FLOATS
    if ufunc is not None and result.name in names and all(kind is result for kind in kinds):
        return _Lowered(ufunc, ufunc=True)
    special = _SPECIAL.get(opcode)
    lowered = special(instruction, context, known) if special is not None else None
    return lowered or _by_row(instruction, context, kinds)


def _by_row(instruction: Instruction, context: Context, kinds: list[DType]) -> _Lowered:
    """Widen the operands, apply the row's function, round the result."""
    function = instruction.op.numpy
    assert function is not None
    # A row silences NumPy's warnings around its function; here a whole run does so once.
    function = getattr(function, "__wrapped__", function)
    quick = None if context.exact else QUICK.get(instruction.opcode)
    if quick is not None and all(kind.compute == np.float32 for kind in kinds):
        function = _without_args(quick)
    args = ScalarArgs(kinds[-1], instruction.array.dtype, instruction.attributes)
    carrier = context.carrier(instruction.array.dtype)
    view = instruction.opcode in PASSING_ON
    stored = keeps_bits(instruction.opcode, instruction.attributes, kinds[-1])
    if stored or all(context.carrier(kind) == kind.compute for kind in kinds):
        return _Lowered(
            lambda *arrays: rounded(np.asarray(function(args, *arrays)), carrier),
            view=view,
        )
    types = [kind.compute for kind in kinds]

    def widened(*arrays: Any) -> Any:
        wide = [
            array.astype(compute, copy=False) for array, compute in zip(arrays, types, strict=True)
        ]
        return rounded(np.asarray(function(args, *wide)), carrier)

    return _Lowered(widened, view=view)


def _without_args(function: Function) -> Function:
    return lambda _args, *arrays: function(*arrays)


def _compare(instruction: Instruction, context: Context, known: Known) -> _Lowered | None:
    kind = instruction.operands[0].array.dtype
    order = instruction.attributes.get("type")
    plain = kind.name in INTEGERS | {"pred"} or (kind.name in FLOATS and order in (None, "FLOAT"))
    return (
        _Lowered(_COMPARISONS[instruction.attributes["direction"]], ufunc=True) if plain else None
    )


def _select(instruction: Instruction, context: Context, known: Known) -> _Lowered | None:
    _, left, right = known
    code = select_code(
        context.carrier(instruction.array.dtype), instruction.array.elements, left, right
    )
    return _Lowered(where) if code is None else _written(code)


def _convert(instruction: Instruction, context: Context, known: Known) -> _Lowered | None:
    source, target = instruction.operands[0].array.dtype, instruction.array.dtype
    carrier = context.carrier(target)
    plain = (
        (source.name in BITS and target.name in REALS)
        or (source.name in FLOATS and target.name in FLOATS)
        or (source.is_narrow_float and target.name in FLOATS)
        or (source.name == "f32" and target.is_narrow_float)
    )
    if not plain:
        return None
    if context.carrier(source) == carrier:
        return _Lowered(_itself, view=True)
    if target.is_narrow_float:
        return _Lowered(lambda x: rounded(x, carrier))
    return _written(Code("{r} = {0}.astype({kind})", bound={"kind": carrier}))


def _is_finite(instruction: Instruction, context: Context, known: Known) -> _Lowered | None:
    kind = instruction.operands[0].array.dtype
    return _Lowered(np.isfinite) if kind.name in FLOATS else None


# Equal numbers have equal bits but for the sign of zeros, which is what is wanted of both.
_ZEROS_TOLD_APART = (
    "{r} = {array}({extremum}({0}, {1}))\n"
    "{t} = {equal}({0}, {1})\n"
    "if {count}({t}): {copy}({r}.view({bits}), {both}({0}.view({bits}), {1}.view({bits})), where={t})"
)


def _extremum(instruction: Instruction, context: Context, known: Known) -> _Lowered | None:
    """NumPy's maximum, which leaves the sign of a zero open, where that shows in no result.

    Where one operand is +0 all the maxima that are zeros are +0, which adding it makes of either.
    """
    if instruction.array.dtype.name not in FLOATS:
        return None
    largest = instruction.opcode == "maximum"
    quick = np.maximum if largest else np.minimum
    constants = [array for array in known if array is not None]
    if any(_decides(array) for array in constants):
        return _Lowered(quick, ufunc=True)
    if largest and any(_is_plus_zero(array) for array in constants):
        zero = np.zeros((), instruction.array.dtype.numpy)
        bound: dict[str, Any] = {"add": np.add, "maximum": quick, "zero": zero}
        return _written(Code("{r} = {add}({maximum}({0}, {1}), {zero})", bound=bound))
    bound = {
        "array": np.asarray,
        "bits": np.dtype(f"u{instruction.array.dtype.numpy.itemsize}"),
        "both": np.bitwise_and if largest else np.bitwise_or,
        "copy": np.copyto,
        "count": np.count_nonzero,
        "equal": np.equal,
        "extremum": quick,
    }
    return _written(Code(_ZEROS_TOLD_APART, bound=bound))


def _decides(array: Any) -> bool:
    """Whether no element is a zero or NaN, so that the order of the operands does not matter."""
    return bool(array.all() and not np.isnan(array).any())


def _is_plus_zero(array: Any) -> bool:
    return bool(array.size) and not (array.any() or np.signbit(array).any())


def _clamp(instruction: Instruction, context: Context, known: Known) -> _Lowered | None:
    """By bounds at which no zero's sign is left open."""
    kind = instruction.array.dtype
    least, _, greatest = known
    decided = least is not None and greatest is not None and _decides(least) and _decides(greatest)
    if kind.name not in INTEGERS and not (kind.name in FLOATS and decided):
        return None
    bound = {"maximum": np.maximum, "minimum": np.minimum}
    return _written(Code("{r} = {minimum}({maximum}({0}, {1}), {2})", bound=bound))


def _shift(instruction: Instruction, context: Context, known: Known) -> _Lowered | None:
    """NumPy's shifts bring in what HLO's do for any amount, taken as an unsigned number."""
    kind = instruction.array.dtype
    if kind.name not in INTEGERS:
        return None
    ufunc = np.left_shift if instruction.opcode == "shift-left" else np.right_shift
    arithmetic = instruction.opcode == "shift-right-arithmetic"
    if instruction.opcode == "shift-left" or (kind.kind == "signed") == arithmetic:
        return _Lowered(ufunc, ufunc=True)
    own = kind.numpy
    bits = np.dtype(f"{'i' if arithmetic else 'u'}{own.itemsize}")
    text = "{r} = {shift}({0}.view({bits}), {1}.view({bits})).view({own})"
    return _written(Code(text, bound={"own": own, "shift": ufunc, "bits": bits}))


def _divided(instruction: Instruction, context: Context, known: Known) -> _Lowered | None:
    """Integers by constants that divide without exceptions."""
    kind, divisor = instruction.array.dtype, known[1]
    if kind.name not in INTEGERS or divisor is None or not divisor.all():
        return None
    if kind.name in SIGNED and (divisor == -1).any():
        return None
    if instruction.opcode == "remainder":
        return _Lowered(np.fmod, ufunc=True)
    if kind.name in UNSIGNED:
        return _Lowered(np.floor_divide, ufunc=True)
    bound = {"divide": np.floor_divide, "rest": np.fmod, "subtract": np.subtract}
    text = "{r} = {divide}({subtract}({0}, {rest}({0}, {1})), {1})"
    return _written(Code(text, bound=bound))


def _written(code: Code) -> _Lowered:
    return _Lowered(code_function(code), code=code)


def _itself(array: Any) -> Any:
    return array


_SPECIAL: Mapping[str, Callable[[Instruction, Context, Known], _Lowered | None]] = op_table(
    {
        "clamp": _clamp,
        "compare": _compare,
        "convert": _convert,
        "divide": _divided,
        "is-finite": _is_finite,
        "maximum": _extremum,
        "minimum": _extremum,
        "remainder": _divided,
        "select": _select,
        "shift-left": _shift,
        "shift-right-arithmetic": _shift,
        "shift-right-logical": _shift,
    },
    ELEMENTWISE,
    "a ufunc, or the function of its row",
)
