"""Ops that apply a computation along or over elements: reduce, map, scan."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.ops._regions import check_combiner, check_parameters, scalar_results
from hloopt.ops.attributes import DIMENSIONS, DIMENSIONS_OPTIONAL, TO_APPLY
from hloopt.ops.opdef import MANY, InferArgs, Kind, Signature, family
from hloopt.ops.shapes import (
    array_operands,
    attribute,
    braces,
    check_dimensions,
    error,
    require_one_precision,
    require_same,
    result,
    row_major,
    signature,
    tuple_of,
)
from hloopt.types import ArrayShape, Shape, TupleShape, compatible, descending, parts_of

__all__ = ["ROWS"]


def _map(args: InferArgs) -> Shape:
    """The operands' dimensions with the computation's result type."""
    shapes = array_operands(args)
    require_same(args, shapes)
    first = shapes[0]
    dims = args.attributes.get("dimensions", ())
    if dims and tuple(dims) != tuple(range(first.rank)):
        raise error(args, f"dimensions={braces(dims)} must list all {first.rank} dimensions")
    require_one_precision(args)
    called = signature(args, "to_apply")
    check_parameters(args, "to_apply", called, [shape.dtype for shape in shapes])
    results = scalar_results(args, "to_apply", called)
    if len(results) != 1 or isinstance(called.result, TupleShape):
        raise error(args, f"to_apply= returns {called.result}, not one scalar")
    return result(args, results[0], first.dims, first.dynamic)


def _reduce(args: InferArgs) -> Shape:
    """The dimensions that are not reduced; n inputs, then n initial values."""
    count, rest = divmod(len(args.operands), 2)
    if rest or not count:
        raise error(args, f"{len(args.operands)} operands are not n inputs and n initial values")
    inputs, inits = array_operands(args, 0, count), array_operands(args, count)
    require_same(args, inputs, "input")
    for index, init in enumerate(inits):
        if init.rank:
            raise error(args, f"initial value {index} has shape {init}, not a scalar")
    source = inputs[0]
    reduced = attribute(args, "dimensions")
    check_dimensions(args, "dimensions", reduced, source.rank)
    require_one_precision(args)
    called = check_combiner(args, "to_apply", inits, inputs)
    kept = [dim for dim in range(source.rank) if dim not in reduced]
    sizes = tuple(source.dims[dim] for dim in kept)
    dynamic = tuple(source.dynamic[dim] for dim in kept) if source.dynamic else ()
    if not isinstance(called.result, TupleShape):
        return result(args, inits[0].dtype, sizes, dynamic)
    return tuple_of(args, (row_major(init.dtype, sizes, dynamic) for init in inits))


def _scan(args: InferArgs) -> Shape:
    """Outputs with the scanned dimension put back, then the carries.

    Operands are the inputs, then ``num_carries`` initial carries; the computation takes slices of the
    inputs without the scanned dimension, and carries.
    """
    shapes = array_operands(args)
    carries = args.attributes.get("num_carries", 0)
    if not 0 <= carries <= len(shapes):
        raise error(args, f"num_carries={carries} is not in [0, {len(shapes)}]")
    inputs, inits = shapes[: len(shapes) - carries], shapes[len(shapes) - carries :]
    axis, size = _scanned(args, inputs)
    called = signature(args, "to_apply")
    _check_step(args, called, [*(_sliced(shape, axis) for shape in inputs), *inits])
    parts = parts_of(called.result)
    outputs = len(parts) - carries
    if outputs < 0:
        raise error(args, f"to_apply= returns {called.result}, which lacks the {carries} carries")
    if not inputs and not outputs:
        raise error(args, "there is neither an input to scan nor an output")
    for index, (part, init) in enumerate(zip(parts[outputs:], inits, strict=True)):
        if not compatible(part, init):
            raise error(args, f"to_apply= returns {part} for carry {index} of shape {init}")
    found = (*(_stacked(args, part, axis, size) for part in parts[:outputs]), *inits)
    if len(found) == 1 and not isinstance(args.declared, TupleShape):
        return result(args, found[0].dtype, found[0].dims)
    return tuple_of(args, found)


def _scanned(args: InferArgs, inputs: Sequence[ArrayShape]) -> tuple[int, int]:
    """The scanned dimension and its size: that of the inputs, or of a result where there are none."""
    dims = attribute(args, "dimensions")
    if len(dims) != 1:
        raise error(args, f"dimensions={braces(dims)} must name one dimension")
    axis = dims[0]
    written = args.declared
    results = written.elements if isinstance(written, TupleShape) else (written,)
    sources = inputs or [shape for shape in results[:1] if isinstance(shape, ArrayShape)]
    if not sources:
        raise error(args, "there is neither an input to scan nor an output")
    for shape in sources:
        check_dimensions(args, "dimensions", dims, shape.rank)
        if shape.dims[axis] != sources[0].dims[axis]:
            raise error(
                args, f"inputs {sources[0]} and {shape} differ in the scanned dimension {axis}"
            )
    return axis, sources[0].dims[axis]


def _sliced(shape: ArrayShape, axis: int) -> ArrayShape:
    dims = (*shape.dims[:axis], *shape.dims[axis + 1 :])
    return ArrayShape(shape.dtype, dims, descending(len(dims)))


def _check_step(args: InferArgs, called: Signature, passed: Sequence[ArrayShape]) -> None:
    """The computation takes a slice of each input, and the carries."""
    taken = called.parameters
    if len(taken) != len(passed):
        raise error(args, f"to_apply= takes {len(taken)} parameters, {len(passed)} are passed")
    for index, (wanted, given) in enumerate(zip(taken, passed, strict=True)):
        if not compatible(wanted, given):
            raise error(args, f"to_apply=: parameter {index} has shape {wanted}, {given} is passed")


def _stacked(args: InferArgs, part: Shape, axis: int, size: int) -> ArrayShape:
    if not isinstance(part, ArrayShape) or axis > part.rank:
        raise error(args, f"to_apply= returns {part}, which has no place for dimension {axis}")
    dims = (*part.dims[:axis], size, *part.dims[axis:])
    return ArrayShape(part.dtype, dims, descending(len(dims)))


_row = family("reduction")

ROWS = (
    _row(
        "map",
        (1, MANY),
        _map,
        DIMENSIONS_OPTIONAL,
        TO_APPLY,
        calls="elements",
        elemental=True,
        doc="a scalar computation applied to the operands' elements",
    ),
    _row(
        "reduce",
        (2, MANY),
        _reduce,
        DIMENSIONS,
        TO_APPLY,
        calls="elements",
        folds=True,
        elemental=True,
        hero=True,
        doc="fold dimensions with a scalar computation, from an initial value",
    ),
    _row(
        "scan",
        (1, MANY),
        _scan,
        DIMENSIONS,
        Kind.INT("num_carries"),
        Kind.BOOL("is_reverse"),
        Kind.BOOL("is_associative"),
        TO_APPLY,
        inferable=False,
        calls="elements",
        doc="fold along a dimension and keep what every step gives",
    ),
)
