"""Ops that slide a window: reduce-window, select-and-scatter; and batch normalisation."""

from __future__ import annotations

from hloopt.ops._regions import check_combiner, check_predicate
from hloopt.ops.attributes import TO_APPLY
from hloopt.ops.opdef import MANY, InferArgs, Kind, family
from hloopt.ops.shapes import (
    array_operand,
    array_operands,
    attribute,
    dims_agree,
    error,
    like,
    require_same,
    require_same_dtype,
    result,
    row_major,
    signature,
    size_agrees,
    tuple_of,
    window_of,
    windowed,
)
from hloopt.types import ArrayShape, Shape, TupleShape

__all__ = ["ROWS"]


def _reduce_window(args: InferArgs) -> Shape:
    """One element per window position; n inputs, then n initial values."""
    count, rest = divmod(len(args.operands), 2)
    if rest or not count:
        raise error(args, f"{len(args.operands)} operands are not n inputs and n initial values")
    inputs, inits = array_operands(args, 0, count), array_operands(args, count)
    require_same(args, inputs, "input")
    for index, init in enumerate(inits):
        if init.rank:
            raise error(args, f"initial value {index} has shape {init}, not a scalar")
    sizes = windowed(args, inputs[0].dims, window_of(args, inputs[0].rank))
    if args.declared is None:
        # Who leaves the shape out may mix float types: XLA infers it all the same.
        called = signature(args, "to_apply")
    else:
        called = check_combiner(args, "to_apply", inits, inputs)
    marks = inputs[0].dynamic
    if not isinstance(called.result, TupleShape):
        return result(args, inits[0].dtype, sizes, marks)
    return tuple_of(args, (row_major(init.dtype, sizes, marks) for init in inits))


def _select_and_scatter(args: InferArgs) -> Shape:
    """The operand's shape; the source has one element per window position."""
    operand, source, init = array_operands(args)
    require_same_dtype(args, (operand, source, init))
    if init.rank:
        raise error(args, f"the initial value has shape {init}, not a scalar")
    sizes = windowed(args, operand.dims, window_of(args, operand.rank))
    if not dims_agree(source.dims, sizes):
        raise error(
            args,
            f"the source has dimensions {list(source.dims)}, the window gives {list(sizes)}; "
            "they must be equal",
        )
    check_predicate(args, "select", (operand.dtype, operand.dtype))
    check_combiner(args, "scatter", (init,), (source,), any_precision=True)
    return like(args, operand)


def _features(args: InferArgs, operand: ArrayShape, first: int, last: int) -> ArrayShape:
    """The shape of a per-feature vector, which operands ``first..last`` must have; all types equal."""
    index = attribute(args, "feature_index")
    if not 0 <= index < operand.rank:
        raise error(args, f"feature_index={index} is not a dimension of rank {operand.rank}")
    if not operand.dtype.is_float:
        raise error(args, f"operand 0 has element type {operand.dtype.name}, not a float type")
    require_same_dtype(args, array_operands(args))
    size = operand.dims[index]
    for number in range(first, last):
        shape = array_operand(args, number)
        if shape.rank != 1 or not size_agrees(shape.dims[0], size):
            raise error(
                args, f"operand {number} has shape {shape}, not one element for each of {size}"
            )
    marks = operand.dynamic[index : index + 1]
    return row_major(operand.dtype, (size,), marks)


def _batch_norm_training(args: InferArgs) -> Shape:
    """Normalised operand, mean, variance."""
    operand = array_operand(args, 0)
    feature = _features(args, operand, 1, 3)
    return tuple_of(args, (operand, feature, feature))


def _batch_norm_inference(args: InferArgs) -> Shape:
    """The operand's shape."""
    operand = array_operand(args, 0)
    _features(args, operand, 1, 5)
    return like(args, operand)


def _batch_norm_grad(args: InferArgs) -> Shape:
    """Gradients of operand, scale and offset."""
    operand, gradient = array_operand(args, 0), array_operand(args, 4)
    feature = _features(args, operand, 1, 4)
    if not dims_agree(gradient.dims, operand.dims):
        raise error(args, f"the gradient has shape {gradient}, the operand {operand}")
    return tuple_of(args, (operand, feature, feature))


_row = family("window")
_WINDOW = Kind.WINDOW("window")
_BATCH_NORM = (
    Kind.FLOAT("epsilon", required=True),
    Kind.INT("feature_index", required=True),
)

ROWS = (
    _row(
        "batch-norm-grad", 5, _batch_norm_grad, *_BATCH_NORM, doc="gradients of batch normalisation"
    ),
    _row(
        "batch-norm-inference",
        5,
        _batch_norm_inference,
        *_BATCH_NORM,
        doc="normalise with a given mean and variance per feature",
    ),
    _row(
        "batch-norm-training",
        3,
        _batch_norm_training,
        *_BATCH_NORM,
        doc="normalise with the batch's own mean and variance per feature",
    ),
    _row(
        "reduce-window",
        (2, MANY),
        _reduce_window,
        _WINDOW,
        TO_APPLY,
        calls="elements",
        folds=True,
        elemental=True,
        doc="fold every window of the input with a scalar computation",
    ),
    _row(
        "select-and-scatter",
        3,
        _select_and_scatter,
        _WINDOW,
        Kind.COMPUTATION("select", required=True),
        Kind.COMPUTATION("scatter", required=True),
        calls="elements",
        folds=True,
        elemental=True,
        doc="in every window pick an element and combine a source value into its place",
    ),
)
