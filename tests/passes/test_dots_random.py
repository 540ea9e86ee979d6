"""Dots of random dimension numbers and folds of random moves keep their bits through what rewrites them."""

from __future__ import annotations

import random
from math import prod

import pytest

import hloopt
from hloopt.ir.build import clone_module
from hloopt.passes.dots.decomposer import DotDecomposer
from hloopt.passes.dots.dimension_sorter import DotDimensionSorter
from hloopt.passes.dots.merger import DotMerger
from hloopt.passes.dots.strength_reduction import DotStrengthReduction
from hloopt.passes.dots.transpose_folding import TransposeFolding
from hloopt.rewrite import Pass, PassLog, Pipeline
from hloopt.simplify import Simplify
from tests.passes.proof import identical, inputs

SEEDS = range(40)


def shape(element: str, dims: list[int]) -> str:
    return f"{element}[{','.join(map(str, dims))}]"


def braces(values: list[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def moved(
    chooser: random.Random, element: str, name: str, dims: list[int]
) -> tuple[str, list[int]]:
    """Maybe a transpose of ``name``, and where each of its dimensions is then."""
    order = list(range(len(dims)))
    if chooser.random() < 0.3:
        return f"{name}t = {shape(element, dims)} copy({name})\n", order
    chooser.shuffle(order)
    text = shape(element, [dims[dim] for dim in order])
    return f"{name}t = {text} transpose({name}), dimensions={braces(order)}\n", [
        order.index(dim) for dim in range(len(dims))
    ]


def dots(seed: int, element: str) -> str:
    """One or two dots of a shared operand, of transposes, with parts of any number of dimensions."""
    chooser = random.Random(seed)
    counts = [chooser.randint(0, 2) for _ in range(4)]
    batch, contracted, left, right = (
        [chooser.randint(1, 4) for _ in range(count)] for count in counts
    )
    lines, places = [], []
    for number, (name, free) in enumerate((("x", left), ("y", right))):
        dims = [*batch, *contracted, *free]
        lines.append(f"{name} = {shape(element, dims)} parameter({number})\n")
        text, place = moved(chooser, element, name, dims)
        lines.append(text)
        places.append(place)
    attributes = []
    # Dimensions that come back are in the order in which they lie.
    results = []
    for side, place, free in zip(("lhs", "rhs"), places, (left, right), strict=True):
        count, depth = len(batch), len(contracted)
        attributes.append(f"{side}_batch_dims={braces(place[:count])}")
        attributes.append(f"{side}_contracting_dims={braces(place[count : count + depth])}")
        ordered = sorted(zip(place[count + depth :], free, strict=True))
        results += [size for _, size in ordered]
    text = shape(element, [*batch, *results])
    how = ", ".join(attributes)
    lines.append(f"a = {text} dot(xt, yt), {how}\n")
    lines.append(f"n = {shape(element, [*batch, *contracted, *right])} negate(y)\n")
    lines.append("".join(lines[3:4]).replace("yt =", "nt =").replace("(y)", "(n)"))
    lines.append(f"b = {text} dot(xt, nt), {how}\nROOT r = ({text}, {text}) tuple(a, b)\n")
    return "HloModule m\nENTRY e {\n" + "".join(lines) + "}\n"


def folds(seed: int, element: str, opcode: str) -> str:
    """A reduce of a transpose, reshape, broadcast or concatenate of a parameter, maybe of a reduce."""
    chooser = random.Random(seed)
    dims = [chooser.randint(1, 4) for _ in range(chooser.randint(1, 3))]
    lines = [f"x = {shape(element, dims)} parameter(0)\n"]
    value, now = "x", dims
    for step in range(chooser.randint(1, 3)):
        kind, before = chooser.randrange(4), value
        value = f"v{step}"
        if kind == 0:
            order = list(range(len(now)))
            chooser.shuffle(order)
            now = [now[dim] for dim in order]
            what = f"transpose({before}), dimensions={braces(order)}"
        elif kind == 1:
            now = chooser.choice(
                [[prod(now)], [*now, 1], [1, *now], [size for size in now if size > 1]]
            )
            what = f"reshape({before})"
        elif kind == 2:
            places = sorted(chooser.sample(range(len(now) + 1), len(now)))
            wide = [chooser.randint(1, 3)] * (len(now) + 1)
            for place, size in zip(places, now, strict=True):
                wide[place] = size
            now = wide
            what = f"broadcast({before}), dimensions={braces(places)}"
        elif now:
            dim = chooser.randrange(len(now))
            now = [2 * size if at == dim else size for at, size in enumerate(now)]
            what = f"concatenate({before}, {before}), dimensions={{{dim}}}"
        else:
            what = f"negate({before})"
        lines.append(f"{value} = {shape(element, now)} {what}\n")
    start = chooser.choice(["i = $[] constant(0)", "i = $[] parameter(1)", "i = $[] constant(1)"])
    reduced = [dim for dim in range(len(now)) if chooser.random() < 0.6]
    kept = [size for dim, size in enumerate(now) if dim not in reduced]
    return (
        f"HloModule m\nto {{ a = {element}[] parameter(0)\n b = {element}[] parameter(1)\n"
        f"ROOT c = {element}[] {opcode}(a, b) }}\nENTRY e {{\n"
        + "".join(lines)
        + start.replace("$", element)
        + f"\nROOT r = {shape(element, kept)} reduce({value}, i), dimensions={braces(reduced)}, "
        "to_apply=to }\n"
    )


def hold(text: str, instance: Pass) -> int:
    module = hloopt.parse(text, "text")
    hloopt.verify(module)
    better = clone_module(module)
    report = Pipeline((instance,)).run(better, verify_each=True)
    assert not instance.run(clone_module(better), PassLog()), better.to_text()
    for seed in range(4):
        arrays = inputs(module, seed)
        pairs = zip(hloopt.evaluate(module, arrays), hloopt.evaluate(better, arrays), strict=True)
        assert all(identical(*pair) for pair in pairs), f"{text}\nbecame\n{better.to_text()}"
    return sum(sum(run.hits.values()) for run in report.runs)


@pytest.mark.parametrize(
    "instance",
    [
        TransposeFolding(),
        DotDecomposer(),
        DotDimensionSorter(),
        DotMerger(),
        DotStrengthReduction(),
        Simplify(),
    ],
    ids=lambda instance: instance.name,
)
def test_random_dots_of_integers(instance: Pass) -> None:
    """Every pass and the rules, on dots with any dimension numbers, which wrap around."""
    hits = [hold(dots(seed, "s32"), instance) for seed in SEEDS]
    assert any(hits)


@pytest.mark.parametrize("instance", [TransposeFolding(), DotDimensionSorter()])
def test_random_dots_of_floats(instance: Pass) -> None:
    """What leaves the order of the products alone changes no bit of a float."""
    for seed in SEEDS:
        hold(dots(seed, "f32"), instance)


@pytest.mark.every_value
@pytest.mark.parametrize("opcode", ["add", "maximum", "subtract"])
@pytest.mark.parametrize("element", ["f32", "s32"])
def test_random_folds(element: str, opcode: str) -> None:
    """Reduces of what was moved, from every kind of initial value."""
    hits = [hold(folds(seed, element, opcode), Simplify()) for seed in SEEDS]
    assert sum(map(bool, hits)) > len(SEEDS) // 2
