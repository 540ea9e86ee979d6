"""Linear algebra: dots, convolution, FFT, factorisations."""

from __future__ import annotations

from hloopt.ops.attributes import DOT, integers
from hloopt.ops.opdef import Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_FAMILY = "linear"

ROWS = (
    OpDef("cholesky", (1, 1), _FAMILY, declared, (Attribute("lower", Kind.BOOL),)),
    OpDef(
        "convolution",
        (2, 3),
        _FAMILY,
        declared,
        (
            Attribute("window", Kind.WINDOW),
            Attribute("dim_labels", Kind.CONV_DIMS, required=True),
            Attribute("feature_group_count", Kind.INT),
            Attribute("batch_group_count", Kind.INT),
            Attribute("operand_precision", Kind.VERBATIM),
            Attribute("convolution_kind", Kind.WORD),
            Attribute("sparsity_config", Kind.VERBATIM),
        ),
    ),
    OpDef("dot", (2, 2), _FAMILY, declared, DOT),
    OpDef(
        "fft",
        (1, 1),
        _FAMILY,
        declared,
        (
            Attribute("fft_type", Kind.WORD, required=True, words=("FFT", "IFFT", "RFFT", "IRFFT")),
            *integers("fft_length"),
        ),
    ),
    OpDef(
        "ragged-dot",
        (3, 3),
        _FAMILY,
        declared,
        (
            *DOT,
            *integers("lhs_ragged_dims"),
            Attribute("rhs_group_dims", Kind.INTS),
        ),
    ),
    OpDef("scaled-dot", (3, 4), _FAMILY, declared, DOT),
    OpDef(
        "triangular-solve",
        (2, 2),
        _FAMILY,
        declared,
        (
            Attribute("left_side", Kind.BOOL),
            Attribute("lower", Kind.BOOL),
            Attribute("unit_diagonal", Kind.BOOL),
            Attribute("transpose_a", Kind.WORD, words=("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")),
        ),
    ),
)
