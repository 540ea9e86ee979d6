"""Which kernels of two modules are the same, and what became of the others."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis.value_digests import ValueDigests, kernel_digest
from hloopt.fusion.matching import KernelGroup, match_kernels
from hloopt.ir import Instruction, Module, walk
from hloopt.kernels import is_kernel


def module(entry: str, computations: str = "") -> Module:
    """A module of a few lines, one instruction each."""
    lines = "\n".join(f"  {line.strip()}" for line in entry.strip().splitlines())
    return hloopt.parse(f"HloModule m\n{computations}\nENTRY e {{\n{lines}\n}}\n")


def kernels(found: Module) -> list[Instruction]:
    return [
        entry
        for computation in walk.top_level_computations(found)
        for entry in computation
        if is_kernel(entry)
    ]


def match(before: Module, after: Module) -> list[KernelGroup]:
    return match_kernels(before, kernels(before), after, kernels(after))


def told(groups: list[KernelGroup]) -> list[tuple[str, str, str]]:
    return [
        (
            group.status,
            " ".join(kernel.name for kernel in group.before),
            " ".join(kernel.name for kernel in group.after),
        )
        for group in groups
    ]


CHAIN = """
x = f32[8,8] parameter(0)
a = f32[8,8] negate(x)
b = f32[8,8] exponential(a)
c = f32[8,8] abs(b)
ROOT d = f32[8,8] sine(c)
"""
HALVES = """
first { p = f32[8,8] parameter(0)
 n = f32[8,8] negate(p)
 ROOT r = f32[8,8] exponential(n) }
second { p = f32[8,8] parameter(0)
 n = f32[8,8] abs(p)
 ROOT r = f32[8,8] sine(n) }
"""
TWO = """
x = f32[8,8] parameter(0)
u = f32[8,8] fusion(x), kind=kLoop, calls=first
ROOT v = f32[8,8] fusion(u), kind=kLoop, calls=second
"""


def test_merged_and_split() -> None:
    """Each half of a chain comes from its own two kernels, and the other way round."""
    apart, together = module(CHAIN), module(TWO, HALVES)
    assert told(match(apart, together)) == [("merged", "a b", "u"), ("merged", "c d", "v")]
    assert told(match(together, apart)) == [("split", "u", "a b"), ("split", "v", "c d")]


def test_grew_and_shrank_with_what_moved() -> None:
    """A kernel that takes in one op of its neighbour's grew by it; the neighbour shrank."""
    other = """
    first { p = f32[8,8] parameter(0)
     ROOT n = f32[8,8] negate(p) }
    second { p = f32[8,8] parameter(0)
     e = f32[8,8] exponential(p)
     n = f32[8,8] abs(e)
     ROOT r = f32[8,8] sine(n) }
    """
    first, second = match(module(TWO, HALVES), module(TWO, other))
    assert (first.status, first.lost, first.gained) == ("shrank", (("exponential", 1),), ())
    assert (second.status, second.lost, second.gained) == ("grew", (), (("exponential", 1),))


def test_came_and_went() -> None:
    """What has no counterpart is told with its opcodes."""
    found = match(
        module("x = f32[8] parameter(0)\nROOT a = f32[8] negate(x)"),
        module("x = f32[8] parameter(0)\nROOT a = f32[8] sine(x)"),
    )
    assert told(found) == [("went", "a", ""), ("came", "", "a")]
    assert (found[0].lost, found[1].gained) == ((("negate", 1),), (("sine", 1),))


def test_repeated_names_the_kernels_that_compute_it_now() -> None:
    """A kernel that three others repeat is gone without being merged with one of them."""
    entry = "x = f32[8] parameter(0)\nn = f32[8] negate(x)\n"
    ends = ("sine", "cosine", "tanh")
    before = module(
        entry
        + "".join(f"{op} = f32[8] {op}(n)\n" for op in ends)
        + "ROOT t = (f32[8], f32[8], f32[8]) tuple(sine, cosine, tanh)"
    )
    bodies = "".join(
        f"f{op} {{ p = f32[8] parameter(0)\n n = f32[8] negate(p)\n ROOT r = f32[8] {op}(n) }}\n"
        for op in ends
    )
    after = module(
        "x = f32[8] parameter(0)\n"
        + "".join(f"{op} = f32[8] fusion(x), kind=kLoop, calls=f{op}\n" for op in ends)
        + "ROOT t = (f32[8], f32[8], f32[8]) tuple(sine, cosine, tanh)",
        bodies,
    )
    found = match(before, after)
    assert told(found) == [("repeated", "n", ""), *(("grew", op, op) for op in ends)]
    assert [kernel.name for kernel in found[0].elsewhere] == list(ends)


@pytest.mark.parametrize("count", [6, 40])
def test_behind_a_change_equal_layers_are_matched_in_their_order(count: int) -> None:
    """No value is the same as before, and all layers look alike: each fusion is made of its own two kernels."""
    layers = range(count)
    lone = "".join(
        f"sin{n} = f32[8] sine({f'cos{n - 1}' if n else 'a'})\ncos{n} = f32[8] cosine(sin{n})\n"
        for n in layers
    )
    before = module(
        f"x = f32[8] parameter(0)\na = f32[8] negate(x)\n{lone}ROOT r = f32[8] abs(cos{count - 1})"
    )
    body = "f { p = f32[8] parameter(0)\n s = f32[8] sine(p)\n ROOT c = f32[8] cosine(s) }"
    fused = "".join(
        f"fus{n} = f32[8] fusion({f'fus{n - 1}' if n else 'a'}), kind=kLoop, calls=f\n"
        for n in layers
    )
    after = module(
        f"x = f32[8] parameter(0)\na = f32[8] tanh(x)\n{fused}ROOT r = f32[8] abs(fus{count - 1})",
        body,
    )
    assert told(match(before, after)) == [
        ("went", "a", ""),
        *(("merged", f"sin{n} cos{n}", f"fus{n}") for n in layers),
        ("same", "r", "r"),
        ("came", "", "a"),
    ]


def test_a_change_upstream_leaves_the_kernels_behind_it_alone() -> None:
    """Kernels that do the same to other values are the same, in their order."""
    found = match(module(CHAIN), module(CHAIN.replace("negate", "tanh")))
    assert told(found) == [
        ("went", "a", ""), ("same", "b", "b"), ("same", "c", "c"), ("same", "d", "d"), ("came", "", "a"),
    ]  # fmt: skip


def test_twins_are_told_apart_by_what_they_read() -> None:
    """Of two equal kernels the one that is left is the one with the same operands."""
    before = module("""
        x = f32[8] parameter(0)
        y = f32[8] parameter(1)
        a = f32[8] negate(x)
        b = f32[8] negate(y)
        ROOT t = (f32[8], f32[8]) tuple(a, b)""")
    after = module("""
        x = f32[8] parameter(0)
        y = f32[8] parameter(1)
        c = f32[8] negate(y)
        ROOT t = (f32[8], f32[8]) tuple(x, c)""")
    assert told(match(before, after)) == [("went", "a", ""), ("same", "b", "c")]


def test_loops_are_entered() -> None:
    """Kernels in a body are matched, whatever place their values have in the loop's state."""
    text = """
    cond {{ s = ({state}) parameter(0)
     i = s32[] get-tuple-element(s), index={i}
     n = s32[] constant(3)
     ROOT r = pred[] compare(i, n), direction=LT }}
    body {{ s = ({state}) parameter(0)
     i = s32[] get-tuple-element(s), index={i}
     one = s32[] constant(1)
     j = s32[] add(i, one)
     v = f32[8] get-tuple-element(s), index={v}
     w = f32[8] sine(v)
     ROOT r = ({state}) tuple({next}) }}
    """
    entry = """
    x = f32[8] parameter(0)
    z = s32[] constant(0)
    t = ({state}) tuple({start})
    l = ({state}) while(t), condition=cond, body=body
    ROOT r = f32[8] get-tuple-element(l), index={v}
    """
    one = {"state": "s32[], f32[8]", "i": 0, "v": 1, "next": "j, w", "start": "z, x"}
    two = {"state": "f32[8], s32[]", "i": 1, "v": 0, "next": "w, j", "start": "x, z"}
    before, after = (module(entry.format(**row), text.format(**row)) for row in (one, two))
    assert {group.status for group in match(before, after)} == {"same"}
    outputs = [
        {digests.outputs for digests in ValueDigests(one).kernels.values()}
        for one in (before, after)
    ]
    assert outputs[0] == outputs[1]


def test_a_ladder_of_calls_is_not_climbed_on_every_way() -> None:
    """Thirty computations that call the next one twice: as many digests as instructions, in no time."""
    steps = [
        f"c{n} {{\n p = f32[8] parameter(0)\n a = f32[8] call(p), to_apply=c{n + 1}\n"
        f" ROOT b = f32[8] call(a), to_apply=c{n + 1}\n}}\n"
        for n in reversed(range(30))
    ]
    last = "c30 {\n p = f32[8] parameter(0)\n ROOT r = f32[8] negate(p)\n}\n"
    found = module(
        "x = f32[8] parameter(0)\nROOT r = f32[8] call(x), to_apply=c0", last + "".join(steps)
    )
    ((_, digests),) = ValueDigests(found).kernels.items()
    assert len(digests.inner) == 1


def test_calls_of_one_computation_have_results_of_their_own() -> None:
    """What is called with other operands gives other values, and what uses them is told apart."""
    body = "f { p = f32[8] parameter(0)\n ROOT r = f32[8] sine(p) }"
    entry = """
    x = f32[8] parameter(0)
    y = f32[8] parameter(1)
    a = f32[8] call(x), to_apply=f
    b = f32[8] call(y), to_apply=f
    c = f32[8] negate(a)
    d = f32[8] negate(b)
    ROOT t = (f32[8], f32[8]) tuple(c, d)
    """
    found = module(entry, body)
    digests = ValueDigests(found).kernels
    named = {kernel.name: digests[kernel].outputs for kernel in kernels(found)}
    assert named["c"] != named["d"]
    called = next(kernel for kernel in kernels(found) if kernel.name == "r")
    assert len(set(digests[called].outputs)) == 2
    inlined = module(
        entry.replace("call(", "sine(").replace(", to_apply=f", "").replace("    ", "")
    )
    assert told(match(found, inlined)) == [
        ("same", "c", "c"), ("same", "d", "d"), ("same", "r", "a"), ("repeated", "", "b"),
    ]  # fmt: skip
    lone = module(entry.replace("c, d)", "x, d)").replace("    c = f32[8] negate(a)\n", ""), body)
    assert told(match(found, lone)) == [
        ("went", "c", ""), ("same", "d", "d"), ("same", "r", "r"),
    ]  # fmt: skip


SUBTRACT = "x = f32[8,8] parameter(0)\ny = f32[8,8] parameter(1)\nROOT r = f32[8,8] subtract({})"


def only_kernel(found: Module) -> bytes:
    (kernel,) = kernels(found)
    return kernel_digest(kernel)


@pytest.mark.parametrize(
    ("entry", "computations", "same"),
    [
        (SUBTRACT.format("x, y"), "", True),
        (SUBTRACT.format("y, x"), "", True),
        (SUBTRACT.format("x, x"), "", False),
        (SUBTRACT.format("x, y").replace("subtract", "add"), "", False),
        (SUBTRACT.format("x, y").replace("8,8", "8,9"), "", False),
        (SUBTRACT.format("x, y").replace("8,8]", "8,8]{0,1}"), "", False),
        (
            SUBTRACT.format("x, y").replace("subtract(x, y)", "fusion(y, x), kind=kLoop, calls=f"),
            ("f { b = f32[8,8] parameter(0)\n a = f32[8,8] parameter(1)\n"
            "ROOT r = f32[8,8] subtract(a, b) }"),
            True,
        ),
    ],
)  # fmt: skip
def test_a_kernel_is_what_it_does(entry: str, computations: str, same: bool) -> None:
    """A lone op is the fusion of it; the order of parameters is no matter, that of an op's operands is."""
    plain = only_kernel(module(SUBTRACT.format("x, y")))
    assert (only_kernel(module(entry, computations)) == plain) is same


def test_views_at_the_border_and_the_order_of_results_do_not_count() -> None:
    """A fusion of two results in either order, one of them handed out under another shape."""
    entry = """
    x = f32[8,8] parameter(0)
    ROOT f = {shape} fusion(x), kind=kLoop, calls=f
    """
    body = """f {{ p = f32[8,8] parameter(0)
     a = f32[8,8] sine(p)
     b = f32[8,8] cosine(p)
     {view}
     ROOT r = {shape} tuple({results}) }}
    """
    plain = {"shape": "(f32[8,8], f32[8,8])", "view": "", "results": "a, b"}
    other = {"shape": "(f32[8,8], f32[64])", "view": "v = f32[64] bitcast(a)", "results": "b, v"}
    less = {"shape": "(f32[8,8], f32[8,8])", "view": "", "results": "a, a"}
    digests = [
        only_kernel(module(entry.format(**row), body.format(**row))) for row in (plain, other, less)
    ]
    assert digests[0] == digests[1] != digests[2]


def test_regions_count() -> None:
    """A sum is no maximum."""
    entry = """
    x = f32[8,8] parameter(0)
    z = f32[] constant(0)
    ROOT r = f32[8] reduce(x, z), dimensions={1}, to_apply=f
    """
    body = "f { p = f32[] parameter(0)\n q = f32[] parameter(1)\n ROOT r = f32[] OP(p, q) }"
    digests = {only_kernel(module(entry, body.replace("OP", op))) for op in ("add", "maximum")}
    assert len(digests) == 2


def test_optimising_leaves_one_kernel_of_each_group() -> None:
    """Every kernel of either module is in exactly one group, for a program of many kinds of ops."""
    from pathlib import Path

    text = (Path(__file__).parents[2] / "samples" / "mlp_train_step.hlo").read_text()
    before = hloopt.parse(text)
    after = hloopt.optimize(before, pipeline="O2", target="h200")
    groups = match(before, after)
    assert sorted(one.name for group in groups for one in group.before) == sorted(
        one.name for one in kernels(before)
    )
    assert sorted(one.name for group in groups for one in group.after) == sorted(
        one.name for one in kernels(after)
    )
    assert {"same", "merged"} <= {group.status for group in groups}
