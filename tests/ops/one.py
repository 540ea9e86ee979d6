"""Modules of one instruction, written as ``f32[2,3] transpose(f32[3,2]), dimensions={1,0}``.

Shapes stand for operands; ``<f32[] s32[] -> f32[]>`` stands for a computation of that signature.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import hloopt
from hloopt.text.grammar import read
from hloopt.types import Shape
from hloopt.verifier import violations

__all__ = ["Row", "module_text", "opcode_of", "rows", "shape_messages", "shape_of"]

_SIGNATURE = re.compile(r"<(?!=)((?:[^<>]|<=)*)->((?:[^<>]|<=)*)>")


@dataclass(frozen=True)
class Row:
    """A broken constraint: the message, an instruction that breaks it, and a neighbour that does not."""

    error: str
    bad: str
    good: str


def rows(path: Path) -> Iterator[Row]:
    """The rows of a table in ``constraints/``: ``error:``, ``bad:`` and ``good:`` lines."""
    for entry in re.split(r"\n\s*\n", path.read_text()):
        fields = dict(
            re.match(r"\s*(\w+): (.*)", line).groups()  # type: ignore[union-attr]
            for line in entry.splitlines()
            if line.strip() and not line.startswith("#")
        )
        yield Row(**fields)


def opcode_of(line: str) -> str:
    """The opcode of an instruction."""
    return _parts(line)[1]


def shape_of(line: str) -> Shape:
    """The result shape as it is written."""
    found: Shape = read("shape", _parts(line)[0])
    return found


def module_text(line: str, *, shape: bool = True) -> str:
    """A module whose root ``r`` is the instruction; ``shape=False`` leaves its result shape out."""
    result, opcode, operands, attributes = _parts(line)
    computations: list[str] = []

    def computation(found: re.Match[str]) -> str:
        name = f"c{len(computations)}"
        parameters = [
            f"  {name}.{number} = {text} parameter({number})"
            for number, text in enumerate(_split(found[1], " "))
        ]
        root = f'  ROOT {name}.r = {found[2].strip()} custom-call(), custom_call_target="f"'
        computations.append("\n".join((f"{name} {{", *parameters, root, "}", "")))
        return name

    attributes = _SIGNATURE.sub(computation, attributes)
    operand_lines = [f"  p{n} = {text} parameter({n})" for n, text in enumerate(operands)]
    names = ", ".join(f"p{number}" for number in range(len(operands)))
    root = f"  ROOT r = {result + ' ' if shape else ''}{opcode}({names}){attributes}"
    return "\n".join(("HloModule m", "", *computations, "ENTRY e {", *operand_lines, root, "}", ""))


def shape_messages(line: str) -> list[str]:
    """What the verifier says against the operands, attributes and result shape of an instruction."""
    module = hloopt.parse(module_text(line), "one")
    return [error.message for error in violations(module) if error.rule == "shape"]


def _parts(line: str) -> tuple[str, str, list[str], str]:
    """Result shape, opcode, operand shapes, and the attributes with their comma in front."""
    result = _split(line, " ")[0]
    opcode, rest = line[len(result) :].strip().split("(", 1)
    depths = accumulate((character in "([{") - (character in ")]}") for character in rest)
    end = next(index for index, depth in enumerate(depths) if depth < 0)
    return result, opcode, _split(rest[:end], ","), rest[end + 1 :]


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators that stand outside of brackets."""
    parts = [""]
    depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == separator and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]
