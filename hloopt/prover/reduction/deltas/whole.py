"""A whole module at once: usual element types in the place of others, and passes that make it smaller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hloopt.errors import HlooptError, ShapeError
from hloopt.ir import edit
from hloopt.pipelines import parse_pipeline
from hloopt.prover.reduction.case import Case, CaseDraft
from hloopt.prover.reduction.recording import Delta, Site, ValueRecorder
from hloopt.types import Array, ArrayShape, DType, Literal, Shape, TupleShape, dtype, leaves

__all__ = ["ELEMENT_TYPES", "SIMPLER"]

_USUAL: Final = ("f32", "s32", "c64", "pred")


def _simpler(kind: DType) -> str | None:
    """The usual element type most like this one; None for a usual one, and for what holds no numbers."""
    if kind.name in _USUAL or not kind.is_array:
        return None
    return "c64" if kind.is_complex else "f32" if kind.is_float else "s32"


def _type_sites(case: Case) -> list[Site]:
    found = {
        leaf.dtype: None
        for one in case.module.instructions()
        for leaf in leaves(one.shape)
        if isinstance(leaf, ArrayShape)
    }
    return [(kind.name, simple) for kind in found if (simple := _simpler(kind))]


def _change_types(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    kinds = {dtype(old): dtype(new) for old, new in sites}
    for one in list(draft.module.instructions()):
        shape = _changed(one.shape, kinds)
        literal = one.literal
        if shape is one.shape:
            continue
        edit.set_shape(one, shape)
        if literal is not None:
            edit.set_attribute(one, "literal", _literal(literal, shape, kinds))
    for parameter, arrays in draft.arrays.items():
        kept = [
            leaf
            for leaf in leaves(parameter.shape)
            if isinstance(leaf, ArrayShape) and leaf.dtype.is_array
        ]
        draft.arrays[parameter] = [
            [_cast(array, leaf.dtype) for array, leaf in zip(given, kept, strict=True)]
            for given in arrays
        ]
    for one in list(draft.module.instructions()):
        if one.opcode == "convert" and one.operands[0].shape == one.shape and not one.is_root:
            draft.replace(one, one.operands[0])


def _changed(shape: Shape, kinds: dict[DType, DType]) -> Shape:
    if isinstance(shape, TupleShape):
        parts = tuple(_changed(part, kinds) for part in shape.elements)
        same = all(new is old for new, old in zip(parts, shape.elements, strict=True))
        return shape if same else TupleShape(parts)
    if isinstance(shape, ArrayShape) and shape.dtype in kinds:
        return shape.with_dtype(kinds[shape.dtype])
    return shape


def _literal(literal: Literal, shape: Shape, kinds: dict[DType, DType]) -> Literal:
    if literal.array is not None and isinstance(shape, ArrayShape):
        return Literal(shape, _cast(literal.array, shape.dtype))
    assert isinstance(shape, ArrayShape | TupleShape)
    parts = shape.elements if isinstance(shape, TupleShape) else ()
    inner = zip(literal.elements, parts, strict=False)
    elements = tuple(_literal(one, part, kinds) for one, part in inner)
    return Literal(shape, None, elements, literal.elided)


def _cast(array: Array, kind: DType) -> Array:
    if array.dtype == kind.numpy:
        return array
    with np.errstate(all="ignore"):
        return array.astype(kind.numpy)


ELEMENT_TYPES: Final = Delta("element types", _type_sites, _change_types)

_PASSES: Final = ("tuple-simplifier", "dce", "cse", "simplify", "while-simplifier")


def _pass_sites(case: Case) -> list[Site]:
    return [(name,) for name in _PASSES]


def _run_passes(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    for (name,) in sites:
        try:
            parse_pipeline(name).run(draft.module)
        except HlooptError as error:
            raise ShapeError(error.message) from error


SIMPLER: Final = Delta("passes", _pass_sites, _run_passes, "each")
