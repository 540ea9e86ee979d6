"""Rules for broadcast, reshape, transpose, reverse, iota and constants that repeat one value."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.ops import OPS
from hloopt.rewrite import Match, Rule, op, var
from hloopt.types import ArrayShape, Literal, array

__all__ = ["RULES", "unmodified_dimensions"]

_NOT_SUNK = ("copy", "reduce-precision", "stochastic-convert")
_ELEMENTWISE = tuple(
    name for name, row in OPS.items() if row.family == "elementwise" and name not in _NOT_SUNK
)


def _is_scalar(instruction: Instruction) -> bool:
    return isinstance(instruction.shape, ArrayShape) and not instruction.shape.dims


A, S = var("A"), var("S", _is_scalar)


def _dimensions(instruction: Instruction) -> tuple[int, ...]:
    found: tuple[int, ...] = instruction.attributes.get("dimensions", ())
    return found


def unmodified_dimensions(before: tuple[int, ...], after: tuple[int, ...]) -> dict[int, int]:
    """Dimensions that a reshape leaves alone, from their number before to that after.

    Both lists are cut where their running products agree; a piece that holds, apart from ones, a single
    equal dimension on both sides is unmodified.
    """
    found: dict[int, int] = {}
    i = j = 0
    while i < len(before) and j < len(after):
        if before[i] == after[j]:
            found[i] = j
            i, j = i + 1, j + 1
        elif before[i] == 1:
            i += 1
        elif after[j] == 1:
            j += 1
        else:
            left, right = before[i], after[j]
            i, j = i + 1, j + 1
            while left != right:
                if left < right and i < len(before):
                    left, i = left * before[i], i + 1
                elif j < len(after):
                    right, j = right * after[j], j + 1
                else:
                    return found
    return found


def _broadcast(match: Match, operand: Instruction, dimensions: tuple[int, ...]) -> Instruction:
    return match.make("broadcast", (operand,), {"dimensions": dimensions}, match.root.shape)


def _broadcast_once(match: Match) -> Instruction:
    inner, outer = match.root.operands[0], match.root
    return _broadcast(match, match.A, tuple(_dimensions(outer)[d] for d in _dimensions(inner)))


def _broadcast_is_reshape(match: Match) -> Instruction | None:
    dims = _dimensions(match.root)
    if match.A.array.elements != match.root.array.elements or list(dims) != sorted(dims):
        return None
    if match.A.array.rank in (0, match.root.array.rank):
        return None
    return match.make("reshape", (match.A,), {}, match.root.shape)


def _same_dims(match: Match) -> bool:
    return match.A.array.dims == match.root.array.dims


def _broadcast_identity(match: Match) -> bool:
    return _same_dims(match) and _dimensions(match.root) == tuple(range(match.root.array.rank))


def _broadcast_of_reshape(match: Match) -> Instruction | None:
    reshape, dims = match.root.operands[0], _dimensions(match.root)
    before, after = match.A.array.dims, reshape.array.dims
    if 0 in before or not _only_ones_differ(before, after):
        return None
    kept = unmodified_dimensions(before, after)
    if len(kept) < len(before):
        return None
    return _broadcast(match, match.A, tuple(dims[kept[d]] for d in range(len(before))))


def _only_ones_differ(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    return [size for size in before if size != 1] == [size for size in after if size != 1]


def _reshape_of_broadcast(match: Match) -> Instruction | None:
    inner = match.root.operands[0]
    if 0 in inner.array.dims:
        return None
    kept = unmodified_dimensions(inner.array.dims, match.root.array.dims)
    dims = _dimensions(inner)
    if not all(d in kept for d in dims):
        return None
    return _broadcast(match, match.A, tuple(kept[d] for d in dims))


def _reshape_of_iota(match: Match) -> Instruction | None:
    inner = match.root.operands[0]
    if 0 in inner.array.dims:
        return None
    kept = unmodified_dimensions(inner.array.dims, match.root.array.dims)
    dim = inner.attributes["iota_dimension"]
    return _iota(match, kept[dim]) if dim in kept else None


def _iota(match: Match, dimension: int) -> Instruction:
    return match.make("iota", (), {"iota_dimension": dimension}, match.root.shape)


def _identity_permutation(match: Match) -> bool:
    dims = _dimensions(match.root)
    return dims == tuple(range(len(dims)))


def _transpose_once(match: Match) -> Instruction:
    inner, outer = _dimensions(match.root.operands[0]), _dimensions(match.root)
    dims = tuple(inner[d] for d in outer)
    return match.make("transpose", (match.A,), {"dimensions": dims}, match.root.shape)


def _transpose_of_broadcast(match: Match) -> Instruction | None:
    inner, permutation = match.root.operands[0], _dimensions(match.root)
    place = {old: new for new, old in enumerate(permutation)}
    dims = tuple(place[d] for d in _dimensions(inner))
    return _broadcast(match, match.A, dims) if list(dims) == sorted(dims) else None


def _transpose_of_iota(match: Match) -> Instruction:
    inner = match.root.operands[0]
    return _iota(match, _dimensions(match.root).index(inner.attributes["iota_dimension"]))


def _transpose_is_reshape(match: Match) -> Instruction | None:
    moved = [d for d in _dimensions(match.root) if match.A.array.dims[d] != 1]
    if moved != sorted(moved):
        return None
    return match.make("reshape", (match.A,), {}, match.root.shape)


def _broadcast_of_iota(match: Match) -> Instruction:
    inner = match.root.operands[0]
    return _iota(match, _dimensions(match.root)[inner.attributes["iota_dimension"]])


def _iota_of_one(match: Match) -> Instruction | None:
    shape = match.root.array
    if shape.elements == 0 or shape.dims[match.root.attributes["iota_dimension"]] != 1:
        return None
    return match.splat(shape, 0)


def _reverse_nothing(match: Match) -> bool:
    return all(match.A.array.dims[d] <= 1 for d in _dimensions(match.root))


def _reverse_once(match: Match) -> Instruction:
    inner, outer = set(_dimensions(match.root.operands[0])), set(_dimensions(match.root))
    attributes = {"dimensions": tuple(sorted(inner ^ outer))}
    return match.make("reverse", (match.A,), attributes, match.root.shape)


def _splat_constant(match: Match) -> Instruction | None:
    literal, shape = match.root.literal, match.root.shape
    if literal is None or not isinstance(shape, ArrayShape):
        return None
    if not shape.dims or literal.splat is None:
        return None
    return match.splat_of(shape, Literal(array(shape.dtype), literal.splat))


def _sink_broadcast(match: Match) -> Instruction | None:
    """Compute before the broadcast: all operands repeat the same dimensions, or are one value."""
    root = match.root
    inner, dims = _common_broadcast(root)
    if inner is None or inner.elements >= root.array.elements:
        return None
    operands = tuple(_before_broadcast(match, operand, inner) for operand in root.operands)
    shape = inner.with_dtype(root.array.dtype)
    return _broadcast(match, match.make(root.opcode, operands, _own_attributes(root), shape), dims)


def _own_attributes(root: Instruction) -> dict[str, object]:
    schema = {entry.name for entry in root.op.attributes}
    return {name: value for name, value in root.attributes.items() if name in schema}


def _common_broadcast(root: Instruction) -> tuple[ArrayShape | None, tuple[int, ...]]:
    """The shape before the broadcasts and their dimensions; None where they do not agree."""
    inner: ArrayShape | None = None
    dims: tuple[int, ...] = ()
    for operand in root.operands:
        if _is_scalar(operand) and root.array.dims:
            continue
        if operand.opcode != "broadcast":
            return None, ()
        source = operand.operands[0].array
        if not source.dims:
            inner = inner if inner is not None else source
        elif inner is None or not inner.dims:
            inner, dims = source, _dimensions(operand)
        elif (inner.dims, inner.layout, dims) != (source.dims, source.layout, _dimensions(operand)):
            return None, ()
    return inner, dims


def _before_broadcast(match: Match, operand: Instruction, inner: ArrayShape) -> Instruction:
    if _is_scalar(operand):
        return operand
    source = operand.operands[0]
    if source.array.dims == inner.dims:
        return source
    shape = inner.with_dtype(source.array.dtype)
    return match.make("broadcast", (source,), {"dimensions": ()}, shape)


def _scalar_to_array(match: Match) -> Instruction | None:
    return _broadcast(match, match.S, ()) if match.root.array.dims else None


def _scalar_through(match: Match) -> Instruction:
    return _broadcast(match, match.S, ())


RULES = (
    Rule(
        "broadcast(A) => A",
        op("broadcast", A),
        A,
        when=_broadcast_identity,
        example="x = f32[2,3] parameter(0)\n ROOT r = f32[2,3] broadcast(x), dimensions={0,1}",
        counterexample="x = f32[3,3] parameter(0)\n"
        "ROOT r = f32[3,3] broadcast(x), dimensions={1,0}",
    ),
    Rule(
        "broadcast(broadcast(A)) => broadcast(A)",
        op("broadcast", op("broadcast", A)),
        _broadcast_once,
        example="x = f32[3] parameter(0)\n y = f32[3,2] broadcast(x), dimensions={0}\n"
        "ROOT r = f32[2,4,3] broadcast(y), dimensions={2,0}",
        counterexample="x = f32[3] parameter(0)\n y = f32[3,2] broadcast(x), dimensions={0}\n"
        "z = f32[3,2] negate(y)\n ROOT r = f32[3,2,4] broadcast(z), dimensions={0,1}",
    ),
    Rule(
        "broadcast(A) => reshape(A)",
        op("broadcast", A),
        _broadcast_is_reshape,
        example="x = f32[3,2] parameter(0)\n ROOT r = f32[3,1,2] broadcast(x), dimensions={0,2}",
        counterexample="x = f32[3,2] parameter(0)\n"
        "ROOT r = f32[2,1,3] broadcast(x), dimensions={2,0}",
    ),
    Rule(
        "broadcast(reshape(A)) => broadcast(A)",
        op("broadcast", op("reshape", A)),
        _broadcast_of_reshape,
        example="x = f32[3,2] parameter(0)\n y = f32[3,1,2] reshape(x)\n"
        "ROOT r = f32[3,1,2,4] broadcast(y), dimensions={0,1,2}",
        counterexample="x = f32[3,2] parameter(0)\n y = f32[6] reshape(x)\n"
        "ROOT r = f32[6,4] broadcast(y), dimensions={0}",
    ),
    Rule(
        "reshape(A) => A",
        op("reshape", A),
        A,
        when=_same_dims,
        example="x = f32[2,3] parameter(0)\n ROOT r = f32[2,3] reshape(x)",
        counterexample="x = f32[2,3] parameter(0)\n ROOT r = f32[3,2] reshape(x)",
    ),
    Rule(
        "reshape(reshape(A)) => reshape(A)",
        op("reshape", op("reshape", A)),
        op("reshape", A),
        example="x = f32[2,3] parameter(0)\n y = f32[6] reshape(x)\n ROOT r = f32[3,2] reshape(y)",
        counterexample="x = f32[2,3] parameter(0)\n"
        "y = f32[3,2] transpose(x), dimensions={1,0}\n ROOT r = f32[6] reshape(y)",
    ),
    Rule(
        "reshape(scalar) => broadcast(scalar)",
        op("reshape", S),
        _scalar_to_array,
        example="x = f32[] parameter(0)\n ROOT r = f32[1,1] reshape(x)",
        counterexample="x = f32[1] parameter(0)\n ROOT r = f32[1,1] reshape(x)",
    ),
    Rule(
        "reshape(broadcast(A)) => broadcast(A)",
        op("reshape", op("broadcast", A)),
        _reshape_of_broadcast,
        example="x = f32[3] parameter(0)\n y = f32[3,4,2] broadcast(x), dimensions={0}\n"
        "ROOT r = f32[1,3,8] reshape(y)",
        counterexample="x = f32[3] parameter(0)\n y = f32[3,4] broadcast(x), dimensions={0}\n"
        "ROOT r = f32[12] reshape(y)",
    ),
    Rule(
        "reshape(iota) => iota",
        op("reshape", op("iota")),
        _reshape_of_iota,
        example="x = s32[3,4] iota(), iota_dimension=0\n ROOT r = s32[1,3,2,2] reshape(x)",
        counterexample="x = s32[3,4] iota(), iota_dimension=0\n ROOT r = s32[12] reshape(x)",
    ),
    Rule(
        "transpose(A) => A",
        op("transpose", A),
        A,
        when=_identity_permutation,
        example="x = f32[2,3] parameter(0)\n ROOT r = f32[2,3] transpose(x), dimensions={0,1}",
        counterexample="x = f32[2,2] parameter(0)\n"
        "ROOT r = f32[2,2] transpose(x), dimensions={1,0}",
    ),
    Rule(
        "transpose(transpose(A)) => transpose(A)",
        op("transpose", op("transpose", A)),
        _transpose_once,
        example="x = f32[2,3,4] parameter(0)\n y = f32[4,2,3] transpose(x), dimensions={2,0,1}\n"
        "ROOT r = f32[2,4,3] transpose(y), dimensions={1,0,2}",
        counterexample="x = f32[2,3] parameter(0)\n y = f32[2,3] reverse(x), dimensions={0}\n"
        "ROOT r = f32[3,2] transpose(y), dimensions={1,0}",
    ),
    Rule(
        "transpose(broadcast(A)) => broadcast(A)",
        op("transpose", op("broadcast", A)),
        _transpose_of_broadcast,
        example="x = f32[2,3] parameter(0)\n y = f32[2,3,4] broadcast(x), dimensions={0,1}\n"
        "ROOT r = f32[4,2,3] transpose(y), dimensions={2,0,1}",
        counterexample="x = f32[2,3] parameter(0)\n y = f32[2,3,4] broadcast(x), dimensions={0,1}\n"
        "ROOT r = f32[3,4,2] transpose(y), dimensions={1,2,0}",
    ),
    Rule(
        "transpose(iota) => iota",
        op("transpose", op("iota")),
        _transpose_of_iota,
        example="x = s32[3,4] iota(), iota_dimension=0\n"
        "ROOT r = s32[4,3] transpose(x), dimensions={1,0}",
        counterexample="x = s32[3,4] iota(), iota_dimension=0\n y = s32[3,4] negate(x)\n"
        "ROOT r = s32[4,3] transpose(y), dimensions={1,0}",
    ),
    Rule(
        "transpose(A) => reshape(A)",
        op("transpose", A),
        _transpose_is_reshape,
        example="x = f32[2,1,3] parameter(0)\nROOT r = f32[1,2,3] transpose(x), dimensions={1,0,2}",
        counterexample="x = f32[2,1,3] parameter(0)\n"
        "ROOT r = f32[3,1,2] transpose(x), dimensions={2,1,0}",
    ),
    Rule(
        "broadcast(iota) => iota",
        op("broadcast", op("iota")),
        _broadcast_of_iota,
        example="x = s32[3] iota(), iota_dimension=0\n"
        "ROOT r = s32[2,3] broadcast(x), dimensions={1}",
        counterexample="x = s32[3] iota(), iota_dimension=0\n y = s32[3] negate(x)\n"
        "ROOT r = s32[2,3] broadcast(y), dimensions={1}",
    ),
    Rule(
        "iota of one => 0",
        op("iota"),
        _iota_of_one,
        example="ROOT r = $T[3,1,2] iota(), iota_dimension=1",
        counterexample="ROOT r = s32[3,1,2] iota(), iota_dimension=0",
        types=("s32", "f32", "u8"),
    ),
    Rule(
        "reverse(A) => A",
        op("reverse", A),
        A,
        when=_reverse_nothing,
        example="x = f32[2,1] parameter(0)\n ROOT r = f32[2,1] reverse(x), dimensions={1}",
        counterexample="x = f32[2,1] parameter(0)\n ROOT r = f32[2,1] reverse(x), dimensions={0,1}",
    ),
    Rule(
        "reverse(reverse(A)) => reverse(A)",
        op("reverse", op("reverse", A)),
        _reverse_once,
        example="x = f32[2,3] parameter(0)\n y = f32[2,3] reverse(x), dimensions={0,1}\n"
        "ROOT r = f32[2,3] reverse(y), dimensions={1}",
        counterexample="x = f32[2,2] parameter(0)\n y = f32[2,2] transpose(x), dimensions={1,0}\n"
        "ROOT r = f32[2,2] reverse(y), dimensions={1}",
    ),
    Rule(
        "reverse(broadcast(scalar)) => broadcast(scalar)",
        op("reverse", op("broadcast", S)),
        _scalar_through,
        example="x = f32[] parameter(0)\n y = f32[2,3] broadcast(x), dimensions={}\n"
        "ROOT r = f32[2,3] reverse(y), dimensions={1}",
        counterexample="x = f32[3] parameter(0)\n y = f32[2,3] broadcast(x), dimensions={1}\n"
        "ROOT r = f32[2,3] reverse(y), dimensions={1}",
    ),
    Rule(
        "constant(C, C, ...) => broadcast(C)",
        op("constant"),
        _splat_constant,
        example="ROOT r = $T[3] constant({1, 1, 1})",
        counterexample="ROOT r = f32[3] constant({0, -0.0, 0})",
        types=("f32", "bf16", "s32"),
    ),
    Rule(
        "f(broadcast(A), broadcast(B)) => broadcast(f(A, B))",
        op(_ELEMENTWISE),
        _sink_broadcast,
        example="x = f32[3] parameter(0)\n y = f32[3] parameter(1)\n c = f32[] constant(2)\n"
        "a = f32[3,4] broadcast(x), dimensions={0}\n b = f32[3,4] broadcast(y), dimensions={0}\n"
        "d = f32[3,4] broadcast(c), dimensions={}\n ROOT r = f32[3,4] clamp(a, d, b)",
        counterexample="x = f32[4] parameter(0)\n a = f32[4,4] broadcast(x), dimensions={0}\n"
        "b = f32[4,4] broadcast(x), dimensions={1}\n ROOT r = f32[4,4] add(a, b)",
    ),
)
