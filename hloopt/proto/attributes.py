"""The attributes of every opcode in the order of XLA's text, each beside its fields in the proto."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from hloopt.ops import OPS, op_of
from hloopt.ops.traits import op_table
from hloopt.proto import groups, windows
from hloopt.proto.annotations import (
    read_aliasing,
    read_frontend,
    read_origin,
    read_replication,
    read_statistics,
    write_aliasing,
    write_frontend,
    write_origin,
    write_replication,
    write_statistics,
)
from hloopt.proto.entry import Entry, Target
from hloopt.proto.messages import text
from hloopt.proto.payloads import BACKEND_CONFIG
from hloopt.proto.precision import ALGORITHM, OPERAND_PRECISION, RESULT_ACCURACY
from hloopt.proto.problem import Problem
from hloopt.proto.rows import (
    Row,
    flag,
    integers,
    number,
    numbers_in,
    of_message,
    quoted,
    shape,
    word,
    word_text,
)
from hloopt.proto.sharding_rows import DOMAIN, SHARDING
from hloopt.proto.words import (
    API_VERSIONS,
    CONVOLUTION_KINDS,
    DISTRIBUTIONS,
    FFT_TYPES,
    PADDING_TYPES,
    RNG_ALGORITHMS,
    SCHEDULES,
    number_of,
)
from hloopt.types import ArrayShape, Literal, Shape, TupleShape, Verbatim

__all__ = ["COMMON", "rows_of"]

_DIMENSIONS = integers("dimensions")
_DIMENSIONS_OPTIONAL = integers("dimensions", optional=True)


_FRONTEND, _STATISTICS, _ORIGIN, _REPLICATION = (
    of_message(*row)
    for row in (
        (
            "frontend_attributes",
            "frontend_attributes",
            "FrontendAttributes",
            read_frontend,
            write_frontend,
        ),
        ("statistics", "statistics_viz", "StatisticsViz", read_statistics, write_statistics),
        ("origin", "original_value", "OriginalValue", read_origin, write_origin),
        (
            "parameter_replication",
            "parameter_replication",
            "ParameterReplication",
            read_replication,
            write_replication,
        ),
    )
)

# Behind those of the opcode and the computations it calls.
COMPOSITE = flag("is_composite")
COMMON = (COMPOSITE, SHARDING, _FRONTEND, _STATISTICS, _ORIGIN, BACKEND_CONFIG)


# ---- attributes of one op ---------------------------------------------------------------------------


def _aliasing() -> Row:
    field = "output_operand_aliasing"

    def read(entry: Entry) -> Verbatim | None:
        return read_aliasing(entry.proto.output_operand_aliasing)

    def write(target: Target, value: Verbatim) -> None:
        write_aliasing(target.proto.output_operand_aliasing, value)

    return Row("output_to_operand_aliasing", (field,), read, write)


def _comparison_type() -> Row:
    """Left out where it is that of the operands' element type."""

    def usual(of: Shape) -> str:
        if not isinstance(of, ArrayShape):
            return ""
        kind = of.dtype.kind
        return {"signed": "SIGNED", "unsigned": "UNSIGNED", "pred": "UNSIGNED"}.get(kind, "FLOAT")

    def read(entry: Entry) -> str | None:
        found = text(entry.proto.comparison_type)
        return (
            None if not entry.operands or found == usual(entry.operands[0].shape) else found or None
        )

    def write(target: Target, value: str | None) -> None:
        kind = value or usual(target.instruction.operands[0].shape)
        target.proto.comparison_type = kind.encode()

    return Row("type", ("comparison_type",), read, write)


def _epsilon() -> Row:
    def read(entry: Entry) -> float:
        # The shortest decimal of the single-precision number, as a text has it.
        return float(str(np.float32(entry.proto.epsilon)))

    def write(target: Target, value: float) -> None:
        target.proto.epsilon = value

    return Row("epsilon", ("epsilon",), read, write, always=True)


def _iota() -> Row:
    def read(entry: Entry) -> int:
        if len(entry.proto.dimensions) != 1:
            raise Problem("an iota has one dimension", "dimensions")
        return int(entry.proto.dimensions[0])

    def write(target: Target, value: int) -> None:
        target.proto.dimensions.append(value)

    return Row("iota_dimension", ("dimensions",), read, write, always=True)


def _inferred_dimension() -> Row:
    def read(entry: Entry) -> int | None:
        dims = entry.proto.dimensions
        return dims[0] if dims and dims[0] >= 0 else None

    def write(target: Target, value: int) -> None:
        target.proto.dimensions.append(value)

    return Row("inferred_dimension", ("dimensions",), read, write)


def _prefetch() -> Row:
    field = "cross_program_prefetch_index"

    def read(entry: Entry) -> int | None:
        if entry.proto.HasField(field):
            return int(entry.proto.cross_program_prefetch_index)
        return 0 if entry.proto.is_cross_program_prefetch else None

    def write(target: Target, value: int) -> None:
        target.proto.cross_program_prefetch_index = value

    return Row(field, (field, "is_cross_program_prefetch"), read, write)


def _constraints() -> Row:
    """The layouts a custom call asks for; an empty list says that there are no operands."""

    def read(entry: Entry) -> tuple[Shape, ...] | None:
        if not entry.proto.constrain_layout:
            return None
        found = []
        for index, data in enumerate(entry.proto.operand_shapes_with_layout):
            try:
                found.append(entry.reading.shapes.read(data))
            except Problem as problem:
                raise problem.within(f"operand_shapes_with_layout[{index}]") from None
        return tuple(found)

    def write(target: Target, value: tuple[Shape, ...]) -> None:
        target.proto.constrain_layout = True
        target.proto.operand_shapes_with_layout.extend(map(target.writing.shapes.write, value))

    fields = ("constrain_layout", "operand_shapes_with_layout")
    return Row("operand_layout_constraints", fields, read, write)


def _literal(*, of_constant: bool) -> Row:
    """A constant's value, elided where the proto has none; a custom call's literal."""
    from hloopt.proto.literals import read_literal, write_literal

    def read(entry: Entry) -> Literal | None:
        data = entry.proto.literal
        if not data and of_constant:
            if not isinstance(entry.shape, (ArrayShape, TupleShape)):
                raise Problem(f"{entry.shape} has no literals", "shape")
            if isinstance(entry.shape, ArrayShape) and not entry.shape.dims:
                # Texts leave out large values only.
                raise Problem("a constant of one element has no value", "literal")
            return Literal(entry.shape, elided=True)
        if not data:
            return None
        try:
            return read_literal(data, entry.reading.shapes, entry.reading.warnings)
        except Problem as problem:
            raise problem.within("literal") from None

    def write(target: Target, value: Literal) -> None:
        if not value.elided:
            made = write_literal(value, target.writing.shapes)
            target.proto.literal = made.SerializeToString()

    return Row("literal", ("literal",), read, write, always=of_constant)


def _associative() -> Row:
    def read(entry: Entry) -> bool | None:
        return {1: True, 2: False}.get(entry.proto.is_associative)

    def write(target: Target, value: bool) -> None:
        target.proto.is_associative = 1 if value else 2

    return Row("is_associative", ("is_associative",), read, write)


def _convolution_kind() -> Row:
    row = word("convolution_kind", "conv_kind", CONVOLUTION_KINDS, unless=0)

    def write(target: Target, value: str) -> None:
        target.proto.conv_kind = number_of(CONVOLUTION_KINDS, value)

    return Row(row.name, row.fields, row.read, write)


_ALIASING = _aliasing()
_THREAD = quoted("async_execution_thread", unless="main")
_CHANNEL = groups.CHANNEL_ID
_GLOBAL = flag("use_global_device_ids")
_LAYOUT = flag("constrain_layout")
_COLLECTIVE = (_CHANNEL, groups.REPLICA_GROUPS, _LAYOUT)
_TRANSFER = (_CHANNEL, flag("is_host_transfer"))
_GATHER = "gather_dimension_numbers", "GatherDimensionNumbers"
_SCATTER = "scatter_dimension_numbers", "ScatterDimensionNumbers"
_BATCH_NORM = (_epsilon(), number("feature_index"))
_GROUPS = (
    number("feature_group_count", unless=1),
    number("batch_group_count", unless=1),
)
_SORTED = flag("indices_are_sorted")


def _in(message: tuple[str, str], name: str, *, optional: bool = False) -> Row:
    field, kind = message
    return numbers_in(name, kind, field, name, optional=optional)


_DOT = (*groups.DOT, OPERAND_PRECISION, ALGORITHM)

_WRITTEN = frozenset(
    opcode
    for opcode, row in OPS.items()
    if not {entry.name for entry in row.attributes}
    <= {"result_accuracy", *row.computation_attributes()}
)
_ROWS: Mapping[str, tuple[Row, ...]] = op_table(
    {
        "all-gather": (*_COLLECTIVE, _DIMENSIONS, _GLOBAL),
        "all-gather-start": (*_COLLECTIVE, _DIMENSIONS, _GLOBAL),
        "all-reduce": (*_COLLECTIVE, _GLOBAL),
        "all-reduce-start": (*_COLLECTIVE, _GLOBAL),
        "all-to-all": (*_COLLECTIVE, _DIMENSIONS_OPTIONAL),
        "async-start": (_THREAD, _ALIASING),
        "async-update": (_THREAD,),
        "async-done": (_THREAD,),
        "batch-norm-grad": _BATCH_NORM,
        "batch-norm-inference": _BATCH_NORM,
        "batch-norm-training": _BATCH_NORM,
        "broadcast": (_DIMENSIONS,),
        "call": (_ALIASING,),
        "cholesky": (groups.LOWER,),
        "collective-broadcast": _COLLECTIVE,
        "collective-permute": (_CHANNEL, groups.SOURCE_TARGET_PAIRS, groups.SLICE_SIZES),
        "collective-permute-start": (
            _CHANNEL,
            groups.SOURCE_TARGET_PAIRS,
            groups.SLICE_SIZES,
            _ALIASING,
        ),
        "compare": (word_text("direction", "comparison_direction"), _comparison_type()),
        "concatenate": (_DIMENSIONS,),
        "constant": (_literal(of_constant=True),),
        "convolution": (
            windows.WINDOW,
            windows.DIM_LABELS,
            *_GROUPS,
            OPERAND_PRECISION,
            _convolution_kind(),
            groups.SPARSITY,
        ),
        "copy-start": (_prefetch(),),
        "custom-call": (
            windows.WINDOW,
            windows.DIM_LABELS,
            *_GROUPS,
            OPERAND_PRECISION,
            word("padding_type", "padding_type", PADDING_TYPES, unless=0),
            quoted("custom_call_target"),
            _constraints(),
            flag("custom_call_has_side_effect"),
            _literal(of_constant=False),
            _ALIASING,
            word("schedule", "custom_call_schedule", SCHEDULES, unless=0),
            word("api_version", "custom_call_api_version", API_VERSIONS, unless=1),
        ),
        "domain": (DOMAIN,),
        "dot": _DOT,
        "dynamic-slice": (integers("dynamic_slice_sizes"),),
        "fft": (word("fft_type", "fft_type", FFT_TYPES), integers("fft_length")),
        "fusion": (word_text("kind", "fusion_kind"), _ALIASING),
        "gather": (
            _in(_GATHER, "offset_dims"),
            _in(_GATHER, "collapsed_slice_dims"),
            _in(_GATHER, "start_index_map"),
            _in(_GATHER, "operand_batching_dims", optional=True),
            _in(_GATHER, "start_indices_batching_dims", optional=True),
            groups.vector_dim(*_GATHER),
            integers("slice_sizes", "gather_slice_sizes"),
            _SORTED,
        ),
        "get-dimension-size": (_DIMENSIONS,),
        "get-tuple-element": (number("index", "tuple_index"),),
        "infeed": (quoted("infeed_config"),),
        "iota": (_iota(),),
        "map": (_DIMENSIONS,),
        "outfeed": (shape("outfeed_shape"), quoted("outfeed_config")),
        "pad": (windows.PADDING,),
        "parameter": (number("parameter_number"), _REPLICATION),
        "ragged-all-to-all": _COLLECTIVE,
        "ragged-dot": (*groups.RAGGED_DOT, OPERAND_PRECISION, ALGORITHM),
        "recv": _TRANSFER,
        "recv-done": _TRANSFER,
        "reduce": (_DIMENSIONS,),
        "reduce-precision": (number("exponent_bits"), number("mantissa_bits")),
        "reduce-scatter": (*_COLLECTIVE, _GLOBAL, _DIMENSIONS),
        "reduce-window": (windows.WINDOW,),
        "reshape": (_inferred_dimension(),),
        "reverse": (_DIMENSIONS,),
        "rng": (word("distribution", "distribution", DISTRIBUTIONS),),
        "rng-bit-generator": (word("algorithm", "rng_algorithm", RNG_ALGORITHMS),),
        "rng-get-and-update-state": (number("delta"),),
        "scaled-dot": _DOT,
        "scan": (
            _DIMENSIONS,
            number("num_carries", unless=0),
            flag("is_reverse"),
            _associative(),
        ),
        "scatter": (
            _in(_SCATTER, "update_window_dims"),
            _in(_SCATTER, "inserted_window_dims"),
            _in(_SCATTER, "scatter_dims_to_operand_dims"),
            _in(_SCATTER, "input_batching_dims", optional=True),
            _in(_SCATTER, "scatter_indices_batching_dims", optional=True),
            groups.vector_dim(*_SCATTER),
            _SORTED,
            flag("unique_indices"),
        ),
        "select-and-scatter": (windows.WINDOW,),
        "send": _TRANSFER,
        "send-done": _TRANSFER,
        "set-dimension-size": (_DIMENSIONS,),
        "slice": (windows.SLICE,),
        "sort": (_DIMENSIONS, flag("is_stable")),
        "topk": (number("k"), groups.LARGEST),
        "transpose": (_DIMENSIONS,),
        "triangular-solve": groups.TRIANGULAR,
    },
    _WRITTEN,
)


@cache
def rows_of(opcode: str) -> tuple[Row, ...]:
    """The rows of an opcode, in the order of the text; those of ``COMMON`` come behind its calls."""
    own = _ROWS.get(opcode, ())
    unary = op_of(opcode).is_elementwise and op_of(opcode).arity == (1, 1)
    accuracy = (RESULT_ACCURACY,) if unary else ()
    return (*own, *accuracy)
