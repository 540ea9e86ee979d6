"""Places for the boxes of a graph, in layers from what is read to what reads it.

A layer is the longest way from what reads nothing; what has as many readers as it reads, or more, stands
right above its first reader.  An edge over several layers bends in each of them, and edges from one box
share their bends.  The order in a layer is by medians of neighbours, swept down and up, the one with the
fewest crossings kept (K. Sugiyama, S. Tagawa, M. Toda, Methods for visual understanding of hierarchical
system structures, 1981; E. Gansner et al., A technique for drawing directed graphs, 1993).  Given the order,
places are those with the least squared distance from the mean of the neighbours (isotonic regression by
pooling neighbours).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import pairwise
from statistics import fmean, median
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.graphs import post_order

__all__ = ["GraphLayout", "Point", "lay_out"]

Point = tuple[float, float]

_SWEEPS: Final = 8
_GAP, _LAYER = 18.0, 34.0
_STRAIGHT: Final = 4.0
"""What a bend weighs against a box: long edges are to be straight."""


@dataclass(frozen=True)
class GraphLayout:
    """``boxes`` are the middles of the boxes' upper edges, ``routes`` the points that each edge goes through.

    All is in the units of the boxes' sizes, from 0 to ``width`` and ``height``; y points down.
    """

    boxes: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


@dataclass(eq=False)
class _Node:
    """A box (``number`` from 0), or a bend (-1); ``x`` is its middle."""

    number: int
    layer: int
    width: float = 0.0
    height: float = 0.0
    x: float = 0.0
    place: int = 0
    above: list[_Node] = field(default_factory=list)
    below: list[_Node] = field(default_factory=list)


def lay_out(sizes: Sequence[Point], edges: Sequence[tuple[int, int]]) -> GraphLayout:
    """Places for boxes of these widths and heights; edges are pairs of their numbers, from where to where.

    Edges that close a cycle lead upward.  Costs grow with boxes times layers.
    """
    down = _without_cycles(len(sizes), edges)
    layers, ways = _layers(sizes, down)
    _order(layers)
    _place(layers)
    every = [node for layer in layers for node in layer]
    left = min((node.x - node.width / 2 for node in every), default=0.0)
    right = max((node.x + node.width / 2 for node in every), default=0.0)
    tops, top = list[float](), 0.0
    heights = [max(node.height for node in layer) for layer in layers]
    for height in heights:
        tops.append(top)
        top += height + _LAYER
    boxes = [(0.0, 0.0)] * len(sizes)
    for node in every:
        if node.number >= 0:
            boxes[node.number] = node.x - left, tops[node.layer]
    routes = [
        tuple(_route(ways[edge], tops, heights, left))[:: 1 if edge == given else -1]
        for edge, given in zip(down, edges, strict=True)
    ]
    return GraphLayout(tuple(boxes), tuple(routes), right - left, max(top - _LAYER, 0.0))


def _without_cycles(count: int, edges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The edges, those reversed that close a cycle in the order of a depth-first search."""
    before: list[list[int]] = [[] for _ in range(count)]
    for start, end in edges:
        before[end].append(start)
    rank = {one: at for at, one in enumerate(post_order(range(count), before.__getitem__))}
    return [(a, b) if rank[a] <= rank[b] else (b, a) for a, b in edges]


def _layers(
    sizes: Sequence[Point], edges: Sequence[tuple[int, int]]
) -> tuple[list[list[_Node]], dict[tuple[int, int], list[_Node]]]:
    """Boxes and bends by layer, and the nodes on the way of each edge, both ends included."""
    above: list[list[int]] = [[] for _ in sizes]
    below: list[list[int]] = [[] for _ in sizes]
    for start, end in dict.fromkeys(edges):
        if start != end:
            above[end].append(start)
            below[start].append(end)
    layer = [0] * len(sizes)
    for one in post_order(range(len(sizes)), above.__getitem__):
        layer[one] = max((layer[start] + 1 for start in above[one]), default=0)
    for one in post_order(range(len(sizes)), below.__getitem__):
        if len(below[one]) >= max(len(above[one]), 1):  # no edge more gets longer than gets shorter
            layer[one] = min(layer[user] for user in below[one]) - 1
    least = min(layer, default=0)
    nodes = [_Node(number, layer[number] - least, *size) for number, size in enumerate(sizes)]
    layers: list[list[_Node]] = [
        [] for _ in range(1 + max((node.layer for node in nodes), default=-1))
    ]
    for node in nodes:
        layers[node.layer].append(node)
    bends: dict[tuple[int, int], _Node] = {}
    ways: dict[tuple[int, int], list[_Node]] = {}
    for start, end in dict.fromkeys(edges):
        way = [nodes[start]]
        for at in range(nodes[start].layer + 1, nodes[end].layer):
            bend = bends.get((start, at))
            if bend is None:
                bend = bends[start, at] = _Node(-1, at)
                layers[at].append(bend)
            way.append(bend)
        way.append(nodes[end])
        ways[start, end] = way
        for upper, lower in pairwise(way):
            if upper is not lower and lower not in upper.below:
                upper.below.append(lower)
                lower.above.append(upper)
    return layers, ways


def _order(layers: list[list[_Node]]) -> None:
    """Put the nodes of each layer into the order, of those tried, in which the fewest edges cross."""
    _number(layers)
    best, fewest = [[*layer] for layer in layers], _crossings(layers)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            wanted = {}
            for node in layer:
                linked = node.above if downwards else node.below
                wanted[node] = median(one.place for one in linked) if linked else node.place
            layer.sort(key=wanted.__getitem__)
            for place, node in enumerate(layer):
                node.place = place
        found = _crossings(layers)
        if found < fewest:
            best, fewest = [[*layer] for layer in layers], found
    layers[:] = best
    _number(layers)


def _number(layers: Sequence[Sequence[_Node]]) -> None:
    for layer in layers:
        for place, node in enumerate(layer):
            node.place = place


def _crossings(layers: Sequence[Sequence[_Node]]) -> int:
    """How many pairs of edges between neighbouring layers cross."""
    count = 0
    for layer in layers:
        seen: list[int] = []
        for node in layer:
            ends = sorted(one.place for one in node.below)
            count += sum(len(seen) - bisect_left(seen, end + 1) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


def _place(layers: Sequence[Sequence[_Node]]) -> None:
    """Choose ``x``, the order being given."""
    for layer in layers:
        _pool(layer, [0.0] * len(layer))
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            wanted = []
            for node in layer:
                linked = node.above if downwards else node.below
                linked = linked or (node.below if downwards else node.above)
                wanted.append(fmean(one.x for one in linked) if linked else node.x)
            _pool(layer, wanted)


def _pool(layer: Sequence[_Node], wanted: Sequence[float]) -> None:
    """The places in order, without overlap, that are nearest to those wanted in the least squares."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, nodes
    offsets, offset, before = [], 0.0, None
    for node, want in zip(layer, wanted, strict=True):
        if before is not None:
            offset += (before.width + node.width) / 2 + _GAP
        offsets.append(offset)
        before = node
        mean, weight, count = want - offset, 1.0 if node.number >= 0 else _STRAIGHT, 1
        while blocks and blocks[-1][0] > mean:
            other, its, nodes = blocks.pop()
            mean = (mean * weight + other * its) / (weight + its)
            weight, count = weight + its, count + nodes
        blocks.append((mean, weight, count))
    places = iter(zip(layer, offsets, strict=True))
    for mean, _, count in blocks:
        for _ in range(count):
            node, offset = next(places)
            node.x = mean + offset


def _route(
    way: Sequence[_Node], tops: Sequence[float], heights: Sequence[float], left: float
) -> Iterator[Point]:
    """From the lower edge of the first box through both ends of each bend to the upper edge of the last."""
    first, *bends, last = way
    yield first.x - left, tops[first.layer] + first.height
    for bend in bends:
        yield bend.x - left, tops[bend.layer]
        yield bend.x - left, tops[bend.layer] + heights[bend.layer]
    yield last.x - left, tops[last.layer]
