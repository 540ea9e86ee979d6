"""Shardings of a loop's state, which may be told element by element: ``{{replicated}, {maximal device=0}}``."""

from __future__ import annotations

from collections.abc import Collection

from hloopt.ir import Instruction, edit
from hloopt.types import TupleShape, Verbatim

__all__ = ["by_element", "element_shardings", "keep_shardings"]


def by_element(instruction: Instruction) -> bool:
    """Whether each element of a tuple has a sharding of its own."""
    return str(instruction.attributes.get("sharding", "")).startswith("{{")


def element_shardings(instruction: Instruction) -> list[str] | None:
    """The shardings of the elements; None where there is not one for each of them."""
    parts = _parts(str(instruction.attributes["sharding"])[1:-1])
    shape = instruction.shape
    if not isinstance(shape, TupleShape) or len(parts) != len(shape.elements):
        return None
    if any(isinstance(element, TupleShape) for element in shape.elements):
        return None
    return parts


def keep_shardings(instruction: Instruction, kept: Collection[int]) -> None:
    """Leave out the shardings of all other elements; to be called while the shape still has them."""
    if by_element(instruction):
        parts = element_shardings(instruction) or []
        text = ", ".join(part for index, part in enumerate(parts) if index in kept)
        edit.set_attribute(instruction, "sharding", Verbatim(f"{{{text}}}") if text else None)


def _parts(text: str) -> list[str]:
    """A list in braces by its commas; those within braces, brackets or strings do not count."""
    found, start, depth, quoted = [], 0, 0, False
    for position, character in enumerate(text):
        if quoted:
            quoted = character != '"' or text[position - 1] == "\\"
        elif character == '"':
            quoted = True
        elif character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
        elif character == "," and depth == 0:
            found.append(text[start:position].strip())
            start = position + 1
    found.append(text[start:].strip())
    return [part for part in found if part and not part.startswith("/*")]
