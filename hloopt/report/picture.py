"""A computation as a picture in SVG: a box an instruction, in layers from the parameters down to the root.

A layer is the longest way from what has no operands; an edge over several layers has a place in each of
them.  Within a layer boxes stand in the order of the middle of their neighbours, swept down and up (K.
Sugiyama, S. Tagawa, M. Toda, Methods for visual understanding of hierarchical system structures, 1981).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from html import escape
from statistics import fmean
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ir.instruction import brief
from hloopt.ops.traits import (
    COLLECTIVE,
    CONTRACTING,
    ELEMENTWISE,
    FOLDING,
    INDEXING,
    MOVING,
    SEQUENTIAL,
    WRAPPING,
)
from hloopt.text.printer import PrintOptions, print_instruction

__all__ = ["MOST_BOXES", "picture"]

MOST_BOXES: Final = 60
"""Instructions that a picture shows at most: more of them are no picture any more."""

_SWEEPS: Final = 4
_LETTER, _LINE, _PAD, _GAP, _LAYER = 6.2, 14.0, 8.0, 18.0, 34.0
_LONGEST: Final = 40
_BOLD: Final = ' font-weight="bold"'
_PLAIN: Final = PrintOptions(metadata=False)

_COLOURS: Final = (
    (frozenset({"parameter"}), "#ffe0b2"),
    (WRAPPING | {"fusion"}, "#cfd8dc"),
    (SEQUENTIAL | {"custom-call"}, "#c5e1a5"),
    (COLLECTIVE, "#d7ccc8"),
    (CONTRACTING, "#90caf9"),
    (FOLDING | INDEXING | {"sort"}, "#e1bee7"),
    (MOVING | {"broadcast"}, "#c8e6c9"),
    (ELEMENTWISE, "#ffffff"),
)
"""Colours of opcodes, the first that matches: nearly those of XLA's own graphs."""


@dataclass(eq=False)
class _Box:
    """An instruction's place, or a bend of an edge where ``instruction`` is None; ``x`` is its middle."""

    instruction: Instruction | None
    layer: int
    lines: tuple[str, ...] = ()
    x: float = 0.0
    above: list[_Box] = field(default_factory=list)
    below: list[_Box] = field(default_factory=list)

    @property
    def width(self) -> float:
        """In pixels."""
        return max((len(line) for line in self.lines), default=0) * _LETTER + 2 * _PAD

    @property
    def height(self) -> float:
        """In pixels."""
        return len(self.lines) * _LINE + _PAD


def picture(computation: Computation) -> str:
    """The picture; empty where the computation has more than ``MOST_BOXES`` instructions to show.

    A constant of one element is written into the boxes of those that read it.
    """
    shown = [one for one in computation if not _is_written(one)]
    if not 0 < len(shown) <= MOST_BOXES:
        return ""
    layers = _layers(shown)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            _arrange(layer, downwards=downwards)
    return _drawn(layers)


def _is_written(instruction: Instruction) -> bool:
    constant = instruction.opcode == "constant" and instruction.is_array
    return constant and instruction.array.elements == 1 and instruction.is_used


def _lines(instruction: Instruction) -> tuple[str, ...]:
    values = [
        str(one.literal.array.item())
        for one in instruction.operands
        if _is_written(one) and one.literal is not None and one.literal.array is not None
    ]
    what = instruction.opcode + (f" {', '.join(values)}" if values else "")
    return tuple(map(_cut, (instruction.name, what, brief(instruction.shape))))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _layers(shown: Sequence[Instruction]) -> list[list[_Box]]:
    """Boxes by layer, with bends for the edges that cross one."""
    boxes: dict[Instruction, _Box] = {}
    for instruction in shown:
        above = [boxes[one] for one in dict.fromkeys(instruction.operands) if one in boxes]
        layer = max((box.layer + 1 for box in above), default=0)
        boxes[instruction] = _Box(instruction, layer, _lines(instruction), above=above)
    layers: list[list[_Box]] = [[] for _ in range(1 + max(box.layer for box in boxes.values()))]
    for box in boxes.values():
        layers[box.layer].append(box)
    for box in boxes.values():
        box.above = [_led(start, box, layers) for start in box.above]
    for row in layers:
        for box in row:
            for start in box.above:
                start.below.append(box)
    return layers


def _led(start: _Box, end: _Box, layers: list[list[_Box]]) -> _Box:
    """What is right above ``end`` on the way from ``start``: the last bend, or ``start``."""
    for layer in range(start.layer + 1, end.layer):
        bend = _Box(None, layer, above=[start])
        layers[layer].append(bend)
        start = bend
    return start


def _arrange(layer: list[_Box], *, downwards: bool) -> None:
    """Move boxes toward the middle of those they are linked with, then apart."""
    wanted = {}
    for box in layer:
        linked = box.above if downwards else box.below
        wanted[box] = fmean(one.x for one in linked) if linked else box.x
    layer.sort(key=wanted.__getitem__)
    right = None
    for box in layer:
        left = wanted[box] - box.width / 2
        left = left if right is None else max(left, right + _GAP)
        box.x, right = left + box.width / 2, left + box.width
    # What was pushed to the right moves back by the mean: the layer as a whole stays where it wants to be.
    shift = fmean(wanted[box] - box.x for box in layer)
    for box in layer:
        box.x += shift


def _drawn(layers: Sequence[Sequence[_Box]]) -> str:
    every = [box for layer in layers for box in layer]
    left = min(box.x - box.width / 2 for box in every) - _PAD
    right = max(box.x + box.width / 2 for box in every) + _PAD
    tops, top = [], _PAD
    for layer in layers:
        tops.append(top)
        top += max(box.height for box in layer) + _LAYER
    height = top - _LAYER + _PAD
    parts = [edge for box in every for edge in _edges(box, tops)]
    parts += [_box(box, tops) for box in every if box.instruction is not None]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right - left:.0f}" height="{height:.0f}" '
        f'viewBox="{left:.0f} 0 {right - left:.0f} {height:.0f}" font-family="monospace" font-size="10">\n'
        f'<rect x="{left:.0f}" width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(parts)
        + "\n</svg>"
    )


def _edges(box: _Box, tops: Sequence[float]) -> Iterable[str]:
    for start in box.above:
        y, end = tops[start.layer] + start.height, tops[box.layer]
        bend = (end - y) / 2
        out, into = f"{start.x:.1f} {y + bend:.1f}", f"{box.x:.1f} {end - bend:.1f}"
        curve = f"M{start.x:.1f} {y:.1f}C{out} {into} {box.x:.1f} {end:.1f}"
        through = f"V{tops[box.layer] + box.height:.1f}" if box.instruction is None else ""
        yield f'<path d="{curve}{through}" fill="none" stroke="#757575"/>'


def _box(box: _Box, tops: Sequence[float]) -> str:
    instruction = box.instruction
    assert instruction is not None, "a bend has no box"
    x, y = box.x - box.width / 2, tops[box.layer]
    colour = next((one for names, one in _COLOURS if instruction.opcode in names), "#eeeeee")
    width = 2 if instruction.is_root else 1
    texts = "".join(
        f'<text x="{box.x:.1f}" y="{y + _LINE * (number + 1) - 2:.1f}" text-anchor="middle"'
        f"{'' if number else _BOLD}>{escape(line)}</text>"
        for number, line in enumerate(box.lines)
    )
    return (
        f"<g><title>{escape(print_instruction(instruction, _PLAIN))}</title>"
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="3" '
        f'fill="{colour}" stroke="#424242" stroke-width="{width}"/>{texts}</g>'
    )
