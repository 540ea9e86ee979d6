"""Graphs as pictures in SVG: boxes with edges, in layers from the parameters down to the root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ir.instruction import brief
from hloopt.ops.traits import (
    COLLECTIVE,
    CONTRACTING,
    ELEMENTWISE,
    FOLDING,
    INDEXING,
    LIBRARY,
    MOVING,
    SEQUENTIAL,
    WRAPPING,
)
from hloopt.report.layered import GraphLayout, Point, lay_out
from hloopt.text.printer import PrintOptions, print_instruction

__all__ = [
    "COLOURS",
    "MOST_BOXES",
    "Graph",
    "GraphBox",
    "box_of",
    "draw",
    "is_written",
    "kind_of",
    "picture",
    "short_text",
]

MOST_BOXES: Final = 60
"""Instructions that a picture in a notebook shows at most: more of them are no picture any more."""

_LETTER, _LINE, _PAD, _ROUND = 6.2, 14.0, 8.0, 3.0
_LONGEST: Final = 40
_LONG: Final = 2_000
_PLAIN: Final = PrintOptions(metadata=False)

COLOURS: Final = {
    "parameter": ("#ffe0b2", "#cbae82", "#000000"),
    "wrapping": ("#cfd8dc", "#9ea7aa", "#000000"),
    "control": ("#2e7d32", "#005005", "#ffffff"),
    "collective": ("#bcaaa4", "#8c7b75", "#000000"),
    "product": ("#1565c0", "#003c8f", "#ffffff"),
    "folding": ("#e1bee7", "#af8eb5", "#000000"),
    "moving": ("#c8e6c9", "#97b498", "#000000"),
    "elementwise": ("#ffffff", "#9e9e9e", "#000000"),
    "group": ("#eceff1", "#607d8b", "#000000"),
    "outside": ("none", "#9e9e9e", "#757575"),
}
"""Fill, stroke and letters of each kind of box: as in XLA's own graphs (``hlo_graph_dumper``)."""

_KINDS: Final = (
    (frozenset({"parameter", "constant"}), "parameter"),
    (SEQUENTIAL | {"custom-call"}, "control"),
    (WRAPPING | {"fusion"}, "wrapping"),
    (COLLECTIVE, "collective"),
    (CONTRACTING | LIBRARY, "product"),
    (FOLDING | INDEXING | {"sort"}, "folding"),
    (MOVING | {"broadcast"}, "moving"),
    (ELEMENTWISE, "elementwise"),
)

_STYLE: Final = (
    "text{font:10px ui-monospace,Menlo,Consolas,monospace;text-anchor:middle}"
    ".hlo-name{font-weight:bold}path{fill:none;stroke:#8a8f94}"
    + "".join(
        f".hlo-{kind} rect{{fill:{fill};stroke:{stroke}}}.hlo-{kind} text{{fill:{letters}}}"
        for kind, (fill, stroke, letters) in COLOURS.items()
    )
    + ".hlo-group rect{stroke-width:2}.hlo-outside rect{stroke-dasharray:4 3}.hlo-root rect{stroke-width:2.5}"
)


@dataclass(frozen=True, slots=True)
class GraphBox:
    """A box: its ``lines``, the first of which is a name; ``kind`` is a key of ``COLOURS``.

    title    what is shown where a pointer rests on it
    key      ``data-key`` of its element, by which a page finds it
    is_root  whether it is drawn as a result
    """

    lines: tuple[str, ...]
    kind: str
    title: str = ""
    key: str = ""
    is_root: bool = False

    @property
    def size(self) -> Point:
        """Width and height in pixels."""
        longest = max((len(line) for line in self.lines), default=0)
        return longest * _LETTER + 2 * _PAD, len(self.lines) * _LINE + _PAD


@dataclass(frozen=True, slots=True)
class Graph:
    """Boxes, and edges between their numbers."""

    boxes: tuple[GraphBox, ...]
    edges: tuple[tuple[int, int], ...]


def picture(computation: Computation) -> str:
    """A computation as SVG; empty where it has more than ``MOST_BOXES`` instructions to show."""
    shown = [one for one in computation if not is_written(one)]
    if not 0 < len(shown) <= MOST_BOXES:
        return ""
    numbers = {one: number for number, one in enumerate(shown)}
    edges = (
        (numbers[operand], number)
        for one, number in numbers.items()
        for operand in one.operands
        if operand in numbers
    )
    return draw(Graph(tuple(map(box_of, shown)), tuple(dict.fromkeys(edges))))


def is_written(instruction: Instruction) -> bool:
    """Whether a constant of one element, which is written into the boxes of those that read it."""
    constant = instruction.opcode == "constant" and instruction.is_array
    return constant and instruction.array.elements == 1 and instruction.is_used


def short_text(instruction: Instruction) -> str:
    """An instruction as HLO without metadata; the values of a large constant, and a long end, are left out."""
    if instruction.opcode == "constant" and instruction.shape.byte_size > _LONG:
        return f"%{instruction.name} = {instruction.shape} constant({{...}})"
    text = print_instruction(instruction, _PLAIN)
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"


def kind_of(opcode: str) -> str:
    """The key of ``COLOURS`` for an opcode."""
    return next((kind for opcodes, kind in _KINDS if opcode in opcodes), "elementwise")


def box_of(instruction: Instruction, *more: str) -> GraphBox:
    """The box of an instruction: name, opcode, shape, and ``more`` lines."""
    values = [
        str(one.literal.array.item())
        for one in instruction.operands
        if is_written(one) and one.literal is not None and one.literal.array is not None
    ]
    what = instruction.opcode + (f" {', '.join(values)}" if values else "")
    return GraphBox(
        tuple(map(_cut, (instruction.name, what, brief(instruction.shape), *more))),
        kind_of(instruction.opcode),
        short_text(instruction),
        instruction.name,
        instruction.is_root,
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def draw(graph: Graph, *, style: bool = True) -> str:
    """A graph as SVG; ``style`` puts the colours into it, else a page has them for the classes ``hlo-KIND``."""
    layout = lay_out([box.size for box in graph.boxes], graph.edges)
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **_frame(layout)})
    if style:
        ET.SubElement(svg, "style").text = _STYLE
        frame = {"x": f"{-_PAD}", "y": f"{-_PAD}", "width": "100%", "height": "100%"}
        ET.SubElement(svg, "rect", {**frame, "fill": "#ffffff"})
    for (start, end), route in zip(graph.edges, layout.routes, strict=True):
        ends = {"data-from": graph.boxes[start].key, "data-to": graph.boxes[end].key}
        ET.SubElement(svg, "path", {"d": _curve(route), **({} if style else ends)})
    for box, place in zip(graph.boxes, layout.boxes, strict=True):
        _draw_box(svg, box, place, with_key=not style)
    return ET.tostring(svg, encoding="unicode")


def _frame(layout: GraphLayout) -> dict[str, str]:
    width, height = layout.width + 2 * _PAD, layout.height + 2 * _PAD
    size = f"{-_PAD:.0f} {-_PAD:.0f} {width:.0f} {height:.0f}"
    return {"width": f"{width:.0f}", "height": f"{height:.0f}", "viewBox": size}


def _curve(route: Sequence[Point]) -> str:
    """A line that leaves and meets boxes upright."""
    (x, y), *others = route
    parts = [f"M{x:.0f} {y:.0f}"]
    for to_x, to_y in others:
        middle = (y + to_y) / 2
        if abs(to_x - x) < 1:
            parts.append(f"V{to_y:.0f}")
        else:
            parts.append(f"C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {to_y:.0f}")
        x, y = to_x, to_y
    return "".join(parts)


def _draw_box(svg: ET.Element, box: GraphBox, place: Point, *, with_key: bool) -> None:
    (width, height), (middle, top) = box.size, place
    names = f"hlo-{box.kind}" + (" hlo-root" if box.is_root else "")
    key = {"data-key": box.key} if with_key else {}
    group = ET.SubElement(svg, "g", {"class": names, **key})
    if box.title:
        ET.SubElement(group, "title").text = box.title
    sizes = {"width": width, "height": height, "rx": _ROUND, "x": middle - width / 2, "y": top}
    ET.SubElement(group, "rect", {name: f"{value:.0f}" for name, value in sizes.items()})
    for number, line in enumerate(box.lines):
        place_of = {"x": f"{middle:.0f}", "y": f"{top + _LINE * (number + 1) - 2:.0f}"}
        bold = {"class": "hlo-name"} if number == 0 else {}
        ET.SubElement(group, "text", {**place_of, **bold}).text = line
