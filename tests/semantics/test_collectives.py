"""Collectives: lists of what the participants have, in plain Python, and what each gets of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from tests.helpers.rarely import examples
from tests.semantics.combiners import Combiner, binary, chosen, python, twice_less
from tests.semantics.elements import drawn_dims, moderate, seeds, shape_of, values
from tests.semantics.statement import assert_same

OPCODES = (
    "all-gather",
    "all-gather-done",
    "all-gather-start",
    "all-reduce",
    "all-reduce-done",
    "all-reduce-start",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "collective-permute-done",
    "collective-permute-start",
    "partition-id",
    "ragged-all-to-all",
    "reduce-scatter",
    "replica-id",
)

Array = np.ndarray[Any, Any]

COUNTS = ((1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (1, 4), (2, 3), (4, 2))


@dataclass(frozen=True)
class World:
    """Replicas, partitions, and groups of ids that mean what ``mode`` says."""

    replicas: int
    partitions: int
    mode: str
    groups: tuple[tuple[int, ...], ...]
    written: str

    @property
    def participants(self) -> range:
        return range(self.replicas * self.partitions)

    @property
    def size(self) -> int:
        """Participants in a group."""
        return len(self.members(0))

    def members(self, participant: int) -> list[int]:
        """The participants of a participant's group, in order."""
        replica, partition = participant // self.partitions, participant % self.partitions
        for group in self.groups:
            if self.mode == "replicas" and replica in group:
                return [other * self.partitions + partition for other in group]
            if self.mode == "partitions" and partition in group:
                return [replica * self.partitions + other for other in group]
            if self.mode == "both" and replica in group:
                return [r * self.partitions + p for r in group for p in range(self.partitions)]
            if self.mode == "flat" and participant in group:
                return list(group)
        return []

    @property
    def attributes(self) -> str:
        how = {
            "replicas": "",
            "partitions": ", channel_id=1",
            "both": ", channel_id=1",
            "flat": ", channel_id=1, use_global_device_ids=true",
        }
        return f"replica_groups={self.written}{how[self.mode]}"

    def module(self, lines: str, regions: str = "") -> str:
        header = f"HloModule m, replica_count={self.replicas}, num_partitions={self.partitions}"
        return f"{header}\n{regions}\nENTRY e {{\n{lines}\n}}\n"


def listed(groups: Sequence[Sequence[int]]) -> str:
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


@st.composite
def worlds(draw: Callable[..., Any], modes: Sequence[str], *, alike: bool = True) -> World:
    """A world and a way to write its groups; ``alike`` groups have one size."""
    replicas, partitions = draw(st.sampled_from(COUNTS))
    mode = draw(st.sampled_from(modes))
    count = {"partitions": partitions, "flat": replicas * partitions}.get(mode, replicas)
    form = draw(st.sampled_from(["list", "iota", "turned", "mesh", "none"]))
    sizes = [size for size in range(1, count + 1) if count % size == 0]
    size = draw(st.sampled_from(sizes))
    rows = count // size
    if form == "none" and mode != "flat":
        return World(replicas, partitions, mode, (tuple(range(count)),), "{}")
    if form == "iota":
        groups = [range(row * size, (row + 1) * size) for row in range(rows)]
        return _world(replicas, partitions, mode, groups, f"[{rows},{size}]<=[{count}]")
    if form == "turned":
        # Numbered down the columns of a matrix of ``size`` rows.
        groups = [[row + rows * at for at in range(size)] for row in range(rows)]
        text = f"[{rows},{size}]<=[{size},{rows}]T(1,0)"
        return _world(replicas, partitions, mode, groups, text)
    if form == "mesh":
        # The first axis is the slow one.
        if draw(st.booleans()):
            groups = [[row + rows * at for at in range(size)] for row in range(rows)]
            text = f"mesh['a'={size},'b'={rows}] {{'a'}}"
        else:
            groups = [range(row * size, (row + 1) * size) for row in range(rows)]
            text = f"mesh['a'={rows},'b'={size}] {{'b'}}"
        return _world(replicas, partitions, mode, groups, text)
    order = draw(st.permutations(range(count)))
    if alike:
        groups = [order[row * size : (row + 1) * size] for row in range(rows)]
    else:
        cut = draw(st.integers(1, count))
        groups = [part for part in (order[:cut], order[cut:]) if part]
    return _world(replicas, partitions, mode, groups, listed(groups))


def _world(replicas: int, partitions: int, mode: str, groups: Any, written: str) -> World:
    return World(replicas, partitions, mode, tuple(map(tuple, groups)), written)


BOTH = ("replicas", "both", "flat")  # of ops that have use_global_device_ids
SIMPLE = ("replicas", "partitions")  # of the others


def check(
    world: World, text: str, inputs: Sequence[Sequence[Array]], want: Sequence[Sequence[Array]]
) -> None:
    """Fail where interpreter or executor do not give each participant what is wanted."""
    module = hloopt.parse(text, "statement")
    hloopt.verify(module)
    program = hloopt.compile(module, replicas=world.replicas, partitions=world.partitions)
    for who, found in (
        ("interpreter", hloopt.evaluate_participants(module, inputs)),
        ("executor", program.run_participants(inputs)),
    ):
        assert len(found) == len(want)
        for participant, (results, wanted) in enumerate(zip(found, want, strict=True)):
            assert len(results) == len(wanted)
            for number, (got, expected) in enumerate(zip(results, wanted, strict=True)):
                assert_same(got, expected, f"{who}, participant {participant}, result {number}")


def drawn(
    world: World, kind: str, dims: Sequence[int], chooser: Any, make: Any = values
) -> list[Array]:
    return [make(kind, dims, chooser) for _ in world.participants]


def folded(parts: Sequence[Array], combiner: Combiner) -> Array:
    """Element by element, from the first to the last."""
    (kind,) = combiner.kinds
    result = parts[0].copy()
    for index in product(*map(range, result.shape)):
        total = (python(parts[0][index], kind),)
        for part in parts[1:]:
            total = combiner.function(total, (python(part[index], kind),))
        result[index] = total[0]
    return result


def joined(parts: Sequence[Array], axis: int) -> Array:
    """One after another along an axis, element by element."""
    dims = list(parts[0].shape)
    length = dims[axis]
    dims[axis] = length * len(parts)
    result = np.empty(dims, parts[0].dtype)
    for index in product(*map(range, dims)):
        number, at = index[axis] // length, index[axis] % length
        result[index] = parts[number][(*index[:axis], at, *index[axis + 1 :])]
    return result


def slice_of(whole: Array, number: int, count: int, axis: int) -> Array:
    """Part ``number`` of ``count`` along an axis, element by element."""
    dims = list(whole.shape)
    length = dims[axis] = dims[axis] // count
    result = np.empty(dims, whole.dtype)
    for index in product(*map(range, dims)):
        at = number * length + index[axis]
        result[index] = whole[(*index[:axis], at, *index[axis + 1 :])]
    return result


COMBINERS = (
    binary("add", "s8"),
    binary("add", "f32"),
    binary("add", "bf16"),
    binary("add", "pred"),
    binary("multiply", "f32"),
    binary("maximum", "f32"),
    binary("minimum", "bf16"),
    binary("maximum", "u16"),
    binary("and", "pred"),
    binary("or", "s32"),
    binary("xor", "u8"),
    binary("subtract", "s32"),
    binary("subtract", "f32", swapped=True),
    twice_less("s16"),
    chosen(0, "f32"),
    chosen(1, "s8"),
)


@pytest.mark.parametrize("combiner", COMBINERS, ids=repr)
@settings(max_examples=12)
@given(world=worlds(BOTH, alike=False), dims=drawn_dims(0, 2, 0, 3), chooser=seeds)
def test_all_reduce_folds_in_the_order_of_the_group(
    world: World, dims: tuple[int, ...], combiner: Combiner, chooser: Any
) -> None:
    """((x0 + x1) + x2) ..., the same for all members, whatever the computation."""
    (kind,) = combiner.kinds
    make = moderate if "multiply" in combiner.name else values
    given_ = drawn(world, kind, dims, chooser, make)
    shape = shape_of(kind, dims)
    text = world.module(
        f"  p = {shape} parameter(0)\n"
        f"  ROOT r = {shape} all-reduce(p), {world.attributes}, to_apply=combine",
        combiner.text,
    )
    want = [
        [folded([given_[member] for member in world.members(participant)], combiner)]
        for participant in world.participants
    ]
    check(world, text, [[x] for x in given_], want)


@settings(max_examples=examples(25))
@given(world=worlds(BOTH), dims=drawn_dims(0, 2, 0, 3), chooser=seeds, started=st.booleans())
def test_all_reduce_of_several_operands(
    world: World, dims: tuple[int, ...], chooser: Any, started: bool
) -> None:
    """Each operand is combined by itself, and its end gives what its start has."""
    combiner = binary("add", "s32")
    first, second = (drawn(world, "s32", dims, chooser) for _ in range(2))
    shape = shape_of("s32", dims)
    pair = f"({shape}, {shape})"
    if started:
        body = (
            f"  s = {pair} all-reduce-start(p, q), {world.attributes}, to_apply=combine\n"
            f"  ROOT r = {pair} all-reduce-done(s)"
        )
    else:
        body = f"  ROOT r = {pair} all-reduce(p, q), {world.attributes}, to_apply=combine"
    text = world.module(
        f"  p = {shape} parameter(0)\n  q = {shape} parameter(1)\n{body}", combiner.text
    )
    want = [
        [folded([x[member] for member in world.members(number)], combiner) for x in (first, second)]
        for number in world.participants
    ]
    check(world, text, list(map(list, zip(first, second, strict=True))), want)


@settings(max_examples=examples(40))
@given(
    world=worlds(BOTH),
    dims=drawn_dims(1, 3, 0, 3),
    chooser=seeds,
    form=st.sampled_from(["plain", "several", "started", "started several", "async"]),
    data=st.data(),
)
def test_all_gather(
    world: World, dims: tuple[int, ...], chooser: Any, form: str, data: st.DataObject
) -> None:
    """The parts of the group one after another, in every form of the op."""
    axis = data.draw(st.integers(0, len(dims) - 1))
    count = 2 if "several" in form else 1
    parts = [drawn(world, "u8", dims, chooser) for _ in range(count)]
    large = list(dims)
    large[axis] *= world.size
    small, whole = shape_of("u8", dims), shape_of("u8", large)
    lines = [f"  p{at} = {small} parameter({at})" for at in range(count)]
    operands = ", ".join(f"p{at}" for at in range(count))
    gather = f"({operands}), {world.attributes}, dimensions={{{axis}}}"
    both = f"({whole}, {whole})"
    regions = ""
    if form == "plain":
        lines.append(f"  ROOT r = {whole} all-gather{gather}")
    elif form == "several":
        lines.append(f"  ROOT r = {both} all-gather{gather}")
    elif form == "started":
        lines.append(f"  s = ({small}, {whole}) all-gather-start{gather}")
        lines.append(f"  ROOT r = {whole} all-gather-done(s)")
    elif form == "started several":
        lines.append(f"  s = (({small}, {small}), {both}) all-gather-start{gather}")
        lines.append(f"  ROOT r = {both} all-gather-done(s)")
    else:
        regions = (
            f"wrapped {{\n  p0 = {small} parameter(0)\n  ROOT g = {whole} all-gather{gather}\n}}"
        )
        lines.append(f"  s = (({small}), {whole}, u32[]) async-start(p0), calls=wrapped")
        lines.append(f"  ROOT r = {whole} async-done(s)")
    want = [
        [joined([x[member] for member in world.members(number)], axis) for x in parts]
        for number in world.participants
    ]
    text = world.module("\n".join(lines), regions)
    check(world, text, list(map(list, zip(*parts, strict=True))), want)


@pytest.mark.parametrize(
    "combiner", [binary("add", "s8"), binary("maximum", "f32"), twice_less("s16")], ids=repr
)
@settings(max_examples=examples(15))
@given(world=worlds(BOTH), dims=drawn_dims(1, 2, 0, 2), chooser=seeds, data=st.data())
def test_reduce_scatter(
    world: World, dims: tuple[int, ...], combiner: Combiner, chooser: Any, data: st.DataObject
) -> None:
    """What all-reduce gives, of which member i keeps part i."""
    axis = data.draw(st.integers(0, len(dims) - 1))
    (kind,) = combiner.kinds
    large = list(dims)
    large[axis] *= world.size
    given_ = drawn(world, kind, large, chooser)
    text = world.module(
        f"  p = {shape_of(kind, large)} parameter(0)\n"
        f"  ROOT r = {shape_of(kind, dims)} reduce-scatter(p), {world.attributes}, "
        f"dimensions={{{axis}}}, to_apply=combine",
        combiner.text,
    )
    want = []
    for number in world.participants:
        members = world.members(number)
        total = folded([given_[member] for member in members], combiner)
        want.append([slice_of(total, members.index(number), world.size, axis)])
    check(world, text, [[x] for x in given_], want)


@settings(max_examples=examples(30))
@given(world=worlds(SIMPLE), dims=drawn_dims(1, 3, 0, 3), chooser=seeds, data=st.data())
def test_all_to_all_along_a_dimension(
    world: World, dims: tuple[int, ...], chooser: Any, data: st.DataObject
) -> None:
    """Member i gets slice i of each, one after another."""
    axis = data.draw(st.integers(0, len(dims) - 1))
    large = list(dims)
    large[axis] *= world.size
    given_ = drawn(world, "s16", large, chooser)
    shape = shape_of("s16", large)
    text = world.module(
        f"  p = {shape} parameter(0)\n"
        f"  ROOT r = {shape} all-to-all(p), {world.attributes}, dimensions={{{axis}}}"
    )
    want = []
    for number in world.participants:
        members = world.members(number)
        at = members.index(number)
        slices = [slice_of(given_[member], at, world.size, axis) for member in members]
        want.append([joined(slices, axis)])
    check(world, text, [[x] for x in given_], want)


@settings(max_examples=examples(25))
@given(world=worlds(SIMPLE), dims=drawn_dims(0, 2, 0, 3), chooser=seeds)
def test_all_to_all_of_tuples(world: World, dims: tuple[int, ...], chooser: Any) -> None:
    """Operand i goes to member i, whose part j is from member j."""
    size = world.size
    given_ = [[values("f32", dims, chooser) for _ in range(size)] for _ in world.participants]
    shape = shape_of("f32", dims)
    lines = [f"  p{at} = {shape} parameter({at})" for at in range(size)]
    operands = ", ".join(f"p{at}" for at in range(size))
    result = f"({', '.join([shape] * size)})"
    lines.append(f"  ROOT r = {result} all-to-all({operands}), {world.attributes}")
    want = []
    for number in world.participants:
        members = world.members(number)
        want.append([given_[member][members.index(number)] for member in members])
    check(world, world.module("\n".join(lines)), given_, want)


@settings(max_examples=examples(25))
@given(world=worlds(SIMPLE), dims=drawn_dims(0, 2, 0, 3), chooser=seeds, data=st.data())
def test_collective_broadcast(
    world: World, dims: tuple[int, ...], chooser: Any, data: st.DataObject
) -> None:
    """What the first of the group has; zeros outside of all groups."""
    if len(world.groups) > 1 and data.draw(st.booleans()):
        groups = world.groups[1:]
        world = _world(world.replicas, world.partitions, world.mode, groups, listed(groups))
    given_ = drawn(world, "f32", dims, chooser)
    shape = shape_of("f32", dims)
    text = world.module(
        f"  p = {shape} parameter(0)\n  ROOT r = {shape} collective-broadcast(p), {world.attributes}"
    )
    want = []
    for number in world.participants:
        members = world.members(number)
        want.append([given_[members[0]] if members else np.zeros(dims, np.float32)])
    check(world, text, [[x] for x in given_], want)


@st.composite
def pairings(draw: Callable[..., Any]) -> tuple[World, list[tuple[int, int]]]:
    """A world without groups, and pairs in which each id is a source and a target at most once."""
    world = draw(worlds(SIMPLE))
    count = world.replicas if world.mode == "replicas" else world.partitions
    targets = draw(st.permutations(range(count)))
    kept = draw(st.lists(st.integers(0, count - 1), unique=True))
    return world, [(source, targets[source]) for source in kept]


def source_of(world: World, pairs: Sequence[tuple[int, int]], number: int) -> int | None:
    """The participant that sends to one."""
    replica, partition = number // world.partitions, number % world.partitions
    for source, target in pairs:
        if world.mode == "replicas" and target == replica:
            return source * world.partitions + partition
        if world.mode == "partitions" and target == partition:
            return replica * world.partitions + source
    return None


@settings(max_examples=examples(40))
@given(
    paired=pairings(),
    dims=drawn_dims(0, 2, 0, 3),
    chooser=seeds,
    form=st.sampled_from(["plain", "several", "started", "started several"]),
)
def test_collective_permute(
    paired: tuple[World, list[tuple[int, int]]], dims: tuple[int, ...], chooser: Any, form: str
) -> None:
    """The operand of the source, or zeros where nobody sends."""
    world, pairs = paired
    count = 2 if "several" in form else 1
    parts = [drawn(world, "f32", dims, chooser) for _ in range(count)]
    shape = shape_of("f32", dims)
    lines = [f"  p{at} = {shape} parameter({at})" for at in range(count)]
    operands = ", ".join(f"p{at}" for at in range(count))
    channel = ", channel_id=1" if world.mode == "partitions" else ""
    permute = f"({operands}), source_target_pairs={listed(pairs)}{channel}"
    result = f"({shape}, {shape})" if count == 2 else shape
    if "started" in form:
        state = f"({result}, {result}, u32[], u32[])"
        lines.append(f"  s = {state} collective-permute-start{permute}")
        lines.append(f"  ROOT r = {result} collective-permute-done(s)")
    else:
        lines.append(f"  ROOT r = {result} collective-permute{permute}")
    want = []
    for number in world.participants:
        source = source_of(world, pairs, number)
        zeros = np.zeros(dims, np.float32)
        want.append([zeros if source is None else x[source] for x in parts])
    check(world, world.module("\n".join(lines)), list(map(list, zip(*parts, strict=True))), want)


@settings(max_examples=examples(30))
@given(
    paired=pairings(),
    dims=drawn_dims(1, 2, 1, 4),
    chooser=seeds,
    started=st.booleans(),
    data=st.data(),
)
def test_collective_permute_in_place(
    paired: tuple[World, list[tuple[int, int]]],
    dims: tuple[int, ...],
    chooser: Any,
    started: bool,
    data: st.DataObject,
) -> None:
    """A slice of the source's input lies in the target's output, which is else as it was."""
    world, pairs = paired
    inputs, outputs = (drawn(world, "s32", dims, chooser) for _ in range(2))
    sizes = [data.draw(st.integers(0, size)) for size in dims]
    taken = [
        [data.draw(st.integers(0, size - part)) for size, part in zip(dims, sizes, strict=True)]
        for _ in world.participants
    ]
    put = [data.draw(st.integers(0, size - part)) for size, part in zip(dims, sizes, strict=True)]
    shape, rank = shape_of("s32", dims), len(dims)
    lines = [f"  p = {shape} parameter(0)", f"  q = {shape} parameter(1)"]
    lines += [f"  a{at} = s32[] parameter({2 + at})" for at in range(rank)]
    lines += [f"  b{at} = s32[] constant({start})" for at, start in enumerate(put)]
    starts = f"({', '.join(['s32[]'] * rank)})"
    for side in "ab":
        names = ", ".join(f"{side}{at}" for at in range(rank))
        lines.append(f"  {side} = {starts} tuple({names})")
    channel = ", channel_id=1" if world.mode == "partitions" else ""
    permute = (
        f"(p, q, a, b), source_target_pairs={listed(pairs)}{channel}, slice_sizes={listed([sizes])}"
    )
    if started:
        lines.append(f"  s = ({shape}, {shape}, u32[], u32[]) collective-permute-start{permute}")
        lines.append(f"  ROOT r = {shape} collective-permute-done(s)")
    else:
        lines.append(f"  ROOT r = {shape} collective-permute{permute}")
    given_ = [
        [inputs[n], outputs[n], *(np.array(start, np.int32) for start in taken[n])]
        for n in world.participants
    ]
    want = []
    for number in world.participants:
        result = outputs[number].copy()
        source = source_of(world, pairs, number)
        if source is not None:
            for index in product(*map(range, sizes)):
                here = tuple(start + at for start, at in zip(put, index, strict=True))
                there = tuple(start + at for start, at in zip(taken[source], index, strict=True))
                result[here] = inputs[source][there]
        want.append([result])
    check(world, world.module("\n".join(lines)), given_, want)


@settings(max_examples=examples(30))
@given(world=worlds(SIMPLE), chooser=seeds, data=st.data())
def test_ragged_all_to_all(world: World, chooser: Any, data: st.DataObject) -> None:
    """Each sender says where its rows lie in the receiver's output; all other rows stay."""
    updates = data.draw(st.integers(1, 2))
    rank = data.draw(st.integers(1, 2))
    size, rows = world.size, 4
    count = size * updates
    # sizes[sender][receiver's place][update]
    sent = [[chooser.randrange(3) for _ in range(count)] for _ in world.participants]
    capacity = 2 * count
    row = (2,)
    inputs = drawn(world, "s32", (rows, *row), chooser)
    outputs = drawn(world, "s32", (capacity, *row), chooser)
    starts = [[chooser.randrange(rows - n + 1) for n in sizes] for sizes in sent]
    targets = [[0] * count for _ in world.participants]
    received = [[0] * count for _ in world.participants]
    want = [output.copy() for output in outputs]
    for number in world.participants:
        members = world.members(number)
        mine = members.index(number)
        free = chooser.randrange(2)
        for place, sender in enumerate(members):
            for update in range(updates):
                there, here = mine * updates + update, place * updates + update
                length = min(sent[sender][there], capacity - free)
                sent[sender][there] = received[number][here] = length
                targets[sender][there] = free
                for at in range(length):
                    want[number][free + at] = inputs[sender][starts[sender][there] + at]
                free += length
    table = (size, updates) if rank == 2 else (count,)
    numbers, whole = shape_of("s64", table), shape_of("s32", (capacity, *row))
    lines = [
        f"  p0 = {shape_of('s32', (rows, *row))} parameter(0)",
        f"  p1 = {whole} parameter(1)",
        *(f"  p{at} = {numbers} parameter({at})" for at in range(2, 6)),
        f"  ROOT r = {whole} ragged-all-to-all(p0, p1, p2, p3, p4, p5), {world.attributes}",
    ]
    given_ = [
        [
            inputs[n],
            outputs[n],
            *(np.array(x[n]).reshape(table) for x in (starts, sent, targets, received)),
        ]
        for n in world.participants
    ]
    check(world, world.module("\n".join(lines)), given_, [[x] for x in want])


@pytest.mark.parametrize(("replicas", "partitions"), COUNTS)
def test_ids(replicas: int, partitions: int) -> None:
    """Participant replica * partitions + partition knows both numbers."""
    world = World(replicas, partitions, "replicas", (), "{}")
    text = world.module(
        "  r = u32[] replica-id()\n  p = u32[] partition-id()\n"
        "  ROOT t = (u32[], u32[]) tuple(r, p)"
    )
    want = [
        [np.array(replica, np.uint32), np.array(partition, np.uint32)]
        for replica in range(replicas)
        for partition in range(partitions)
    ]
    check(world, text, [[] for _ in world.participants], want)
