"""Ops that exchange data with other devices."""

from __future__ import annotations

from typing import Any

from hloopt.ops._regions import check_combiner
from hloopt.ops.attributes import (
    CHANNEL,
    DIMENSIONS,
    DIMENSIONS_OPTIONAL,
    OUTPUT_ALIASING,
    TO_APPLY,
)
from hloopt.ops.opdef import MANY, Attribute, Infer, InferArgs, Kind, OpDef, family
from hloopt.ops.shapes import (
    U32,
    array_operand,
    array_operands,
    attribute,
    braces,
    check_dimensions,
    declared,
    error,
    like,
    result,
    scalar_of,
    tuple_of,
    tuple_operand,
)
from hloopt.types import UNBOUNDED, ArrayShape, IotaList, Shape, TupleShape, compatible, parts_of

__all__ = ["ROWS", "group_size"]


def group_size(args: InferArgs) -> int | None:
    """Devices in a group; None where the module's device counts decide."""
    groups = args.attributes.get("replica_groups")
    # With a channel but no global ids every replica group spans all partitions.
    if "channel_id" in args.attributes and not args.attributes.get("use_global_device_ids"):
        return None
    if isinstance(groups, IotaList):
        return groups.dims[-1]
    if not isinstance(groups, tuple):
        return None
    sizes = {len(group) for group in groups}
    return sizes.pop() if len(sizes) == 1 else None


def _same(args: InferArgs) -> Shape:
    """The operand's shape, or a tuple of the operands' shapes."""
    shapes = array_operands(args)
    return like(args, shapes[0]) if len(shapes) == 1 else tuple_of(args, shapes)


def _check_reducer(args: InferArgs) -> None:
    """The computation combines scalars of the operands' types, or of one wider type throughout."""
    called = args.calls.get("to_apply", ())
    promoted = (
        called
        and len(called[0].parameters) == 2
        and all(compatible(parameter, called[0].result) for parameter in called[0].parameters)
    )
    for shape in array_operands(args):
        if not promoted:
            scalar = scalar_of(shape.dtype)
            check_combiner(args, "to_apply", (scalar,), (scalar,))


def _all_reduce(args: InferArgs) -> Shape:
    """The operands' shapes."""
    _check_reducer(args)
    return _same(args)


def _one_dimension(args: InferArgs) -> int:
    dims = attribute(args, "dimensions")
    if len(dims) != 1:
        raise error(args, f"dimensions={braces(dims)} must name one dimension")
    for shape in array_operands(args):
        check_dimensions(args, "dimensions", dims, shape.rank)
    axis: int = dims[0]
    return axis


def _resized(args: InferArgs, written: Shape, *, grow: bool) -> Shape:
    """Operands whose dimension grows or shrinks by the group size, as ``written`` says."""
    axis = _one_dimension(args)
    shapes = array_operands(args)
    parts = parts_of(written)
    if len(parts) != len(shapes):
        raise error(args, f"the result has {len(parts)} parts, there are {len(shapes)} operands")
    for index, (source, part) in enumerate(zip(shapes, parts, strict=True)):
        _check_resized(args, index, source, part, axis, grow=grow)
    return written


def _check_resized(
    args: InferArgs, index: int, source: ArrayShape, part: Shape, axis: int, *, grow: bool
) -> None:
    if (
        not isinstance(part, ArrayShape)
        or part.dtype is not source.dtype
        or part.rank != source.rank
        or any(part.dims[dim] != source.dims[dim] for dim in range(part.rank) if dim != axis)
    ):
        raise error(
            args,
            f"operand {index} has shape {source}, the result {part}; only dimension {axis} may "
            "differ",
        )
    small, large = source.dims[axis], part.dims[axis]
    if not grow:
        small, large = large, small
    if UNBOUNDED in (small, large):
        return
    size = group_size(args)
    # A text that leaves the choice of devices to the runtime has groups of one.
    if size == 1:
        size = None
    if size is not None and large != small * size:
        raise error(
            args,
            f"dimension {axis} is {source.dims[axis]} in operand {index} and {part.dims[axis]} in "
            f"the result; groups of {size} do not make that",
        )
    if size is None and (large % small if small else large):
        raise error(
            args,
            f"dimension {axis} is {source.dims[axis]} in operand {index} and {part.dims[axis]} in "
            "the result; one must divide the other",
        )


def _all_gather(args: InferArgs) -> Shape:
    """One dimension grows by the group size."""
    return _resized(args, declared(args), grow=True)


def _reduce_scatter(args: InferArgs) -> Shape:
    """One dimension shrinks by the group size."""
    _check_reducer(args)
    return _resized(args, declared(args), grow=False)


def _all_gather_start(args: InferArgs) -> Shape:
    """Operands and results."""
    shape = declared(args)
    if not isinstance(shape, TupleShape) or len(shape.elements) != 2:
        raise error(args, f"the result is {shape}, not (operands, results)")
    _check_started(args, shape.elements[0])
    _resized(args, shape.elements[1], grow=True)
    return shape


def _check_started(args: InferArgs, given: Shape) -> None:
    """The first part of a started collective: its operand, or a tuple of several."""
    wanted: Shape = args.operands[0] if len(args.operands) == 1 else TupleShape(args.operands)
    if not compatible(given, wanted) and not compatible(given, TupleShape(args.operands)):
        raise error(args, f"the result holds operands {given}, given are {wanted}")


def _all_to_all(args: InferArgs) -> Shape:
    """With a dimension, the operand's shape; without, a tuple with one part for each device."""
    shapes = array_operands(args)
    size = group_size(args)
    if "dimensions" not in args.attributes:
        _check_parts(args, shapes, size)
        return tuple_of(args, shapes)
    axis = _one_dimension(args)
    if len(shapes) > 1:
        raise error(args, f"dimensions= goes with one operand, not {len(shapes)}")
    if any(
        mark and size != UNBOUNDED
        for mark, size in zip(shapes[0].dynamic, shapes[0].dims, strict=False)
    ):
        raise error(args, f"operand 0 has shape {shapes[0]}, whose size is known at run time only")
    if size and shapes[0].dims[axis] != UNBOUNDED and shapes[0].dims[axis] % size:
        raise error(args, f"dimension {axis} of {shapes[0]} does not divide into groups of {size}")
    return like(args, shapes[0])


def _check_parts(args: InferArgs, shapes: list[ArrayShape], size: int | None) -> None:
    """One operand for each device of a group, all of one shape."""
    for index, shape in enumerate(shapes):
        if not compatible(shape, shapes[0]):
            raise error(
                args,
                f"operand {index} has shape {shape}, operand 0 has {shapes[0]}; they must be equal",
            )
    if size is not None and len(shapes) != size:
        raise error(args, f"{len(shapes)} operands are given for groups of {size}")


def _collective_permute(args: InferArgs) -> Shape:
    """The operands' shapes; the in-place form (input, output, starts, starts) has the output's."""
    if "slice_sizes" in args.attributes:
        if len(args.operands) != 4:
            raise error(args, f"with slice_sizes= it takes 4 operands, not {len(args.operands)}")
        return like(args, args.operands[1])
    return _same(args)


def _collective_permute_start(args: InferArgs) -> Shape:
    """Operands, results, and maybe contexts."""
    shape = declared(args)
    if not isinstance(shape, TupleShape) or len(shape.elements) < 2:
        raise error(args, f"the result is {shape}, not (operands, results)")
    if "slice_sizes" in args.attributes:
        return shape
    _check_started(args, shape.elements[0])
    if not compatible(shape.elements[0], shape.elements[1]):
        raise error(
            args, f"operand {shape.elements[0]} and result {shape.elements[1]} must be equal"
        )
    return shape


def _second_part(args: InferArgs) -> Shape:
    """The result inside what the start gives."""
    state = tuple_operand(args, 0)
    if len(state.elements) < 2:
        raise error(args, f"operand 0 has shape {state}, not (operands, results)")
    return like(args, state.elements[1])


def _all_reduce_done(args: InferArgs) -> Shape:
    """The shape of what the start gives."""
    return like(args, args.operands[0])


def _ragged_all_to_all(args: InferArgs) -> Shape:
    """The shape of the output operand."""
    source, output = array_operand(args, 0), array_operand(args, 1)
    if source.dtype is not output.dtype or source.dims[1:] != output.dims[1:]:
        raise error(
            args, f"input {source} and output {output} may differ in their first dimension only"
        )
    for index in range(2, 6):
        shape = array_operand(args, index)
        if not shape.dtype.is_integer:
            raise error(args, f"operand {index} has shape {shape}, not an array of integers")
        if shape.rank not in (1, 2):
            raise error(args, f"operand {index} has shape {shape}, not a vector or matrix")
        first = array_operand(args, 2)
        if not compatible(shape, first):
            raise error(
                args,
                f"operand {index} has shape {shape}, operand 2 has {first}; they must be equal",
            )
    return like(args, output)


def _identity_number(args: InferArgs) -> Shape:
    """``u32[]``."""
    return result(args, U32, ())


_row = family("collective")
_LAYOUT = Kind.BOOL("constrain_layout")
_GLOBAL = Kind.BOOL("use_global_device_ids")
_GATHER = (DIMENSIONS, *CHANNEL, _GLOBAL, _LAYOUT)
_REDUCE = (*CHANNEL, _GLOBAL, _LAYOUT, TO_APPLY)
_PERMUTE = (
    Kind.INT("channel_id"),
    Kind.GROUPS("source_target_pairs", required=True),
    Kind.GROUPS("slice_sizes"),
)


def _exchange(
    opcode: str,
    most: int,
    infer: Infer,
    attributes: tuple[Attribute, ...],
    doc: str,
    **columns: Any,
) -> OpDef:
    columns = {"side_effect": True, "inferable": False, "doc": doc, **columns}
    return _row(opcode, (1, most), infer, *attributes, **columns)


ROWS = (
    _exchange("all-gather", MANY, _all_gather, _GATHER, "the group's operands one after another"),
    _exchange("all-gather-done", 1, _second_part, (), "wait for an all-gather", phase="done"),
    _exchange(
        "all-gather-start", MANY, _all_gather_start, _GATHER, "start an all-gather", phase="start"
    ),
    _exchange(
        "all-reduce", MANY, _all_reduce, _REDUCE, "the group's operands combined", calls="elements"
    ),
    _exchange("all-reduce-done", 1, _all_reduce_done, (), "wait for an all-reduce", phase="done"),
    _exchange(
        "all-reduce-start",
        MANY,
        _all_reduce,
        _REDUCE,
        "start an all-reduce",
        phase="start",
        calls="elements",
    ),
    _exchange(
        "all-to-all",
        MANY,
        _all_to_all,
        (DIMENSIONS_OPTIONAL, *CHANNEL, _LAYOUT),
        "part i goes to device i of the group",
    ),
    _exchange(
        "collective-broadcast", MANY, _same, CHANNEL, "the operand of the group's first device"
    ),
    _exchange(
        "collective-permute",
        MANY,
        _collective_permute,
        _PERMUTE,
        "the operand of another device, zeros where no pair names this one",
    ),
    _exchange(
        "collective-permute-done",
        1,
        _second_part,
        (),
        "wait for a collective-permute",
        phase="done",
    ),
    _exchange(
        "collective-permute-start",
        MANY,
        _collective_permute_start,
        (*_PERMUTE, OUTPUT_ALIASING),
        "start a collective-permute",
        phase="start",
    ),
    _row(
        "partition-id",
        0,
        _identity_number,
        cheap="always",
        elemental=True,
        doc="the number of this partition",
    ),
    _row(
        "ragged-all-to-all",
        6,
        _ragged_all_to_all,
        *CHANNEL,
        side_effect=True,
        inferable=False,
        doc="slices of run-time sizes exchanged between devices",
    ),
    _exchange(
        "reduce-scatter",
        MANY,
        _reduce_scatter,
        (DIMENSIONS, *_REDUCE),
        "the group's operands combined, each device keeps its part",
        calls="elements",
    ),
    _row(
        "replica-id",
        0,
        _identity_number,
        cheap="always",
        elemental=True,
        doc="the number of this replica",
    ),
)
