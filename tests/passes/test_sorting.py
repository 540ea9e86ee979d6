"""sort-simplifier and permutation-sort: sorts of fewer operands, and no sorts at all."""

from __future__ import annotations

import random

import pytest

from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.passes.sorting.permutation_sort import PermutationSort
from hloopt.passes.sorting.sort_simplifier import SortSimplifier
from tests.passes.proof import check
from tests.properties.random_modules import module_text


def comparator(*types: str, key: int = 0, direction: str = "LT", more: str = "") -> str:
    lines = [f"p{at} = {types[at // 2]}[] parameter({at})" for at in range(2 * len(types))]
    root = f"ROOT l = pred[] compare(p{2 * key}, p{2 * key + 1}), direction={direction}{more}"
    return "less {\n" + "\n".join([*lines, root]) + "\n}\n"


def module(entry: str, less: str) -> str:
    return f"HloModule m\n{less}ENTRY e {{\n{entry}\n}}\n"


def opcodes(better: Module) -> list[str]:
    seen, pending = [], [better.entry.root]
    while pending:
        instruction = pending.pop()
        seen.append(instruction.opcode)
        pending.extend(instruction.operands)
    return sorted(set(seen) - {"parameter", "constant"})


def test_the_example_sorts_one_operand() -> None:
    """The comparator loses the parameters of what goes."""
    better, log = check(SortSimplifier.example, SortSimplifier())
    assert log.hits["drop unread operands"] == 1
    assert opcodes(better) == ["sort"]
    assert [len(entry.parameters) for entry in better] == [2, 2]


def test_a_middle_operand_goes() -> None:
    """Reads of the others are renumbered; what the comparator looks at stays."""
    text = module(
        "x = f32[3,4] parameter(0)\n y = s32[3,4] parameter(1)\n z = u8[3,4] parameter(2)\n"
        "w = f32[3,4] parameter(3)\n"
        "s = (f32[3,4], s32[3,4], u8[3,4], f32[3,4]) sort(x, y, z, w), dimensions={1}, to_apply=less\n"
        "a = f32[3,4] get-tuple-element(s), index=0\n b = f32[3,4] get-tuple-element(s), index=3\n"
        "ROOT r = (f32[3,4], f32[3,4]) tuple(a, b)",
        comparator("f32", "s32", "u8", "f32", key=1),
    )
    better, _ = check(text, SortSimplifier())
    sort = next(entry for entry in better.instructions() if entry.opcode == "sort")
    assert len(sort.operands) == 3
    assert sort.name == "s"


@pytest.mark.parametrize(("direction", "expected"), [("LT", []), ("GT", ["reverse"])])
def test_an_iota_is_sorted(direction: str, expected: list[str]) -> None:
    """Ascending it stays, descending it is reversed, and so is what goes with it."""
    text = module(
        "x = f32[3,4] parameter(0)\n i = s32[3,4] iota(), iota_dimension=1\n"
        "s = (f32[3,4], s32[3,4]) sort(x, i), dimensions={1}, to_apply=less\n"
        "ROOT r = f32[3,4] get-tuple-element(s), index=0",
        comparator("f32", "s32", key=1, direction=direction),
    )
    better, _ = check(text, SortSimplifier())
    assert opcodes(better) == sorted([*expected, "get-tuple-element", "iota", "tuple"])


def test_equal_keys_keep_their_order() -> None:
    """A constant with equal elements next to each other is sorted; one out of order is not."""
    less = comparator("s32", "f32")
    text = (
        "x = f32[4] parameter(0)\n k = s32[4] constant({1, 1, 2, 5})\n"
        "ROOT s = (s32[4], f32[4]) sort(k, x), dimensions={0}, to_apply=less"
    )
    check(module(text, less), SortSimplifier())
    check(module(text.replace("2, 5", "5, 2"), less), SortSimplifier(), changes=False)


def test_a_sort_of_a_sort() -> None:
    """The second changes nothing in total order; in partial order NaN has no place."""
    text = (
        "x = f32[4] parameter(0)\n s = f32[4] sort(x), dimensions={0}, to_apply=less\n"
        "ROOT t = f32[4] sort(s), dimensions={0}, to_apply=less"
    )
    better, _ = check(module(text, comparator("f32", more=", type=TOTALORDER")), SortSimplifier())
    assert sum(entry.opcode == "sort" for entry in better.instructions()) == 1
    check(module(text, comparator("f32")), SortSimplifier(), changes=False)


@pytest.mark.parametrize(("element", "changes"), [("s32", True), ("u8", True), ("f32", False)])
def test_a_promise_without_use(element: str, changes: bool) -> None:
    """Equal integers are the same; equal floats may be +0 and -0."""
    text = (
        f"x = {element}[4] parameter(0)\n"
        f"ROOT s = {element}[4] sort(x), dimensions={{0}}, is_stable=true, to_apply=less"
    )
    better, _ = check(module(text, comparator(element)), SortSimplifier(), changes=changes)
    assert bool(better.entry.root.attributes.get("is_stable")) is not changes


def test_a_whole_result_keeps_its_operands() -> None:
    """A sort whose tuple is the result, or goes on as a whole, keeps all."""
    text = (
        "x = f32[4] parameter(0)\n y = s32[4] parameter(1)\n"
        "ROOT s = (f32[4], s32[4]) sort(x, y), dimensions={0}, to_apply=less"
    )
    check(module(text, comparator("f32", "s32")), SortSimplifier(), changes=False)
    with pytest.raises(UsageError, match="limit"):
        SortSimplifier(limit=0)


def test_ranks_are_a_scatter() -> None:
    """argsort(argsort(x)) inverts a permutation."""
    better, log = check(PermutationSort.example, PermutationSort())
    assert log.hits["sort of a permutation => scatter"] == 1
    assert sum(entry.opcode == "sort" for entry in better.instructions()) == 1


def test_lines_of_a_matrix_and_several_operands() -> None:
    """Other dimensions go along; every operand but the key is scattered."""
    text = (
        "HloModule m\n"
        + comparator("f32", "s32").replace("less", "first")
        + comparator("f32", "s32", "u8", key=1)
        + "ENTRY e {\n x = f32[3,5] parameter(0)\n y = u8[3,5] parameter(1)\n"
        "j = s32[5] iota(), iota_dimension=0\n i = s32[3,5] broadcast(j), dimensions={1}\n"
        "s = (f32[3,5], s32[3,5]) sort(x, i), dimensions={1}, to_apply=first\n"
        "p = s32[3,5] get-tuple-element(s), index=1\n"
        "ROOT t = (f32[3,5], s32[3,5], u8[3,5]) sort(x, p, y), dimensions={1}, to_apply=less\n}\n"
    )
    better, _ = check(text, PermutationSort())
    assert opcodes(better) == ["broadcast", "get-tuple-element", "iota", "reshape", "scatter",
                               "sort", "tuple"]  # fmt: skip


@pytest.mark.parametrize(("dim", "direction", "iota"), [(0, "LT", 1), (1, "GT", 1), (1, "LT", 0)])
def test_what_is_no_permutation_stays(dim: int, direction: str, iota: int) -> None:
    """Another dimension, the other direction, and an iota along another dimension."""
    text = (
        "HloModule m\n"
        + comparator("f32", "s32").replace("less", "first")
        + comparator("s32", "f32", direction=direction)
        + f"ENTRY e {{\n x = f32[5,5] parameter(0)\n i = s32[5,5] iota(), iota_dimension={iota}\n"
        "s = (f32[5,5], s32[5,5]) sort(x, i), dimensions={1}, to_apply=first\n"
        "p = s32[5,5] get-tuple-element(s), index=1\n"
        f"ROOT t = (s32[5,5], f32[5,5]) sort(p, x), dimensions={{{dim}}}, to_apply=less\n}}\n"
    )
    check(text, PermutationSort(), changes=False)


@pytest.mark.parametrize("instance", [SortSimplifier(), PermutationSort()])
def test_random_modules_stay(instance: SortSimplifier | PermutationSort) -> None:
    """Modules without sorts stay as they are."""
    for seed in range(3):
        check(module_text(random.Random(seed)), instance, changes=False, draws=1)
