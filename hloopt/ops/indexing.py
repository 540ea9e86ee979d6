"""Ops that read or write a part of an array: slices, gather, scatter, dimension sizes."""

from __future__ import annotations

from hloopt.ops.attributes import DIMENSIONS, TO_APPLY, integers
from hloopt.ops.opdef import MANY, Attribute, Kind, OpDef
from hloopt.ops.shapes import declared

__all__ = ["ROWS"]

_FAMILY = "indexing"
_SORTED = Attribute("indices_are_sorted", Kind.BOOL)
_VECTOR_DIM = Attribute("index_vector_dim", Kind.INT, required=True)

ROWS = (
    OpDef("dynamic-slice", (1, MANY), _FAMILY, declared, integers("dynamic_slice_sizes")),
    OpDef("dynamic-update-slice", (2, MANY), _FAMILY, declared),
    OpDef(
        "gather",
        (2, 2),
        _FAMILY,
        declared,
        (
            *integers("offset_dims", "collapsed_slice_dims", "start_index_map"),
            Attribute("operand_batching_dims", Kind.INTS),
            Attribute("start_indices_batching_dims", Kind.INTS),
            _VECTOR_DIM,
            *integers("slice_sizes"),
            _SORTED,
        ),
    ),
    OpDef("get-dimension-size", (1, 1), _FAMILY, declared, (DIMENSIONS,)),
    OpDef(
        "scatter",
        (3, MANY),
        _FAMILY,
        declared,
        (
            *integers("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"),
            Attribute("input_batching_dims", Kind.INTS),
            Attribute("scatter_indices_batching_dims", Kind.INTS),
            _VECTOR_DIM,
            _SORTED,
            Attribute("unique_indices", Kind.BOOL),
            TO_APPLY,
        ),
    ),
    OpDef("set-dimension-size", (2, 2), _FAMILY, declared, (DIMENSIONS,)),
    OpDef(
        "slice",
        (1, 1),
        _FAMILY,
        declared,
        (Attribute("slice", Kind.SLICES, required=True),),
        inferable=False,
    ),
)
