"""Many instructions on the same operands in one module, so that it is read and compiled once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tests.semantics.elements import shape_of
from tests.semantics.statement import check

Array = np.ndarray[Any, Any]

__all__ = ["check_several", "module"]


def module(shapes: Sequence[str], calls: Iterable[tuple[str, str]], regions: str = "") -> str:
    """A module with parameters ``p0``, ``p1`` ...; its root is the tuple of the results of ``calls``,
    each a shape and what stands behind it: ``("f32[2]", "add(p0, p1)")``.
    """
    found = list(calls)
    lines = [f"  p{number} = {shape} parameter({number})" for number, shape in enumerate(shapes)]
    lines += [f"  r{number} = {shape} {call}" for number, (shape, call) in enumerate(found)]
    names = ", ".join(f"r{number}" for number in range(len(found)))
    results = ", ".join(shape for shape, _ in found)
    lines.append(f"  ROOT t = ({results}) tuple({names})")
    body = "\n".join(lines)
    return f"HloModule statement\n{regions}\nENTRY entry {{\n{body}\n}}\n"


def check_several(
    operands: Sequence[tuple[str, Array]],
    calls: Iterable[tuple[str, str, Array]],
    **tolerance: Any,
) -> None:
    """Hold each call, an element type, a call and the wanted result, against the operands' elements.

    ``operands`` are pairs of element type and array.
    """
    found = list(calls)
    check(
        module(
            [shape_of(name, array.shape) for name, array in operands],
            [(shape_of(name, want.shape), call) for name, call, want in found],
        ),
        [array for _, array in operands],
        [want for _, _, want in found],
        **tolerance,
    )
