"""Modules of random dots and convolutions."""

from __future__ import annotations

import random
from collections.abc import Sequence

__all__ = ["matrix_dot", "module_of", "random_convolution", "random_dot"]


def shape(kind: str, dims: Sequence[int]) -> str:
    """``f32[2,3]``."""
    return f"{kind}[{','.join(map(str, dims))}]"


def module_of(instructions: Sequence[tuple[str, Sequence[str]]]) -> str:
    """A module whose results are instructions ``result op(%0, %1), attributes`` with their operands' shapes."""
    lines, names, shapes, count = [], [], [], 0
    for number, (text, operands) in enumerate(instructions):
        parameters = []
        for operand in operands:
            lines.append(f"  p{count} = {operand} parameter({count})")
            parameters.append(f"p{count}")
            count += 1
        for at, name in enumerate(parameters):
            text = text.replace(f"%{at}", name)
        lines.append(f"  product{number} = {text}")
        names.append(f"product{number}")
        shapes.append(text.split()[0])
    root = f"  ROOT results = ({', '.join(shapes)}) tuple({', '.join(names)})"
    return "\n".join(["HloModule products", "", "ENTRY main {", *lines, root, "}", ""])


def matrix_dot(kinds: tuple[str, str, str], m: int, k: int, n: int) -> tuple[str, list[str]]:
    """An m by k matrix times a k by n matrix."""
    attributes = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    text = f"{kinds[2]}[{m},{n}] dot(%0, %1), {attributes}"
    return text, [f"{kinds[0]}[{m},{k}]", f"{kinds[1]}[{k},{n}]"]


def _dims(words: Sequence[int]) -> str:
    return "{" + ",".join(map(str, words)) + "}"


def random_dot(
    seed: int, kinds: tuple[str, str, str] = ("f32", "f32", "f32"), most: int = 40
) -> tuple[str, list[str]]:
    """A dot with any order of dimensions: up to two each of batch, contracted and free ones."""
    draw = random.Random(seed)
    batch, contracted, left, right = (
        [draw.choice([1, 2, 3, 5, 8, 17, most]) for _ in range(draw.randint(low, 2))]
        for low in (0, 1, 0, 0)
    )
    if len(batch) > 1:
        batch[0] = min(batch[0], 3)
    sides = []
    for free in (left, right):
        tags = [
            *(("b", at, size) for at, size in enumerate(batch)),
            *(("k", at, size) for at, size in enumerate(contracted)),
            *(("f", at, size) for at, size in enumerate(free)),
        ]
        draw.shuffle(tags)
        where = {tag[:2]: at for at, tag in enumerate(tags)}
        sides.append((tags, where))
    attributes = []
    for name, tag, sizes in (("contracting", "k", contracted), ("batch", "b", batch)):
        for side, (_, where) in zip(("lhs", "rhs"), sides, strict=True):
            numbers = [where[tag, at] for at in range(len(sizes))]
            if numbers:
                attributes.append(f"{side}_{name}_dims={_dims(numbers)}")
    free_sizes = [[size for tag, _, size in tags if tag == "f"] for tags, _ in sides]
    result = shape(kinds[2], [*batch, *free_sizes[0], *free_sizes[1]])
    operands = [
        shape(kind, [size for _, _, size in tags])
        for kind, (tags, _) in zip(kinds, sides, strict=False)
    ]
    return f"{result} dot(%0, %1), {', '.join(attributes)}", operands


def random_convolution(
    seed: int, kinds: tuple[str, str, str] = ("f32", "f32", "f32")
) -> tuple[str, list[str]]:
    """A convolution: any labels, strides, dilations, reversals, paddings (negative ones too) and groups."""
    draw = random.Random(seed)
    rank = draw.choice([0, 1, 1, 2, 2, 3])
    feature_groups, batch_groups = draw.choice([(1, 1), (1, 1), (2, 1), (4, 1), (1, 2)])
    per_group, inner = draw.choice([1, 2, 5, 16]), draw.choice([1, 3, 8])
    features = per_group * feature_groups * batch_groups
    batch = draw.choice([1, 2, 3]) * batch_groups
    windows, source, kernel, output = [], [], [], []
    for _ in range(rank):
        while True:
            size, extent = draw.choice([1, 2, 3]), draw.choice([1, 4, 7, 9])
            stride, base, dilation = (draw.choice([1, 1, 2, 3]) for _ in range(3))
            low, high = draw.choice([-1, 0, 0, 1, 2]), draw.choice([-1, 0, 0, 1, 2])
            padded = (extent - 1) * base + 1 + low + high
            reach = (size - 1) * dilation + 1
            if padded >= reach:
                break
        windows.append((size, stride, low, high, base, dilation, draw.choice([0, 0, 1])))
        source.append(extent)
        kernel.append(size)
        output.append((padded - reach) // stride + 1)
    labels, shapes = [], []
    for letters, ends, space in (
        ("bf", (batch, inner * feature_groups), source),
        ("io", (inner, features), kernel),
        ("bf", (batch // batch_groups, features), output),
    ):
        parts = [
            (letters[0], ends[0]),
            (letters[1], ends[1]),
            *((str(at), size) for at, size in enumerate(space)),
        ]
        draw.shuffle(parts)
        labels.append("".join(letter for letter, _ in parts))
        shapes.append([size for _, size in parts])
    attributes = [f"dim_labels={labels[0]}_{labels[1]}->{labels[2]}"]
    if rank:
        columns = list(zip(*windows, strict=True))
        attributes.insert(0, _window(columns))
    if feature_groups > 1:
        attributes.append(f"feature_group_count={feature_groups}")
    if batch_groups > 1:
        attributes.append(f"batch_group_count={batch_groups}")
    operands = [shape(kinds[0], shapes[0]), shape(kinds[1], shapes[1])]
    return f"{shape(kinds[2], shapes[2])} convolution(%0, %1), {', '.join(attributes)}", operands


def _window(columns: Sequence[Sequence[int]]) -> str:
    size, stride, low, high, base, dilation, reversal = columns
    pads = "x".join(f"{a}_{b}" for a, b in zip(low, high, strict=True))
    parts = {
        "size": size,
        "stride": stride,
        "lhs_dilate": base,
        "rhs_dilate": dilation,
        "rhs_reversal": reversal,
    }
    words = [f"{name}={'x'.join(map(str, values))}" for name, values in parts.items()]
    words.insert(2, f"pad={pads}")
    return f"window={{{' '.join(words)}}}"
