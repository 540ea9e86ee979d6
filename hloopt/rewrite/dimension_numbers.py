"""Dimension numbers of dots and convolutions, read, moved and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from hloopt.analysis.layout import major_to_minor
from hloopt.ir import Instruction
from hloopt.rewrite import own_attributes
from hloopt.types import ArrayShape, ConvDims, Dims, DotDims

__all__ = [
    "are_matrices",
    "conv_dims",
    "dot_attributes",
    "moved_labels",
]


def are_matrices(shape: ArrayShape, groups: Sequence[Sequence[int]]) -> bool:
    """Whether the groups of an operand's dimensions make it a batch of matrices in memory.

    ``groups`` are the batch, contracting and other dimensions.  Each that is not empty must run through
    memory in its order, in one piece, and the batch not the fastest.
    """
    order = major_to_minor(shape)
    for group in groups:
        if group:
            at = order.index(group[0])
            if order[at : at + len(group)] != tuple(group):
                return False
    return not order or order[-1] not in groups[0]


def dot_attributes(dot: Instruction, dims: DotDims) -> dict[str, Any]:
    """The attributes of a dot with other dimension numbers; empty lists are left out."""
    attributes = own_attributes(dot)
    lists: Mapping[str, Dims] = {
        "lhs_batch_dims": dims.lhs_batch,
        "lhs_contracting_dims": dims.lhs_contracting,
        "rhs_batch_dims": dims.rhs_batch,
        "rhs_contracting_dims": dims.rhs_contracting,
    }
    for name, value in lists.items():
        attributes.pop(name, None)
        if value:
            attributes[name] = value
    return attributes


def moved_labels(dims: ConvDims, side: str, order: Dims) -> ConvDims:
    """Dimension d of ``input``, ``kernel`` or ``output`` is now dimension ``order[d]``."""
    places = {
        one.name: getattr(dims, one.name) for one in fields(dims) if one.name.startswith(side)
    }
    moved: dict[str, Any] = {
        name: order[place] if isinstance(place, int) else tuple(order[dim] for dim in place)
        for name, place in places.items()
    }
    return _written(replace(dims, **moved))


def conv_dims(convolution: Instruction) -> ConvDims:
    """The labels of a convolution's dimensions."""
    dims: ConvDims = convolution.attributes["dim_labels"]
    return dims


def _written(dims: ConvDims) -> ConvDims:
    lhs = _labels("bf", (dims.input_batch, dims.input_feature), dims.input_spatial)
    rhs = _labels(
        "io", (dims.kernel_input_feature, dims.kernel_output_feature), dims.kernel_spatial
    )
    out = _labels("bf", (dims.output_batch, dims.output_feature), dims.output_spatial)
    return replace(dims, text=f"{lhs}_{rhs}->{out}")


def _labels(letters: str, places: tuple[int, int], spatial: Dims) -> str:
    labels = ["?"] * (len(spatial) + 2)
    for letter, place in zip(letters, places, strict=True):
        labels[place] = letter
    for axis, place in enumerate(spatial):
        labels[place] = str(axis)
    return "".join(labels)
