"""Attention and its gradients, found in plain products, reductions and elementwise ops."""

from hloopt.analysis.attention.form import (
    Attention,
    ScoreSweep,
    TiledProduct,
    attention_form,
    matrix_kind,
    matrix_terms,
)
from hloopt.analysis.attention.rescaling import LateFactor, Rescaling

__all__ = [
    "Attention",
    "LateFactor",
    "Rescaling",
    "ScoreSweep",
    "TiledProduct",
    "attention_form",
    "matrix_kind",
    "matrix_terms",
]
