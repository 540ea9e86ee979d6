"""What can be cut into the pieces it is made of, what that saves, and what it costs.

1. From every concatenate (and pad, and update in place at a known place) cuts are followed forward through
   ops and loop states, until nothing new can be cut.
2. Only what in the end is read in pieces counts: the rest is dropped.
3. Connected nodes are one region.  It saves the bytes that its concatenates and slices move, and costs
   those of the slices and concatenates that it needs at its edges; instructions of a loop count as often
   as it runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import field
from typing import TypeAlias

from hloopt.analysis.layout import same_layout
from hloopt.dataclass import dataclass
from hloopt.graphs import UnionFind, reached
from hloopt.ir import Instruction, Module
from hloopt.ops.traits import INDEXING, JOINING
from hloopt.passes.concat_removal.edges import is_cut_inside, is_free, operand_dims
from hloopt.passes.concat_removal.loops import StateElement, loops_of, weights
from hloopt.passes.concat_removal.splits import READS, Answer, Split, follow, seed
from hloopt.passes.loops.carried import states
from hloopt.types import ArrayShape, TupleShape

__all__ = ["CutRegion", "find_regions"]

Node: TypeAlias = Instruction | StateElement

_MOVES = JOINING | INDEXING - {"gather"} | {"slice"}


@dataclass
class CutRegion:
    """Nodes that are cut together; ``whole`` are those of them that are needed in one piece, too."""

    nodes: dict[Node, Split] = field(default_factory=dict)
    readers: dict[Instruction, None] = field(default_factory=dict)
    whole: set[Instruction] = field(default_factory=set)
    saved: int = 0
    cost: int = 0
    paid: set[tuple[Instruction, int]] = field(default_factory=set)

    def add(self, other: CutRegion) -> None:
        """Absorb another region, to be rewritten in one go."""
        self.nodes.update(other.nodes)
        self.readers.update(other.readers)
        self.whole |= other.whole

    @property
    def growth(self) -> int:
        """Instructions that are there afterwards and were not before: one for each piece but the first."""
        return sum(
            len(split.bounds) - 2
            for node, split in self.nodes.items()
            if isinstance(node, Instruction)
        )

    @property
    def seed(self) -> Instruction:
        """The instruction the region is named after: its first concatenate."""
        members = [node for node in self.nodes if isinstance(node, Instruction)]
        joins = [node for node in members if node.opcode == "concatenate"]
        return (joins or members)[0]


def find_regions(module: Module, pieces: int, *, fast_math: bool) -> list[CutRegion]:
    """All regions with what they save and cost, in the order of the module."""
    search = _Search(module, pieces, fast_math)
    search.grow()
    search.drop_orphans()
    return search.regions()


class _Search:
    def __init__(self, module: Module, pieces: int, fast_math: bool) -> None:
        self.pieces, self.fast_math = pieces, fast_math
        self.weights = weights(module)
        self.loops = dict.fromkeys(loops_of(module))
        self.states: dict[Instruction, list[Instruction]] = {}
        for loop in self.loops:
            for state in (loop.body.root, loop.operands[0]):
                self.states.setdefault(state, []).append(loop)
        self.sources = {source: loop for loop in self.loops for source in states(loop)}
        self.splits: dict[Node, Split] = {}
        self.blocked: set[Node] = set()
        self.pending: deque[Node] = deque()

    def grow(self) -> None:
        """Step 1."""
        for computation in self.weights:
            for instruction in computation:
                if instruction.opcode in ("concatenate", "pad", "dynamic-update-slice"):
                    self.propose(instruction, seed(instruction))
        while self.pending:
            node = self.pending.popleft()
            split = self.splits.get(node)
            if split is None:
                continue
            for target, answer in self.reach(node, split):
                if isinstance(answer, Split):
                    self.propose(target, answer)

    def reach(self, node: Node, split: Split) -> Iterator[tuple[Node, Answer]]:
        """What reads a cut node, and what it makes of the cut."""
        if isinstance(node, StateElement):
            yield from ((element, split) for element in node.reads)
            return
        for user in node.users:
            yield from ((slot, split) for slot in self.slots(user, node))
            yield user, self.answer(user, node, split)

    def propose(self, node: Node, split: Split | None) -> None:
        """Cut a node, also where it was cut before; not along two dimensions, nor into too many pieces."""
        if split is None or node in self.blocked or not self.may_cut(node):
            return
        known = self.splits.get(node)
        if known is not None:
            if known.dim != split.dim:
                return
            split = known.also(split.bounds)
            if split is known:
                return
        if len(split.bounds) > self.pieces + 1:
            self.blocked.add(node)
            self.splits.pop(node, None)
            return
        self.splits[node] = split
        self.pending.append(node)

    def drop_orphans(self) -> None:
        """Forget what can only be cut as its operand is, where that could not be cut after all."""
        pending = list(self.splits)
        while pending:
            node = pending.pop()
            if node not in self.splits or not self.is_orphan(node):
                continue
            split = self.splits.pop(node)
            pending += (target for target, _ in self.reach(node, split))

    def is_orphan(self, node: Node) -> bool:
        if isinstance(node, StateElement) or node.opcode not in ("reshape", "get-tuple-element"):
            return False
        if node.opcode == "reshape":
            split = self.splits.get(node.operands[0])
            answer = None if split is None else self.answer(node, node.operands[0], split)
            return not (isinstance(answer, Split) and self.is_cut_alike(node, answer))
        loop = self.sources.get(node.operands[0])
        return loop is None or StateElement(loop, node.tuple_index) not in self.splits

    def may_cut(self, node: Node) -> bool:
        if isinstance(node, StateElement):
            return _slot_may_be_cut(node) and all(map(self.may_cut, node.reads))
        return (
            node.is_array
            and not node.shape.is_dynamic
            and node.is_understood
            and not node.is_tied
            and all(
                isinstance(operand.shape, (ArrayShape, TupleShape)) for operand in node.operands
            )
            and not any(operand.is_array and operand.shape.is_dynamic for operand in node.operands)
        )

    def slots(self, user: Instruction, node: Instruction) -> list[StateElement]:
        """The loop states that ``node`` becomes through the tuple ``user``."""
        if user.opcode != "tuple":
            return []
        return [
            StateElement(loop, index)
            for loop in self.states.get(user, ())
            for index, operand in enumerate(user.operands)
            if operand is node
        ]

    def answer(self, user: Instruction, node: Instruction, split: Split) -> Answer:
        """How a user takes a cut operand, in all the places where it has it."""
        if user.has_control_edges or not user.is_understood:
            return None
        found: Answer = None
        for number, operand in enumerate(user.operands):
            if operand is not node:
                continue
            answer = follow(user, number, split, fast_math=self.fast_math)
            if isinstance(answer, Split) and isinstance(found, Split):
                if answer.dim != found.dim:
                    return None
                answer = found.also(answer.bounds)
            found = answer
            if found is None:
                return None
        if found is READS and ("sharding" in user.attributes or user.shape.is_dynamic):
            return None
        return found

    def regions(self) -> list[CutRegion]:
        """Steps 2 and 3."""
        edges = _Edges()
        for node, split in self.splits.items():
            self.connect(node, split, edges)
        useful = edges.useful()
        groups = edges.groups(useful)
        regions: dict[Node, CutRegion] = {}
        for node in self.splits:
            if node in useful:
                region = regions.setdefault(groups.find(node), CutRegion())
                region.nodes[node] = self.splits[node]
                region.readers.update(dict.fromkeys(edges.readers.get(node, ())))
                if isinstance(node, Instruction) and self.is_needed_whole(node, edges, useful):
                    region.whole.add(node)
        for region in regions.values():
            self.weigh(region)
        return list(regions.values())

    def connect(self, node: Node, split: Split, edges: _Edges) -> None:
        for target, answer in self.reach(node, split):
            if answer is READS and isinstance(target, Instruction):
                edges.readers.setdefault(node, []).append(target)
            elif isinstance(answer, Split) and self.is_cut_alike(target, answer):
                edges.add(node, target)

    def is_cut_alike(self, node: Node, split: Split) -> bool:
        known = self.splits.get(node)
        return known is not None and known.dim == split.dim

    def is_needed_whole(self, node: Instruction, edges: _Edges, useful: dict[Node, None]) -> bool:
        """Whether any user reads the instruction other than in pieces."""
        if node.is_root:
            return True
        reading = set(edges.readers.get(node, ())) | {
            user for user in edges.after.get(node, ()) if user in useful
        }
        return any(not self.is_satisfied(user, node, reading) for user in node.users)

    def is_satisfied(self, user: Instruction, node: Instruction, reading: set[Node]) -> bool:
        if user.opcode != "tuple":
            return user in reading
        return self.only_carries(user) and all(slot in reading for slot in self.slots(user, node))

    def only_carries(self, state: Instruction) -> bool:
        """Whether a tuple is nothing but the state of loops."""
        loops = self.states.get(state, ())
        known = sum(loop.body.root is state for loop in loops) == state.is_root
        return known and all(user in self.loops for user in state.users)

    def weigh(self, region: CutRegion) -> None:
        """Fill in the bytes that the region saves and costs."""
        for node, split in region.nodes.items():
            if isinstance(node, StateElement):
                region.cost += self.ends(node, region)
                continue
            if node.opcode in _MOVES:
                region.saved += _moved(node) * self.weight(node)
            if node in region.whole:
                region.cost += 2 * node.array.byte_size * self.weight(node)
            region.cost += self.inputs(node, split, region)
        for reader in region.readers:
            operand = reader.operands[0]
            if reader.opcode in _MOVES and _is_a_piece(reader, region.nodes[operand]):
                region.saved += _moved(reader) * self.weight(reader)

    def weight(self, node: Instruction) -> int:
        return self.weights[node.home]

    def ends(self, slot: StateElement, region: CutRegion) -> int:
        """What it costs to cut what goes into a loop, where that is not made of pieces."""
        total, split = 0, region.nodes[slot]
        for state in (slot.loop.operands[0], slot.loop.body.root):
            if state.opcode == "tuple":
                total += self.edge(state.operands[slot.index], split.dim, region)
            else:
                total += 2 * slot.shape.byte_size * self.weight(state)
        return total

    def inputs(self, node: Instruction, split: Split, region: CutRegion) -> int:
        """What it costs to cut the operands of a node that are not made of pieces."""
        if node.opcode == "get-tuple-element":
            return 0
        return sum(
            self.edge(operand, dim, region)
            for operand, dim in operand_dims(node, split.dim)
            if is_cut_inside(node, operand, split)
        )

    def edge(self, operand: Instruction, dim: int, region: CutRegion) -> int:
        """What it costs to cut one operand; nothing where that is done already."""
        known = region.nodes.get(operand)
        is_cut = known is not None and known.dim == dim
        if is_cut or (operand, dim) in region.paid or is_free(operand, dim):
            return 0
        region.paid.add((operand, dim))
        return 2 * operand.array.byte_size * self.weight(operand)


@dataclass
class _Edges:
    """Which cut nodes feed which, and what reads their pieces."""

    after: dict[Node, list[Node]] = field(default_factory=dict)
    before: dict[Node, list[Node]] = field(default_factory=dict)
    readers: dict[Node, list[Instruction]] = field(default_factory=dict)

    def add(self, source: Node, target: Node) -> None:
        self.after.setdefault(source, []).append(target)
        self.before.setdefault(target, []).append(source)

    def useful(self) -> dict[Node, None]:
        """Nodes from which the cut reaches what reads a piece, and all reads of cut states."""

        def sources(node: Node) -> list[Node]:
            also = self.after.get(node, []) if isinstance(node, StateElement) else []
            return self.before.get(node, []) + also

        return dict.fromkeys(reached(self.readers, sources))

    def groups(self, useful: dict[Node, None]) -> UnionFind[Node]:
        """Connected components."""
        found = UnionFind[Node]()
        for node in useful:
            found.join(node, *(other for other in self.after.get(node, ()) if other in useful))
        return found


def _slot_may_be_cut(slot: StateElement) -> bool:
    """Only arrays that have the same layout wherever the state is made."""
    shape = slot.loop.elements[slot.index]
    if not isinstance(shape, ArrayShape) or shape.is_dynamic:
        return False
    for source in (*states(slot.loop), slot.loop.operands[0], slot.loop.body.root):
        other = source.shape
        if not isinstance(other, TupleShape) or not same_layout(other.elements[slot.index], shape):
            return False
        if source.opcode == "tuple" and not same_layout(source.operands[slot.index].shape, shape):
            return False
    return True


def _moved(node: Instruction) -> int:
    """The bytes that an op which only moves data reads and writes."""
    if node.opcode == "dynamic-update-slice":
        return 2 * node.operands[1].array.byte_size
    return 2 * node.array.byte_size


def _is_a_piece(reader: Instruction, split: Split) -> bool:
    """Whether a slice of a cut array is one of its pieces as it is."""
    if reader.opcode == "dynamic-slice":
        others = reader.operands[0].array.dims
        size = reader.array.dims
        return all(size[d] == others[d] for d in range(len(size)) if d != split.dim)
    return all(
        entry.stride == 1 and (entry.start, entry.limit) in split.ranges
        if dim == split.dim
        else entry.size == reader.operands[0].array.dims[dim]
        for dim, entry in enumerate(reader.attributes["slice"])
    )
