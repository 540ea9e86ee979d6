"""Reachability: exact answers, ranks that follow merges, bounded path searches."""

from __future__ import annotations

import random

import pytest

from hloopt.analysis.reachability import Reachability
from hloopt.ir import Computation, Instruction, edit
from hloopt.types import array

F32 = array("f32")


def _graph(edges: list[tuple[int, ...]]) -> list[Instruction]:
    computation = Computation("c")
    made: list[Instruction] = []
    for operands in edges:
        instruction = Instruction(
            f"n{len(made)}", "custom-call", F32, tuple(made[operand] for operand in operands)
        )
        made.append(edit.append(computation, instruction))
    computation.root = made[-1]
    return made


def _random_graph(seed: int, count: int) -> list[Instruction]:
    chooser = random.Random(seed)
    edges: list[tuple[int, ...]] = [()]
    for at in range(1, count):
        width = chooser.randint(0, min(at, 3))
        edges.append(tuple(chooser.randint(max(0, at - 8), at - 1) for _ in range(width)))
    return _graph(edges)


def _home(instruction: Instruction) -> Computation:
    assert instruction.computation is not None
    return instruction.computation


def _depends(before: Instruction, after: Instruction) -> bool:
    if before is after:
        return True
    inputs = (*after.operands, *after.control_predecessors)
    return any(_depends(before, source) for source in inputs)


@pytest.mark.parametrize("seed", range(5))
def test_answers_are_those_of_a_plain_search(seed: int) -> None:
    """Every pair of a random graph, control edges included."""
    nodes = _random_graph(seed, 18)
    edit.add_control_edge(nodes[3], nodes[15])
    reachability = Reachability(_home(nodes[0]))
    for before in nodes:
        for after in nodes:
            assert reachability.reaches(before, after) == _depends(before, after)
            assert reachability.connected(before, after) == (
                _depends(before, after) or _depends(after, before)
            )


@pytest.mark.parametrize("seed", range(5))
def test_one_walk_answers_for_all_pairs(seed: int) -> None:
    """The bits of what each depends on, and of what depends on it."""
    nodes = _random_graph(seed, 18)
    edit.add_control_edge(nodes[3], nodes[15])
    some = random.Random(seed).sample(nodes, 9)
    before, after = Reachability(_home(nodes[0])).dependence(some)
    for at, left in enumerate(some):
        for to, right in enumerate(some):
            depends = at != to and _depends(left, right)
            assert bool(before[to] >> at & 1) == depends
            assert bool(after[at] >> to & 1) == depends


def test_merging_past_a_third_instruction_makes_a_cycle() -> None:
    """a -> b -> c and a -> c: a and c cannot be one instruction while b is between them."""
    a, b, c, d = _graph([(), (0,), (0, 1), (0,)])
    reachability = Reachability(_home(a))
    assert reachability.merge_makes_cycle(a, c)
    assert not reachability.merge_makes_cycle(a, b)
    assert not reachability.merge_makes_cycle(a, d)


def test_control_edges_count_for_cycles() -> None:
    """The path through the third instruction may be a control edge."""
    a, b, c = _graph([(), (), (0,)])
    edit.add_control_edge(a, b)
    edit.add_control_edge(b, c)
    assert Reachability(_home(a)).merge_makes_cycle(a, c)


@pytest.mark.parametrize("seed", range(5))
def test_ranks_follow_new_edges(seed: int) -> None:
    """After an edge against the ranks, operands rank below their users again."""
    nodes = _random_graph(seed, 40)
    reachability = Reachability(_home(nodes[0]))
    chooser = random.Random(seed)
    for _ in range(30):
        before, after = chooser.sample(nodes, 2)
        if reachability.reaches(after, before):
            continue
        edit.set_operands(after, (*after.operands, before))
        reachability.restore(after)
        for node in nodes:
            for operand in node.operands:
                assert reachability.rank(operand) < reachability.rank(node)


def test_a_cycle_is_an_error() -> None:
    """Ranks cannot be right when two instructions depend on each other."""
    a, b = _graph([(), (0,)])
    reachability = Reachability(_home(a))
    edit.set_operands(a, (b,))
    with pytest.raises(ValueError, match="depend on each other"):
        reachability.restore(a)


@pytest.mark.parametrize("seed", range(5))
def test_path_instructions(seed: int) -> None:
    """Exactly those that depend on the first and that the last depends on."""
    nodes = _random_graph(seed, 16)
    reachability = Reachability(_home(nodes[0]))
    for before in nodes:
        for after in nodes:
            if before is after or not _depends(before, after):
                continue
            expected = {node for node in nodes if _depends(before, node) and _depends(node, after)}
            assert reachability.path_instructions(before, after, 100) == expected


def test_a_search_gives_up_at_its_limit() -> None:
    """A diamond of two long chains is too much for a small limit."""
    edges: list[tuple[int, ...]] = [()]
    for side in (1, 51):
        edges.append((0,))
        edges.extend((at,) for at in range(side, side + 49))
    edges.append((50, 100))
    nodes = _graph(edges)
    reachability = Reachability(_home(nodes[0]))
    assert reachability.path_instructions(nodes[0], nodes[-1], 10) is None
    assert reachability.path_instructions(nodes[0], nodes[-1], 1000) == set(nodes)


@pytest.mark.parametrize("seed", range(5))
def test_ranks_follow_edits_that_put_instructions_in(seed: int) -> None:
    """Two unconnected nodes become one, of which new nodes take what both computed: again and again."""
    chooser = random.Random(seed)
    nodes = _random_graph(seed, 40)
    reachability = Reachability(_home(nodes[0]))
    for step in range(30):
        first, second = chooser.sample(nodes, 2)
        if reachability.connected(first, second):
            continue
        home = _home(first)
        for at, old in enumerate((first, second)):
            taken = Instruction(f"t{step}.{at}", "custom-call", F32)
            edit.append(home, taken)
            edit.replace_uses(old, taken)
            edit.set_operands(taken, (first,))
            nodes.append(taken)
        edit.set_operands(first, (*first.operands, *second.operands))
        edit.remove(second)
        nodes.remove(second)
        reachability.follow(first, (second,))
        for node in nodes:
            for operand in node.operands:
                assert reachability.rank(operand) < reachability.rank(node)


def test_many_instructions_find_places_in_one_gap() -> None:
    """Where numbers run out, all are numbered anew."""
    a, b = _graph([(), (0,)])
    reachability = Reachability(_home(a))
    for step in range(200):
        between = edit.insert_before(b, Instruction(f"x{step}", "custom-call", F32, (a,)))
        edit.set_operands(b, (between,))
        reachability.follow(a, ())
        assert reachability.rank(a) < reachability.rank(between) < reachability.rank(b)
        a = between


def test_an_edit_that_makes_a_cycle_is_told() -> None:
    """What was taken over needs its own result."""
    a, _, c = _graph([(), (0,), (1,)])
    reachability = Reachability(_home(a))
    edit.set_operands(a, (c,))
    with pytest.raises(ValueError, match="depend on each other"):
        reachability.follow(a, ())
