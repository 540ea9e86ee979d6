"""Attention and its gradients, found in plain products, reductions and elementwise ops."""

from hloopt.analysis.attention.form import (
    Attention,
    ScoreSweep,
    TiledProduct,
    attention_form,
    matrix_kind,
    matrix_unit,
)
from hloopt.analysis.attention.masking import Masking, masking_of
from hloopt.analysis.attention.rescaling import LateFactor, Rescaling
from hloopt.analysis.attention.tile_bounds import Limit, TileBound

__all__ = [
    "Attention",
    "LateFactor",
    "Limit",
    "Masking",
    "Rescaling",
    "ScoreSweep",
    "TileBound",
    "TiledProduct",
    "attention_form",
    "masking_of",
    "matrix_kind",
    "matrix_unit",
]
