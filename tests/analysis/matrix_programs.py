"""Random programs over small matrices: masks, products, views and factorisations."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

__all__ = ["Program"]

PRODUCT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
SUM = "add { p = f32[] parameter(0)\nq = f32[] parameter(1)\nROOT s = f32[] add(p, q) }\n"


class Program:
    """A program of random ops on small matrices, masks and positions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.kind = self.random.choice(("f32", "f32", "f32", "bf16", "f64", "s32", "s8", "c64"))
        for number, dims in enumerate(((4, 4), (4, 4), (4,), (3, 4), (2, 4, 4))):
            self.add(self.kind, dims, f"parameter({number})")
        self.add("s32", (4,), "parameter(5)")
        for number in (0, 1, 3):
            self.add(self.kind, (), f"constant({self.number(number)})")
        self.add("s32", (), "constant(1)")
        for dims in ((4, 4), (2, 4, 4)):
            for dim in range(len(dims)):
                self.add("s32", dims, f"iota(), iota_dimension={dim}")
        rows = ((1, 0, 0, 0), (2, 1, 0, 0), (0, 3, 1, 0), (0, 0, -4, 1))
        written = ", ".join(f"{{{', '.join(map(self.number, row))}}}" for row in rows)
        self.add(self.kind, (4, 4), f"constant({{{written}}})")
        for _ in range(self.random.randint(8, 30)):
            self.random.choice(STEPS)(self)

    def number(self, value: int) -> str:
        return f"({value}, 0)" if self.kind == "c64" else str(value)

    def add(self, kind: str, dims: tuple[int, ...], call: str) -> str:
        name = f"v{len(self.lines)}"
        shape = f"{kind}[{','.join(map(str, dims))}]"
        self.lines.append(f"{name} = {shape} {call}")
        self.shapes[name] = (kind, dims)
        return name

    def pick(self, test: Callable[[str, tuple[int, ...]], bool]) -> str | None:
        found = [name for name, (kind, dims) in self.shapes.items() if test(kind, dims)]
        # Later ones are made of more.
        return self.random.choice(found[-6:] + found) if found else None

    @property
    def text(self) -> str:
        lines = [*self.lines]
        lines[-1] = "ROOT " + lines[-1]
        return f"HloModule m\n{SUM}ENTRY e {{\n" + "\n".join(lines) + "\n}\n"


def _like(program: Program, kind: str, dims: tuple[int, ...]) -> str:
    found = program.pick(lambda k, d: (k, d) == (kind, dims))
    assert found is not None
    return found


def _elementwise(program: Program) -> None:
    one = program.pick(lambda kind, dims: kind == program.kind)
    assert one is not None
    kind, dims = program.shapes[one]
    opcode = program.random.choice(
        ("add", "subtract", "multiply", "divide", "negate", "multiply", "add")
    )
    if opcode == "negate":
        program.add(kind, dims, f"negate({one})")
    else:
        program.add(kind, dims, f"{opcode}({one}, {_like(program, kind, dims)})")


def _mask(program: Program) -> None:
    one = program.pick(lambda kind, dims: kind == "s32" and len(dims) > 1)
    assert one is not None
    other = _like(program, *program.shapes[one])
    way = program.random.choice(("EQ", "NE", "GE", "GT", "LE", "LT", "EQ"))
    program.add("pred", program.shapes[one][1], f"compare({one}, {other}), direction={way}")


def _logic(program: Program) -> None:
    one = program.pick(lambda kind, dims: kind == "pred")
    if one is None:
        return
    dims = program.shapes[one][1]
    opcode = program.random.choice(("and", "or", "not", "xor"))
    other = "" if opcode == "not" else f", {_like(program, 'pred', dims)}"
    program.add("pred", dims, f"{opcode}({one}{other})")


def _count(program: Program) -> None:
    one = program.pick(lambda kind, dims: kind == "s32" and len(dims) > 0)
    assert one is not None
    dims = program.shapes[one][1]
    opcode = program.random.choice(("add", "subtract", "multiply"))
    program.add("s32", dims, f"{opcode}({one}, {_like(program, 's32', dims)})")


def _select(program: Program) -> None:
    mask = program.pick(lambda kind, dims: kind == "pred")
    if (
        mask is None
        or program.pick(lambda k, d: (k, d) == (program.kind, program.shapes[mask][1])) is None
    ):
        return
    dims = program.shapes[mask][1]
    arms = [_like(program, program.kind, dims) for _ in range(2)]
    program.add(program.kind, dims, f"select({mask}, {arms[0]}, {arms[1]})")


def _convert(program: Program) -> None:
    one = program.pick(lambda kind, dims: kind in ("pred", program.kind))
    assert one is not None
    program.add(program.kind, program.shapes[one][1], f"convert({one})")


def _transpose(program: Program) -> None:
    one = program.pick(lambda kind, dims: len(dims) > 1)
    assert one is not None
    kind, dims = program.shapes[one]
    order = list(range(len(dims)))
    program.random.shuffle(order)
    moved = tuple(dims[dim] for dim in order)
    program.add(kind, moved, f"transpose({one}), dimensions={{{','.join(map(str, order))}}}")


def _broadcast(program: Program) -> None:
    one = program.pick(lambda kind, dims: len(dims) < 3)
    assert one is not None
    kind, dims = program.shapes[one]
    result = [*dims]
    places = list(range(len(dims)))
    while len(result) < program.random.randint(2, 3):
        at = program.random.randint(0, len(result))
        result.insert(at, 4 if len(result) < 2 else 2)
        places = [place + (place >= at) for place in places]
    program.add(
        kind, tuple(result), f"broadcast({one}), dimensions={{{','.join(map(str, places))}}}"
    )


def _slice(program: Program) -> None:
    one = program.pick(lambda kind, dims: len(dims) > 1)
    assert one is not None
    kind, dims = program.shapes[one]
    start, stride = program.random.choice(((0, 1), (1, 1), (0, 2), (1, 2)))
    both = program.random.random() < 0.6
    parts, sizes = list[str](), list[int]()
    for size in dims:
        if both or program.random.random() < 0.5:
            begin = min(start, size - 1)
            parts.append(f"[{begin}:{size}:{stride}]")
            sizes.append(-(-(size - begin) // stride))
        else:
            parts.append(f"[0:{size}]")
            sizes.append(size)
    program.add(kind, tuple(sizes), f"slice({one}), slice={{{', '.join(parts)}}}")


def _pad(program: Program) -> None:
    one = program.pick(lambda kind, dims: kind == program.kind and len(dims) > 1)
    filled = program.pick(lambda kind, dims: (kind, dims) == (program.kind, ()))
    assert one is not None
    assert filled is not None
    kind, dims = program.shapes[one]
    edges = [(program.random.randint(-1, 2), program.random.randint(0, 1)) for _ in dims]
    if program.random.random() < 0.5:
        edges = [edges[0]] * len(dims)
    sizes = tuple(size + low + high for size, (low, high) in zip(dims, edges, strict=True))
    if min(sizes) > 0:
        padding = "x".join(f"{low}_{high}" for low, high in edges)
        program.add(kind, sizes, f"pad({one}, {filled}), padding={padding}")


def _concatenate(program: Program) -> None:
    one = program.pick(lambda kind, dims: kind == program.kind and len(dims) > 1)
    assert one is not None
    kind, dims = program.shapes[one]
    other, dim = _like(program, kind, dims), program.random.randrange(len(dims))
    sizes = tuple(2 * size if at == dim else size for at, size in enumerate(dims))
    program.add(kind, sizes, f"concatenate({one}, {other}), dimensions={{{dim}}}")


def _reverse(program: Program) -> None:
    one = program.pick(lambda kind, dims: len(dims) > 1)
    assert one is not None
    kind, dims = program.shapes[one]
    turned = [dim for dim in range(len(dims)) if program.random.random() < 0.7] or [0]
    program.add(kind, dims, f"reverse({one}), dimensions={{{','.join(map(str, turned))}}}")


def _reshape(program: Program) -> None:
    one = program.pick(lambda kind, dims: len(dims) > 0)
    assert one is not None
    kind, dims = program.shapes[one]
    total = int(np.prod(dims))
    choices = [(total,), (1, *dims), (*dims, 1), tuple(size for size in dims if size > 1)]
    if len(dims) == 3:
        choices += [(dims[0] * dims[1], dims[2]), (dims[0], dims[1] * dims[2])]
    if len(dims) == 2 and dims[0] % 2 == 0:
        choices += [(2, dims[0] // 2, dims[1])]
    program.add(kind, sizes := program.random.choice(choices), f"reshape({one})")
    assert int(np.prod(sizes)) == total


def _dot(program: Program) -> None:
    one = program.pick(lambda kind, dims: kind == program.kind and len(dims) == 2)
    assert one is not None
    dims = program.shapes[one][1]
    contracted = program.random.randrange(2)
    other = program.pick(
        lambda kind, sides: kind == program.kind and len(sides) == 2 and dims[contracted] in sides
    )
    assert other is not None
    sides = program.shapes[other][1]
    if program.random.random() < 0.4:
        other, sides = one, dims
    place = contracted if other == one else sides.index(dims[contracted])
    result = dims[1 - contracted], sides[1 - place]
    numbers = f"lhs_contracting_dims={{{contracted}}}, rhs_contracting_dims={{{place}}}"
    program.add(program.kind, result, f"dot({one}, {other}), {numbers}")


def _batched(program: Program) -> None:
    one = program.pick(lambda kind, dims: kind == program.kind and dims == (2, 4, 4))
    assert one is not None
    other = one if program.random.random() < 0.5 else _like(program, program.kind, (2, 4, 4))
    k, m = program.random.choice(((1, 1), (2, 2), (2, 1), (1, 2)))
    numbers = f"lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{{k}}}"
    program.add(
        program.kind, (2, 4, 4), f"dot({one}, {other}), {numbers}, rhs_contracting_dims={{{m}}}"
    )


def _reduce(program: Program) -> None:
    if program.kind != "f32":
        return
    one = program.pick(lambda kind, dims: kind == "f32" and len(dims) == 3)
    assert one is not None
    dims, dim = program.shapes[one][1], program.random.randrange(3)
    zero = program.add("f32", (), f"constant({program.random.choice((0, 0, 1))})")
    sizes = tuple(size for at, size in enumerate(dims) if at != dim)
    program.add("f32", sizes, f"reduce({one}, {zero}), dimensions={{{dim}}}, to_apply=add")


def _factor(program: Program) -> None:
    if program.kind not in ("f32", "f64"):
        return
    one, other = (_like(program, program.kind, (4, 4)) for _ in range(2))
    lower, left = (program.random.choice(("true", "false")) for _ in range(2))
    turned = program.random.choice(("NO_TRANSPOSE", "TRANSPOSE"))
    program.add(program.kind, (4, 4), f"cholesky({one}), lower={lower}")
    options = f"left_side={left}, lower={lower}, unit_diagonal=false, transpose_a={turned}"
    program.add(program.kind, (4, 4), f"triangular-solve({one}, {other}), {options}")


STEPS: list[Callable[[Program], None]] = [
    _batched, _broadcast, _concatenate, _convert, _convert, _count, _dot, _dot, _elementwise, _elementwise,
    _elementwise, _factor, _logic, _mask, _mask, _mask, _pad, _reduce, _reshape, _reverse, _select, _select,
    _select, _slice, _transpose, _transpose,
]  # fmt: skip
