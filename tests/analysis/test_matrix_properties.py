"""What is claimed of matrices holds of every value: on random programs, of special and of ordinary numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import pytest

import hloopt
from hloopt.analysis.matrix_properties import HotIndex, Matrices, MatrixProperties
from hloopt.analysis.matrix_properties.arithmetic import _ZEROS
from hloopt.interpret import evaluate_module
from hloopt.ir import Instruction
from hloopt.ops import OPS
from hloopt.ops.opdef import ScalarArgs
from hloopt.ops.traits import BITWISE
from hloopt.types import DTYPES
from tests.passes.proof import draw

Array: TypeAlias = np.ndarray[Any, Any]
PRODUCT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
SUM = "add { p = f32[] parameter(0)\nq = f32[] parameter(1)\nROOT s = f32[] add(p, q) }\n"


def as_float(values: Array) -> Array:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def is_zero(values: Array, *, clean: bool) -> bool:
    found = values == 0
    if not clean and values.dtype.kind not in "biu":
        found |= np.isnan(as_float(values))
    return bool(np.all(found))


def broken(
    values: Array, found: MatrixProperties, of: Mapping[Instruction, Array]
) -> Iterator[str]:
    """Each claim that does not hold of a value; those that are true but for rounding of finite values."""
    at = np.indices(values.shape)
    for (p, q), (low, high) in found.bands.items():
        beside = (at[q] - at[p] < low) | (at[q] - at[p] > high)
        if not is_zero(values[beside], clean=found.is_clean):
            yield f"band {low} to {high} of {p}, {q}"
    for (p, q), (low, high) in found.true_bands.items():
        if not values[(at[q] - at[p] < low) | (at[q] - at[p] > high)].all():
            yield f"true beside {low} to {high} of {p}, {q}"
    if found.boxes is not None:
        outside = np.ones(values.shape, bool)
        for box in found.boxes:
            outside[tuple(slice(*part) for part in box)] = False
        if not is_zero(values[outside], clean=found.is_clean):
            yield f"boxes {found.boxes}"
    for dim in found.constant:
        first = np.take(values, [0], dim) if values.shape[dim] else values
        if not np.array_equal(
            *np.broadcast_arrays(as_float(values), as_float(first)), equal_nan=True
        ):
            yield f"constant along {dim}"
    for dim, hot in found.hot.items():
        if (
            not set(np.unique(as_float(values))) <= {0, 1}
            or ((values != 0).sum(axis=dim) > 1).any()
        ):
            yield f"hot along {dim}"
        elif hot is not None and not np.array_equal(values != 0, expected(values, dim, hot, of)):
            yield f"hot index along {dim}"
    for p, q in found.units:
        if not is_zero(as_float(values)[at[p] == at[q]] - 1, clean=found.is_clean):
            yield f"units of {p}, {q}"
    if found.affine is not None:
        counted = found.affine.offset + sum(by * at[d] for d, by in found.affine.factors.items())
        if not np.array_equal(values, np.broadcast_to(counted, values.shape)):
            yield f"affine {found.affine}"
    for (p, q), exact in found.symmetric.items():
        if exact and not np.array_equal(
            as_float(values), as_float(values).swapaxes(p, q), equal_nan=True
        ):
            yield f"symmetric {p}, {q}"
    if np.isfinite(as_float(values)).all() and values.dtype.kind not in "biu":
        share = 5e-2 if values.dtype.itemsize < 4 else 1e-3
        yield from broken_but_for_rounding(as_float(values), found, share)


def expected(values: Array, dim: int, hot: HotIndex, of: Mapping[Instruction, Array]) -> Array:
    index = of[hot.value]
    shape = [1] * values.ndim
    for place, size in zip(hot.places, index.shape, strict=True):
        if place is not None:
            shape[place] = size
    order = np.argsort([-1 if place is None else place for place in hot.places], kind="stable")
    spread = np.transpose(index, order).reshape(shape).astype(np.int64)
    counted = np.arange(values.shape[dim]).reshape(
        [-1 if d == dim else 1 for d in range(values.ndim)]
    )
    return np.broadcast_to(counted == spread + hot.offset, values.shape)


def broken_but_for_rounding(values: Array, found: MatrixProperties, share: float) -> Iterator[str]:
    largest = np.abs(values).max(initial=1e-30)
    if largest > 1e6:
        return
    small = share * largest
    for p, q in found.symmetric:
        if np.abs(values - values.swapaxes(p, q)).max(initial=0) > small:
            yield f"symmetric but for rounding {p}, {q}"
    for p, q in found.definite:
        matrices = np.moveaxis(values, (p, q), (-2, -1))
        if values.size and np.linalg.eigvalsh(matrices).min() < -small:
            yield f"definite {p}, {q}"
    for (p, q), rank in found.ranks.items():
        sizes = np.linalg.svd(np.moveaxis(values, (p, q), (-2, -1)), compute_uv=False)
        if sizes[..., rank:].max(initial=0) > small * values.size:
            yield f"rank {rank} of {p}, {q}"
    for p, q in found.orthonormal:
        vectors = np.moveaxis(values, (p, q), (-2, -1))
        gram = vectors.swapaxes(-1, -2) @ vectors
        if np.abs(gram - np.eye(gram.shape[-1])).max(initial=0) > 1e-2:
            yield f"orthonormal {p}, {q}"
    for (p, q), (rows, columns) in found.kronecker.items():
        matrix = np.moveaxis(values, (p, q), (-2, -1))
        a, c = matrix.shape[-2] // rows, matrix.shape[-1] // columns
        split = matrix.reshape(*matrix.shape[:-2], a, rows, c, columns).swapaxes(-3, -2)
        sizes = np.linalg.svd(split.reshape(*matrix.shape[:-2], a * c, -1), compute_uv=False)
        if sizes[..., 1:].max(initial=0) > small * values.size:
            yield f"Kronecker {p}, {q}"


def check(text: str, seeds: range = range(6)) -> dict[str, MatrixProperties]:
    """Hold what is claimed of each value of a program against the interpreter."""
    given = hloopt.parse(text)
    arrays = [one for one in given.entry if one.is_array]
    whole = f"ROOT all = ({', '.join(str(one.shape) for one in arrays)}) tuple("
    lines = text.rstrip().removesuffix("}").replace("ROOT ", "")
    module = hloopt.parse(f"{lines}\n{whole}{', '.join(one.name for one in arrays)})\n}}")
    values, matrices = list(module.entry.root.operands), Matrices()
    for seed in seeds:
        inputs = [
            draw(one.array.dtype, one.array.dims, seed, one.parameter_number)
            if seed % 2
            else plain(one, seed)
            for one in module.entry.parameters
        ]
        made = dict(zip(values, map(np.asarray, evaluate_module(module, inputs)), strict=True))
        for one, array in made.items():
            with np.errstate(all="ignore"):
                problems = list(broken(array, matrices.of(one), made))
            assert not problems, f"{one} {problems} of {array}, seed {seed}\n{text}"
    return {one.name: matrices.of(one) for one in values}


def plain(parameter: Instruction, seed: int) -> Array:
    rng = np.random.default_rng([seed, parameter.parameter_number])
    dims, dtype = parameter.array.dims, parameter.array.dtype
    if dtype.is_integer or dtype.is_pred:
        return rng.integers(0, 5, dims).astype(dtype.numpy)
    return rng.normal(0, 1, dims).astype(dtype.numpy)


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


@pytest.mark.parametrize("first", range(0, 120, 10))
def test_claims_about_random_programs_hold(first: int) -> None:
    for seed in range(first, first + 10):
        check(Program(seed).text, range(4))


def named(text: str, name: str = "r") -> list[str]:
    """The words for a value of a program, which hold of it."""
    found = check(text)[name]
    shape = next(one for one in hloopt.parse(text).entry if one.name == name).array
    return list(found.named(shape.dims))


POSITIONS = """i = s32[6,6] iota(), iota_dimension=0
j = s32[6,6] iota(), iota_dimension=1
zero = f32[] constant(0)
zeros = f32[6,6] broadcast(zero), dimensions={}
below = pred[6,6] compare(i, j), direction=GE
same = pred[6,6] compare(i, j), direction=EQ
lower = f32[6,6] select(below, a, zeros)
eye = f32[6,6] convert(same)
"""


SOLVE = "left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE"


@pytest.mark.parametrize(
    "case",
    [
        ("ROOT r = f32[6,6] select(below, a, zeros)", ["lower triangular"]),
        ("ROOT r = f32[6,6] select(below, zeros, a)", ["zero below diagonal 1"]),
        ("ROOT r = f32[6,6] convert(same)", ["identity"]),
        ("ROOT r = f32[6,6] transpose(lower), dimensions={1,0}", ["upper triangular"]),
        ("ROOT r = f32[6,6] add(lower, eye)", ["lower triangular"]),
        (f"ROOT r = f32[6,6] dot(lower, lower), {PRODUCT}", ["lower triangular (for finite values)"]),
        ("ROOT r = f32[6,6] multiply(lower, a)", ["lower triangular (for finite values)"]),
        ("t = f32[6,6] transpose(a), dimensions={1,0}\nROOT r = f32[6,6] add(a, t)", ["symmetric"]),
        (
            "ROOT r = f32[6,6] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
            ["positive semidefinite, symmetric but for rounding"],
        ),
        (
            "p = f32[6,6] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
            "ROOT r = f32[6,6] add(p, eye)",
            ["positive definite, symmetric but for rounding"],
        ),
        (
            "d = f32[6,6] broadcast(x), dimensions={0}\nROOT r = f32[6,6] select(same, d, zeros)",
            ["diagonal"],
        ),
        (
            "k = s32[6,6] broadcast(n), dimensions={0}\nhot = pred[6,6] compare(k, j), direction=EQ",
            "ROOT r = f32[6,6] convert(hot)",
            ["one-hot along dimension 1"],
        ),
        (
            "u = f32[6,6] broadcast(x), dimensions={0}\nv = f32[6,6] broadcast(x), dimensions={1}",
            "ROOT r = f32[6,6] multiply(u, v)",
            ["symmetric, of rank 1 at most"],
        ),
        (
            "u = f32[6,6,6,6] broadcast(a), dimensions={0,2}",
            "v = f32[6,6,6,6] broadcast(lower), dimensions={1,3}\nm = f32[6,6,6,6] multiply(u, v)",
            "ROOT r = f32[36,36] reshape(m)",
            ["a Kronecker product with a right side of 6 x 6"],
        ),
        (
            "p = f32[6,12] pad(a, zero), padding=0_0x0_6\nq = f32[6,12] pad(a, zero), padding=0_0x6_0",
            "ROOT r = f32[12,12] concatenate(p, q), dimensions={0}",
            ["banded, diagonals -5 to 5", "zero outside of 2 blocks, 50% of the elements"],
        ),
        ("ROOT r = f32[6,6] cholesky(a), lower=true", ["lower triangular (for finite values)"]),
        (
            f"ROOT r = f32[6,6] triangular-solve(a, lower), {SOLVE}",
            ["lower triangular (for finite values)"],
        ),
        ("ROOT r = f32[3,3] slice(lower), slice={[1:4], [0:3]}", ["zero above diagonal 1"]),
        ("ROOT r = f32[6,6] exponential(lower)", []),
        ("ROOT r = f32[6,6] divide(a, lower)", []),
        (
            "s = f32[6,6] dot(a, eye), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "ROOT r = f32[6,6] dot(s, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
            ["positive semidefinite, symmetric but for rounding"],
        ),
    ],
)  # fmt: skip
def test_what_shows_in_a_program_is_named(case: tuple[Any, ...]) -> None:
    body, words = "\n".join(case[:-1]), case[-1]
    parameters = "a = f32[6,6] parameter(0)\nx = f32[6] parameter(1)\nn = s32[6] parameter(2)\n"
    assert named(f"HloModule m\nENTRY e {{\n{parameters}{POSITIONS}{body}\n}}\n") == words


@pytest.mark.parametrize("opcode", sorted(_ZEROS))
def test_ops_that_keep_zeros_do(opcode: str) -> None:
    row, how = OPS[opcode], _ZEROS[opcode]
    assert row.numpy is not None
    dtype = DTYPES["s32" if opcode in BITWISE or opcode == "popcnt" else "f32"]
    result = DTYPES["c64"] if opcode == "complex" else dtype
    zeros, some = np.zeros(3, dtype.compute), np.array([2, 1, 3]).astype(dtype.compute)
    sides = {"one": [zeros], "all": [zeros, zeros], "any": [some, zeros], "first": [zeros, some]}
    options = {"exponent_bits": 5, "mantissa_bits": 10}
    assert not np.any(row.numpy(ScalarArgs(dtype, result, options), *sides[how]))


@pytest.mark.parametrize("kind", ["s32", "u8", "s64"])
def test_counts_that_wrap_around_are_not_positions(kind: str) -> None:
    text = f"""HloModule m
ENTRY e {{
i = {kind}[200,2] iota(), iota_dimension=0
big = {kind}[] constant(100)
bigs = {kind}[200,2] broadcast(big), dimensions={{}}
p = {kind}[200,2] multiply(i, bigs)
q = {kind}[200,2] add(p, bigs)
j = {kind}[200,2] iota(), iota_dimension=1
ROOT r = pred[200,2] compare(q, j), direction=GE
}}
"""
    assert (check(text, range(1))["q"].affine is None) == (kind == "u8")


def test_orthonormal_vectors_come_of_reflections_alone() -> None:
    options = 'custom_call_target="lapack_sgeqrf_ffi", api_version=API_VERSION_TYPED_FFI, backend_config={}'
    text = f"""HloModule m
ENTRY e {{
a = f32[5,4] parameter(0)
taus = f32[4] parameter(1)
f = (f32[5,4], f32[4]) custom-call(a), {options}
v = f32[5,4] get-tuple-element(f), index=0
t = f32[4] get-tuple-element(f), index=1
q = f32[5,4] custom-call(v, t), {options.replace("geqrf", "orgqr")}
ROOT r = f32[5,4] custom-call(a, taus), {options.replace("geqrf", "orgqr")}
}}
"""
    found = check(text, range(0, 6, 2))
    assert found["q"].orthonormal == {(0, 1)}
    assert not found["r"].orthonormal


def test_a_deep_chain_takes_time_proportional_to_it() -> None:
    lines = ["v0 = f32[8,8] parameter(0)"]
    lines += [f"v{at} = f32[8,8] add(v{at - 1}, v{at - 1})" for at in range(1, 5000)]
    module = hloopt.parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}")
    matrices = Matrices()
    assert not matrices.of(module.entry.root).says_something
    assert len(matrices.known) == 5000


@pytest.mark.parametrize(
    "shape", ["f32[0,4]", "f32[4,0]", "f32[]", "f32[1,1]", "pred[2,2]", "f8e8m0fnu[2,2]"]
)
def test_small_and_rare_arrays(shape: str) -> None:
    check(
        f"HloModule m\nENTRY e {{\na = {shape} parameter(0)\nROOT r = {shape} multiply(a, a)\n}}\n"
    )
