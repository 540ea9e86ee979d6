"""Linear algebra: dots, convolution, FFT, factorisations."""

from __future__ import annotations

from hloopt.ops._dots import infer_dot, infer_ragged_dot, infer_scaled_dot, product_type
from hloopt.ops.attributes import DOT, integers
from hloopt.ops.opdef import InferArgs, Kind, family
from hloopt.ops.shapes import (
    array_operand,
    attribute,
    braces,
    dims_agree,
    error,
    like,
    require_same_dtype,
    result,
    size_agrees,
    window_of,
    windowed,
)
from hloopt.types import UNBOUNDED, ArrayShape, ConvDims, Shape, TupleShape, dtype, record_of

__all__ = ["ROWS"]

_COMPLEX = {"f32": dtype("c64"), "f64": dtype("c128")}
_REAL = {"c64": dtype("f32"), "c128": dtype("f64")}


def _check_labels(args: InferArgs, name: str, labels: tuple[int, ...], shape: ArrayShape) -> None:
    """Labels number dimensions of the shape; dimensions marked ``?`` have none."""
    if any(not 0 <= label < shape.rank for label in labels) or len(set(labels)) != len(labels):
        raise error(args, f"dim_labels do not fit the {name} {shape}")


def _groups(args: InferArgs, name: str) -> int:
    count: int = args.attributes.get(name, 1)
    if count < 1:
        raise error(args, f"{name}={count} must be positive")
    return count


def _convolution(args: InferArgs) -> Shape:
    """Output batch, output features and window positions, placed by ``dim_labels``."""
    source, kernel = array_operand(args, 0), _kernel(args)
    labels: ConvDims = attribute(args, "dim_labels")
    spatial = len(labels.input_spatial)
    for name, shape, own in (
        ("input", source, (labels.input_batch, labels.input_feature, *labels.input_spatial)),
        (
            "kernel",
            kernel,
            (labels.kernel_input_feature, labels.kernel_output_feature, *labels.kernel_spatial),
        ),
    ):
        _check_labels(args, name, own, shape)
        if len(own) != spatial + 2:
            raise error(args, f"dim_labels give the {name} {len(own) - 2} spatial dimensions")
    feature_groups = _groups(args, "feature_group_count")
    batch_groups = _groups(args, "batch_group_count")
    _check_groups(args, source, kernel, labels, feature_groups, batch_groups)
    window = window_of(args, spatial)
    for axis, dim in enumerate(window.dims):
        size = kernel.dims[labels.kernel_spatial[axis]]
        if not size_agrees(dim.size, size):
            raise error(
                args,
                f"window size {dim.size} of spatial dimension {axis} is not the kernel's {size}",
            )
    positions = windowed(args, [source.dims[dim] for dim in labels.input_spatial], window)
    sizes = {
        labels.output_batch: _divided(source.dims[labels.input_batch], batch_groups),
        labels.output_feature: kernel.dims[labels.kernel_output_feature],
        **dict(zip(labels.output_spatial, positions, strict=True)),
    }
    rank = len(sizes)
    if set(sizes) != set(range(rank)) or rank != spatial + 2:
        raise error(args, "dim_labels of the output do not number its dimensions")
    marks = _convolution_marks(args, source, kernel, labels)
    return result(
        args, product_type(args, source, kernel), [sizes[dim] for dim in range(rank)], marks
    )


def _kernel(args: InferArgs) -> ArrayShape:
    """The kernel's shape; a sparse one is a tuple of values and metadata."""
    given = args.operands[1]
    if not isinstance(given, TupleShape):
        return array_operand(args, 1)
    if len(given.elements) != 2:
        raise error(args, f"operand 1 has shape {given}, not (values, metadata)")
    values = given.elements[0]
    if not isinstance(values, ArrayShape) or not values.dtype.is_array:
        raise error(args, f"operand 1 has shape {given}, whose values are not an array")
    return values


def _convolution_marks(
    args: InferArgs, source: ArrayShape, kernel: ArrayShape, labels: ConvDims
) -> tuple[bool, ...]:
    """Which result dimensions are dynamic: batch and spatial ones that are in an operand."""
    left = source.dynamic or (False,) * source.rank
    right = kernel.dynamic or (False,) * kernel.rank
    if right[labels.kernel_output_feature]:
        raise error(args, f"the kernel {kernel} has a dynamic output feature dimension")
    marks = {labels.output_batch: left[labels.input_batch], labels.output_feature: False}
    for output, first, second in zip(
        labels.output_spatial, labels.input_spatial, labels.kernel_spatial, strict=True
    ):
        marks[output] = left[first] or right[second]
    return tuple(marks[dim] for dim in range(source.rank))


def _divided(size: int, count: int) -> int:
    return size if size == UNBOUNDED else size // count


def _check_groups(
    args: InferArgs,
    source: ArrayShape,
    kernel: ArrayShape,
    labels: ConvDims,
    feature_groups: int,
    batch_groups: int,
) -> None:
    if feature_groups > 1 and batch_groups > 1:
        raise error(args, "feature_group_count and batch_group_count cannot both be above 1")
    batch = source.dims[labels.input_batch]
    features = source.dims[labels.input_feature]
    stored = kernel.dims[labels.kernel_input_feature]
    taken = stored if stored == UNBOUNDED else stored * _sparsity(args)
    made = kernel.dims[labels.kernel_output_feature]
    if UNBOUNDED in (batch, features, taken, made):
        return
    if features != taken * feature_groups:
        raise error(
            args,
            f"the input has {features} features, the kernel takes {taken} in each of "
            f"{feature_groups} groups",
        )
    if made % feature_groups or made % batch_groups:
        raise error(
            args,
            f"{made} output features do not divide into {max(feature_groups, batch_groups)} groups",
        )
    if batch % batch_groups:
        raise error(args, f"a batch of {batch} does not divide into {batch_groups} groups")


def _sparsity(args: InferArgs) -> int:
    """How many input features a stored feature of the kernel stands for: N of ``1xN``."""
    config = record_of(args.attributes, "sparsity_config", dict) or {}
    found = config.get("rhs", {}).get("sparsity", ())
    if len(found) != 2:
        return 1
    kept, whole = map(int, found)
    if kept != 1 or whole < 1:
        raise error(args, f"sparsity={kept}x{whole} of the kernel must keep 1 of N features")
    return whole


def _fft(args: InferArgs) -> Shape:
    """The operand's dimensions; the last is halved by RFFT and doubled by IRFFT."""
    source = array_operand(args, 0)
    kind = attribute(args, "fft_type")
    lengths = attribute(args, "fft_length")
    if not 1 <= len(lengths) <= 3:
        raise error(args, f"fft_length={braces(lengths)} must have 1 to 3 entries")
    if len(lengths) > source.rank:
        raise error(args, f"fft_length={braces(lengths)} does not fit rank {source.rank}")
    table = _COMPLEX if kind == "RFFT" else _REAL
    if source.dtype.name not in table:
        raise error(args, f"{kind} takes {' or '.join(table)}, not {source.dtype.name}")
    if kind in ("FFT", "IFFT"):  # other sizes are cropped or padded with zeros
        return result(args, source.dtype, source.dims, source.dynamic)
    half = (*lengths[:-1], lengths[-1] // 2 + 1 if lengths[-1] else 0)
    taken, last = (lengths, half[-1]) if kind == "RFFT" else (half, lengths[-1])
    inner = source.dims[source.rank - len(lengths) :]
    if kind == "IRFFT" and lengths[-1] == 0 and inner[-1] == 1:
        taken = (*half[:-1], 1)  # what a length of 0 leaves of a spectrum, or nothing at all
    if not dims_agree(inner, taken):
        raise error(
            args,
            f"{kind} with fft_length={braces(lengths)} takes innermost dimensions "
            f"{list(taken)}, not {list(inner)}",
        )
    marks = list(source.dynamic)
    if source.dims[-1] == UNBOUNDED:
        marks[-1] = False
    return result(args, table[source.dtype.name], (*source.dims[:-1], last), marks)


def _square(args: InferArgs, shape: ArrayShape) -> None:
    if shape.rank < 2 or not size_agrees(shape.dims[-1], shape.dims[-2]):
        raise error(args, f"operand 0 has shape {shape}, its last two dimensions must be equal")
    if not (shape.dtype.is_float or shape.dtype.is_complex):
        raise error(args, f"operand 0 has element type {shape.dtype.name}, not float or complex")


def _cholesky(args: InferArgs) -> Shape:
    """The operand's shape."""
    source = array_operand(args, 0)
    _square(args, source)
    return like(args, source)


def _triangular_solve(args: InferArgs) -> Shape:
    """The shape of the right-hand side."""
    matrix, side = array_operand(args, 0), array_operand(args, 1)
    _square(args, matrix)
    require_same_dtype(args, (matrix, side))
    if side.rank != matrix.rank or not dims_agree(side.dims[:-2], matrix.dims[:-2]):
        raise error(args, f"operands {matrix} and {side} must have the same batch dimensions")
    attribute(args, "transpose_a")
    axis = -2 if args.attributes.get("left_side", False) else -1
    if not size_agrees(side.dims[axis], matrix.dims[-1]):
        raise error(
            args,
            f"dimension {side.rank + axis} of {side} must have the size {matrix.dims[-1]} of the "
            "matrix",
        )
    return like(args, side)


_row = family("linear")

ROWS = (
    _row(
        "cholesky",
        1,
        _cholesky,
        Kind.BOOL("lower"),
        doc="the triangular factor of a positive definite matrix",
    ),
    _row(
        "convolution",
        (2, 3),
        _convolution,
        Kind.WINDOW("window"),
        Kind.CONV_DIMS("dim_labels", required=True),
        Kind.INT("feature_group_count"),
        Kind.INT("batch_group_count"),
        Kind.VERBATIM("operand_precision"),
        Kind.WORD("convolution_kind"),
        Kind.VERBATIM("sparsity_config"),
        folds=True,
        elemental=True,
        doc="a kernel slid over the input, products summed over features",
    ),
    _row(
        "dot",
        2,
        infer_dot,
        *DOT,
        folds=True,
        elemental=True,
        doc="products summed over contracting dimensions, for each batch index",
    ),
    _row(
        "fft",
        1,
        _fft,
        Kind.WORD("fft_type", required=True, words=("FFT", "IFFT", "RFFT", "IRFFT")),
        *integers("fft_length"),
        doc="discrete Fourier transform of the innermost dimensions",
    ),
    _row(
        "ragged-dot",
        3,
        infer_ragged_dot,
        *DOT,
        *integers("lhs_ragged_dims"),
        Kind.INTS("rhs_group_dims"),
        folds=True,
        doc="a dot per group of rows; the third operand has the group sizes",
    ),
    _row(
        "scaled-dot",
        4,
        infer_scaled_dot,
        *DOT,
        folds=True,
        doc="a dot of operands that are multiplied by block scales",
    ),
    _row(
        "triangular-solve",
        2,
        _triangular_solve,
        Kind.BOOL("left_side"),
        Kind.BOOL("lower"),
        Kind.BOOL("unit_diagonal"),
        Kind.WORD("transpose_a", words=("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")),
        doc="x with op(a) x = b, or x op(a) = b, for a triangular a",
    ),
)
