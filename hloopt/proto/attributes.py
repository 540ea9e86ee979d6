"""The attributes of every opcode in the order of XLA's text, each beside its fields in the proto."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import numpy as np

from hloopt.ops import OPS, op_of
from hloopt.ops.traits import op_table
from hloopt.proto import ProtoProblem, groups, windows, within
from hloopt.proto.annotations import (
    json_or_string,
    read_frontend,
    read_origin,
    read_replication,
    read_statistics,
    write_frontend,
    write_origin,
    write_replication,
    write_statistics,
)
from hloopt.proto.entry import ProtoSource, ProtoTarget, said
from hloopt.proto.literals import read_literal, write_literal
from hloopt.proto.messages import encoded, text
from hloopt.proto.precision import ALGORITHM, OPERAND_PRECISION, RESULT_ACCURACY
from hloopt.proto.rows import (
    ProtoRow,
    field,
    flag,
    integers,
    number,
    of_message,
    quoted,
    records,
    word,
    word_text,
)
from hloopt.proto.sharding import DOMAIN, SHARDING
from hloopt.proto.words import (
    API_VERSIONS,
    CONVOLUTION_KINDS,
    DISTRIBUTIONS,
    FFT_TYPES,
    PADDING_TYPES,
    RNG_ALGORITHMS,
    SCHEDULES,
)
from hloopt.types import AliasEntry, ArrayShape, Literal, Shape, TupleShape, Verbatim
from hloopt.types.strings import unquote

__all__ = ["COMMON", "rows_by_name", "rows_of"]

_DIMENSIONS = integers("dimensions")
_DIMENSIONS_OPTIONAL = integers("dimensions", optional=True)


def _backend_config() -> ProtoRow:
    """Bytes in the instruction, or in the module's table of payloads."""

    def read(entry: ProtoSource) -> Verbatim | None:
        data = entry.proto.backend_config
        if not data and entry.proto.backend_config_payload:
            payload = entry.message("Payload", "backend_config_payload")
            data = payload.value
            if payload.HasField("id"):
                if not 0 <= payload.id < len(entry.reading.payloads):
                    message = f"the module has no payload {payload.id}"
                    raise ProtoProblem(message, "backend_config_payload.id")
                data = entry.reading.payloads[payload.id]
        return Verbatim(json_or_string(text(data))) if data else None

    def write(target: ProtoTarget, value: Verbatim) -> None:
        word = value.text
        raw = unquote(word) if word[:1] in {'"', "'"} else word
        target.proto.backend_config = encoded(raw)

    return ProtoRow("backend_config", ("backend_config", "backend_config_payload"), read, write)


# After those of the opcode and the computations it calls.
COMMON = (
    flag("is_composite"),
    SHARDING,
    of_message("frontend_attributes", "frontend_attributes", read_frontend, write_frontend),
    of_message("statistics", "statistics_viz", read_statistics, write_statistics),
    of_message("origin", "original_value", read_origin, write_origin),
    _backend_config(),
)


# ---- attributes of one op ---------------------------------------------------------------------------


def _aliasing() -> ProtoRow:
    """Parts of the result in the buffers of operands; kinds have no field."""
    name, field = "output_to_operand_aliasing", "output_operand_aliasing"
    taken, put = records(AliasEntry, "output_shape_index", "operand_index", "operand_shape_index")

    def read(entry: ProtoSource) -> Verbatim | None:
        found = taken(entry.proto.output_operand_aliasing)
        return AliasEntry.listed(found) if found else None

    def write(target: ProtoTarget, value: Verbatim) -> None:
        put(target.proto.output_operand_aliasing, said(name, value, tuple))

    return ProtoRow(name, (field,), read, write)


def _comparison_type() -> ProtoRow:
    """Left out where it is that of the operands' element type."""

    def usual(of: Shape) -> str:
        if not isinstance(of, ArrayShape):
            return ""
        kind = of.dtype.kind
        return {"signed": "SIGNED", "unsigned": "UNSIGNED", "pred": "UNSIGNED"}.get(kind, "FLOAT")

    def read(entry: ProtoSource) -> str | None:
        found = text(entry.proto.comparison_type)
        is_usual = not entry.operands or found == usual(entry.operands[0].shape)
        return None if is_usual else found or None

    def write(target: ProtoTarget, value: str | None) -> None:
        kind = value or usual(target.instruction.operands[0].shape)
        target.proto.comparison_type = kind.encode()

    return ProtoRow("type", ("comparison_type",), read, write)


def _epsilon(value: float) -> float:
    """The shortest decimal of the single-precision number, as a text has it."""
    return float(str(np.float32(value)))


def _one_dimension(dims: Sequence[int]) -> int:
    if len(dims) != 1:
        raise ProtoProblem("an iota has one dimension", "dimensions")
    return dims[0]


def _inferred_dimension(dims: Sequence[int]) -> int | None:
    return dims[0] if dims and dims[0] >= 0 else None


def _listed(value: int) -> tuple[int, ...]:
    return (value,)


def _prefetch() -> ProtoRow:
    field = "cross_program_prefetch_index"

    def read(entry: ProtoSource) -> int | None:
        if entry.proto.HasField(field):
            return int(entry.proto.cross_program_prefetch_index)
        return 0 if entry.proto.is_cross_program_prefetch else None

    def write(target: ProtoTarget, value: int) -> None:
        target.proto.cross_program_prefetch_index = value

    return ProtoRow(field, (field, "is_cross_program_prefetch"), read, write)


def _constraints() -> ProtoRow:
    """The layouts a custom call requires; an empty list says that there are no operands."""

    def read(entry: ProtoSource) -> tuple[Shape, ...] | None:
        if not entry.proto.constrain_layout:
            return None
        found = []
        for index, data in enumerate(entry.proto.operand_shapes_with_layout):
            with within(f"operand_shapes_with_layout[{index}]"):
                found.append(entry.reading.shapes.read(data))
        return tuple(found)

    def write(target: ProtoTarget, value: tuple[Shape, ...]) -> None:
        target.proto.constrain_layout = True
        target.proto.operand_shapes_with_layout.extend(map(target.writing.shapes.write, value))

    fields = ("constrain_layout", "operand_shapes_with_layout")
    return ProtoRow("operand_layout_constraints", fields, read, write)


def _outfeed_shape() -> ProtoRow:
    name = "outfeed_shape"

    def read(entry: ProtoSource) -> Shape | None:
        data = entry.proto.outfeed_shape
        with within(name):
            return entry.reading.shapes.read(data) if data else None

    def write(target: ProtoTarget, value: Shape) -> None:
        target.proto.outfeed_shape = target.writing.shapes.write(value)

    return ProtoRow(name, (name,), read, write)


def _literal(*, of_constant: bool) -> ProtoRow:
    """A constant's value, elided where the proto has none; a custom call's literal."""

    def read(entry: ProtoSource) -> Literal | None:
        data = entry.proto.literal
        if not data and of_constant:
            if not isinstance(entry.shape, (ArrayShape, TupleShape)):
                raise ProtoProblem(f"{entry.shape} has no literals", "shape")
            if isinstance(entry.shape, ArrayShape) and not entry.shape.dims:
                # Texts leave out large values only.
                raise ProtoProblem("a constant of one element has no value", "literal")
            return Literal(entry.shape, elided=True)
        if not data:
            return None
        with within("literal"):
            return read_literal(data, entry.reading.shapes, entry.reading.warnings)

    def write(target: ProtoTarget, value: Literal) -> None:
        if not value.elided:
            made = write_literal(value, target.writing.shapes)
            target.proto.literal = made.SerializeToString()

    return ProtoRow("literal", ("literal",), read, write, always=of_constant)


_ALIASING = _aliasing()
_THREAD = quoted("async_execution_thread", unless="main")
_CHANNEL = groups.CHANNEL_ID
_GLOBAL = flag("use_global_device_ids")
_COLLECTIVE = (_CHANNEL, groups.REPLICA_GROUPS, flag("constrain_layout"))
_TRANSFER = (_CHANNEL, flag("is_host_transfer"))
_BATCH_NORM = (
    field("epsilon", "", _epsilon, float, always=True),
    number("feature_index"),
)
_CONVOLUTION = (
    windows.WINDOW,
    windows.DIM_LABELS,
    number("feature_group_count", unless=1),
    number("batch_group_count", unless=1),
    OPERAND_PRECISION,
)
_SORTED = flag("indices_are_sorted")
_GATHER, _SCATTER = "gather_dimension_numbers.", "scatter_dimension_numbers."


def _in(message: str, *names: str, optional: bool = False) -> Iterator[ProtoRow]:
    return (integers(name, message + name, optional=optional) for name in names)


_DOT = (*groups.DOT, OPERAND_PRECISION, ALGORITHM)

_WRITTEN = frozenset(
    opcode
    for opcode, row in OPS.items()
    if not {entry.name for entry in row.attributes}
    <= {"result_accuracy", *row.computation_attributes()}
)
_ROWS: Mapping[str, tuple[ProtoRow, ...]] = op_table(
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
            *_CONVOLUTION,
            word("convolution_kind", "conv_kind", CONVOLUTION_KINDS, unless=0),
            groups.SPARSITY,
        ),
        "copy-start": (_prefetch(),),
        "custom-call": (
            *_CONVOLUTION,
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
            *_in(_GATHER, "offset_dims", "collapsed_slice_dims", "start_index_map"),
            *_in(_GATHER, "operand_batching_dims", "start_indices_batching_dims", optional=True),
            number("index_vector_dim", f"{_GATHER}index_vector_dim"),
            integers("slice_sizes", "gather_slice_sizes"),
            _SORTED,
        ),
        "get-dimension-size": (_DIMENSIONS,),
        "get-tuple-element": (number("index", "tuple_index"),),
        "infeed": (quoted("infeed_config"),),
        "iota": (field("iota_dimension", "dimensions", _one_dimension, _listed, always=True),),
        "map": (_DIMENSIONS,),
        "outfeed": (_outfeed_shape(), quoted("outfeed_config")),
        "pad": (windows.PADDING,),
        "parameter": (
            number("parameter_number"),
            of_message(
                "parameter_replication",
                "parameter_replication",
                read_replication,
                write_replication,
            ),
        ),
        "ragged-all-to-all": _COLLECTIVE,
        "ragged-dot": (*groups.RAGGED_DOT, OPERAND_PRECISION, ALGORITHM),
        "recv": _TRANSFER,
        "recv-done": _TRANSFER,
        "reduce": (_DIMENSIONS,),
        "reduce-precision": (number("exponent_bits"), number("mantissa_bits")),
        "reduce-scatter": (*_COLLECTIVE, _GLOBAL, _DIMENSIONS),
        "reduce-window": (windows.WINDOW,),
        "reshape": (field("inferred_dimension", "dimensions", _inferred_dimension, _listed),),
        "reverse": (_DIMENSIONS,),
        "rng": (word("distribution", "distribution", DISTRIBUTIONS),),
        "rng-bit-generator": (word("algorithm", "rng_algorithm", RNG_ALGORITHMS),),
        "rng-get-and-update-state": (number("delta"),),
        "scaled-dot": _DOT,
        "scan": (
            _DIMENSIONS,
            number("num_carries", unless=0),
            flag("is_reverse"),
            field("is_associative", "", {1: True, 2: False}.get, lambda value: 1 if value else 2),
        ),
        "scatter": (
            *_in(_SCATTER, "update_window_dims", "inserted_window_dims"),
            *_in(_SCATTER, "scatter_dims_to_operand_dims"),
            *_in(_SCATTER, "input_batching_dims", "scatter_indices_batching_dims", optional=True),
            number("index_vector_dim", f"{_SCATTER}index_vector_dim"),
            _SORTED,
            flag("unique_indices"),
        ),
        "select-and-scatter": (windows.WINDOW,),
        "send": _TRANSFER,
        "send-done": _TRANSFER,
        "set-dimension-size": (_DIMENSIONS,),
        "slice": (windows.SLICE,),
        "sort": (_DIMENSIONS, flag("is_stable")),
        "topk": (number("k"), flag("largest", always=True)),
        "transpose": (_DIMENSIONS,),
        "triangular-solve": groups.TRIANGULAR,
    },
    _WRITTEN,
)


@cache
def rows_by_name(opcode: str) -> Mapping[str, ProtoRow]:
    """All rows of an opcode by their attributes."""
    return {row.name: row for row in (*rows_of(opcode), *COMMON)}


@cache
def rows_of(opcode: str) -> tuple[ProtoRow, ...]:
    """The rows of an opcode, in the order of the text; those of ``COMMON`` follow its calls."""
    unary = op_of(opcode).is_elementwise and op_of(opcode).arity == (1, 1)
    return (*_ROWS.get(opcode, ()), *(RESULT_ACCURACY,) * unary)
