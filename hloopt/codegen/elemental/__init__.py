"""How one element of each op is computed inside a kernel: a row an opcode.

Elementwise ops are in ``codegen/scalars``; what is in neither table gets a separate kernel or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hloopt.codegen.elemental import (
    bits,
    calls,
    control,
    indexing,
    linear,
    movement,
    random,
    reduction,
    scattering,
    window,
)
from hloopt.codegen.emission import Emit

__all__ = ["EMITTERS"]

EMITTERS: Final[Mapping[str, Emit]] = MappingProxyType(
    {
        **movement.EMITTERS,
        **bits.EMITTERS,
        **indexing.EMITTERS,
        **reduction.EMITTERS,
        **window.EMITTERS,
        **scattering.EMITTERS,
        **linear.EMITTERS,
        **random.EMITTERS,
        **calls.EMITTERS,
        **control.EMITTERS,
    }
)
