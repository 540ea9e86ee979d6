"""Products of solutions: what each becomes, that results stay within the bound, and what stays as it is."""

from __future__ import annotations

import random
from math import inf, prod
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.linear_algebra import systems
from hloopt.linear_algebra.systems import LinearSystems
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import PassLog
from tests.passes.proof import check

N = 256
MATRIX, VECTOR = f"f32[{N},{N}]", f"f32[{N}]"
PRODUCT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
EYE = f"""rows = s32[{N},{N}] iota(), iota_dimension=0
columns = s32[{N},{N}] iota(), iota_dimension=1
mask = pred[{N},{N}] compare(rows, columns), direction=EQ
eye = {MATRIX} convert(mask)
"""
LOWER = "left_side=true, lower=true, transpose_a=NO_TRANSPOSE"
UPPER = "left_side=true, lower=false, transpose_a=NO_TRANSPOSE"
INVERSE = f"""l = {MATRIX} triangular-solve(a, eye), {LOWER}, unit_diagonal=true
inverse = {MATRIX} triangular-solve(a, l), {UPPER}
"""


def module(body: str, *parameters: str) -> Module:
    """``a``, ``b``, ... are the parameters."""
    lines = [f"{'abcdefgh'[at]} = {shape} parameter({at})" for at, shape in enumerate(parameters)]
    found = hloopt.parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + f"\n{body}\n}}\n", "m")
    hloopt.verify(found)
    return found


def solved(given: Module) -> list[tuple[int, ...]]:
    """The shapes of the solutions that are read, in order."""
    better = clone_module(given)
    parse_pipeline("dce").run(better)
    return [one.array.dims for one in better.entry if one.opcode == "triangular-solve"]


def changed(given: Module, target: str = "h200") -> list[str]:
    """The gains of the rewrites made."""
    log = PassLog(kinds=frozenset({"passed"}))
    assert LinearSystems(reassociate=True, target=target).run(given, log)
    hloopt.verify(given)
    return [remark.reason for remark in log.remarks]


@pytest.mark.parametrize("target", ["h200", "host"])
def test_an_inverse_is_not_made_for_a_vector(target: str) -> None:
    given = module(f"{EYE}{INVERSE}ROOT x = {VECTOR} dot(inverse, b), {PRODUCT}", MATRIX, VECTOR)
    (gain,) = changed(given, target)
    assert "systems of 256 rows solved for 1 right sides instead of 256" in gain
    assert "of |inverse(T)| |T| |x|" in gain
    assert solved(given) == [(N, 1), (N, 1)]
    assert not any(one.opcode == "dot" for one in given.entry)


def test_a_vector_from_the_left_has_the_transposed_systems_solved() -> None:
    given = module(
        f"{EYE}{INVERSE}ROOT x = {VECTOR} dot(b, inverse), lhs_contracting_dims={{0}}, "
        "rhs_contracting_dims={0}",
        MATRIX,
        VECTOR,
    )
    changed(given)
    assert solved(given) == [(N, 1), (N, 1)]
    words = [
        one.attributes["transpose_a"] for one in given.entry if "transpose_a" in one.attributes
    ]
    assert words[-2:] == ["TRANSPOSE", "TRANSPOSE"]


def test_a_product_goes_before_the_solution() -> None:
    given = module(
        f"""solution = f32[{N},64] triangular-solve(a, b), {LOWER}
        ROOT x = {VECTOR} dot(solution, c), {PRODUCT}""",
        MATRIX,
        f"f32[{N},64]",
        "f32[64]",
    )
    changed(given, "host")
    assert solved(given) == [(N, 1)]


def test_a_thin_product_is_solved_for_its_columns() -> None:
    """Also where other steps act on its other side in between."""
    given = module(
        f"""uw = {MATRIX} dot(b, c), {PRODUCT}
        places = s32[{N},1] reshape(d)
        rows = {MATRIX} gather(uw, places), offset_dims={{0}}, collapsed_slice_dims={{1}},
          start_index_map={{1}}, index_vector_dim=1, slice_sizes={{{N},1}}
        ROOT x = {MATRIX} triangular-solve(a, rows), {LOWER}""",
        MATRIX,
        f"f32[{N},2]",
        f"f32[2,{N}]",
        f"s32[{N}]",
    )
    before = clone_module(given)
    (gain,) = changed(given, "host")
    assert "solved for 2 right sides instead of 256" in gain
    assert solved(given) == [(N, 2)]
    assert given.entry.root.opcode == "dot"
    numbers = np.random.default_rng(3)
    arrays = [
        (numbers.uniform(-1, 1, (N, N)) / 32 + 2 * np.eye(N)).astype(np.float32),
        numbers.uniform(-1, 1, (N, 2)).astype(np.float32),
        numbers.uniform(-1, 1, (2, N)).astype(np.float32),
        numbers.permutation(N).astype(np.int32),
    ]
    (want,), (got,) = hloopt.evaluate(before, arrays), hloopt.evaluate(given, arrays)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * float(np.abs(want).max()))


def test_a_library_writes_in_its_own_layout() -> None:
    """The result of a call keeps the layout that the call is made for, whatever that of the product was."""
    call = 'custom_call_target="lapack_strsm_ffi", api_version=API_VERSION_TYPED_FFI'
    column = "{0,1}"
    options = (
        "backend_config={diag = 78 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 76 : ui8}"
    )
    given = module(
        f"""{EYE}inverse = {MATRIX}{column} custom-call(a, eye), {call}, {options},
          operand_layout_constraints={{{MATRIX}{column}, {MATRIX}{column}}}
        ROOT x = {MATRIX}{{1,0}} dot(inverse, b), {PRODUCT}""",
        MATRIX,
        MATRIX,
    )
    changed(given, "host")
    calls = [one for one in given.entry if one.opcode == "custom-call"]
    assert all(str(one.shape).endswith(column) for one in calls)
    assert str(given.entry.root.shape).endswith("{1,0}")


def test_equal_right_sides_are_solved_once() -> None:
    given = module(
        f"""repeated = {MATRIX} broadcast(b), dimensions={{0}}
        ROOT x = {MATRIX} triangular-solve(a, repeated), {LOWER}""",
        MATRIX,
        VECTOR,
    )
    changed(given, "host")
    assert solved(given) == [(N, 1)]
    assert given.entry.root.opcode == "broadcast"


def test_a_right_side_and_its_negative_are_solved_once() -> None:
    """The sign is that of the solution, as in the gradient of an inverse times a vector."""
    rows = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    given = module(
        f"{EYE}{INVERSE}minus = {MATRIX} negate(inverse)\n"
        f"x = {VECTOR} dot(b, inverse), {rows}\ny = {VECTOR} dot(b, minus), {rows}\n"
        f"ROOT r = ({VECTOR}, {VECTOR}) tuple(x, y)",
        MATRIX,
        VECTOR,
    )
    changed(given)
    parse_pipeline("simplify,cse,dce").run(given)
    assert solved(given) == [(N, 1), (N, 1)]
    assert [one.opcode for one in given.entry].count("negate") == 1


@pytest.mark.parametrize("opcode", ["add", "subtract"])
def test_right_sides_of_a_sum_of_solutions_are_added_up(opcode: str) -> None:
    body = f"""u = f32[{N},8] triangular-solve(a, b), {LOWER}, unit_diagonal=false
        v = f32[{N},8] triangular-solve(a, c), {LOWER}, unit_diagonal=false
        ROOT r = f32[{N},8] {opcode}(u, v)"""
    shapes = (MATRIX, f"f32[{N},8]", f"f32[{N},8]")
    given = module(body, *shapes)
    assert "solved for 8 right sides instead of 16" in changed(given)[0]
    assert solved(given) == [(N, 8)]
    # Other triangles, of which one is turned, and a solution that is read by itself.
    for other in (
        body.replace("triangular-solve(a, c)", "triangular-solve(d, c)"),
        body.replace("(a, c), left_side=true, lower=true", "(a, c), left_side=true, lower=false"),
        body.replace("ROOT r", "s").replace(
            "(u, v)", "(u, v)\nROOT r = (f32[256,8], f32[256,8]) tuple(s, v)"
        ),
    ):
        kept = module(other, *shapes, MATRIX)
        assert not LinearSystems(reassociate=True).run(kept, PassLog())


def test_an_outer_product_is_solved_for_one_vector() -> None:
    given = module(
        f"""left = {MATRIX} broadcast(b), dimensions={{0}}
        right = {MATRIX} broadcast(c), dimensions={{1}}
        outer = {MATRIX} multiply(right, left)
        ROOT x = {MATRIX} triangular-solve(a, outer), {LOWER}""",
        MATRIX,
        VECTOR,
        VECTOR,
    )
    changed(given, "host")
    assert solved(given) == [(N, 1)]


def test_a_thin_product_that_is_read_is_solved_as_it_is() -> None:
    given = module(
        f"""uw = {MATRIX} dot(b, c), {PRODUCT}
        x = {MATRIX} triangular-solve(a, uw), {LOWER}
        ROOT r = ({MATRIX}, {MATRIX}) tuple(uw, x)""",
        MATRIX,
        f"f32[{N},2]",
        f"f32[2,{N}]",
    )
    assert not LinearSystems(reassociate=True, target="host").run(given, PassLog())


def test_products_of_one_inverse_are_changed_together() -> None:
    """One by one they would keep the inverse for the other."""
    given = module(
        f"""{EYE}{INVERSE}x = {VECTOR} dot(inverse, b), {PRODUCT}
        turned = {MATRIX} transpose(inverse), dimensions={{1,0}}
        y = {VECTOR} dot(turned, c), {PRODUCT}
        ROOT r = ({VECTOR}, {VECTOR}) tuple(x, y)""",
        MATRIX,
        VECTOR,
        VECTOR,
    )
    gains = changed(given)
    assert "2 right sides instead of 256" in gains[0]
    assert sorted(solved(given)) == [(N, 1)] * 4


def test_an_inverse_that_is_read_stays() -> None:
    given = module(
        f"""{EYE}{INVERSE}x = {VECTOR} dot(inverse, b), {PRODUCT}
        ROOT r = ({VECTOR}, {MATRIX}) tuple(x, inverse)""",
        MATRIX,
        VECTOR,
    )
    assert not LinearSystems(reassociate=True).run(given, PassLog())


def test_many_more_right_sides_than_rows_are_multiplied() -> None:
    given = module(
        f"{EYE}{INVERSE}ROOT x = f32[{N},8192] dot(inverse, b), {PRODUCT}", MATRIX, f"f32[{N},8192]"
    )
    assert not LinearSystems(reassociate=True, target="host").run(given, PassLog())


STAYS = {
    "a mask beside the diagonal": (EYE.replace("EQ", "GE") + INVERSE, 1),
    "other steps between": (
        f"{EYE}{INVERSE.replace('inverse =', 'raw =')}inverse = {MATRIX} tanh(raw)\n",
        0,
    ),
    "systems along both indices": (
        f"""{EYE}{INVERSE.replace("inverse =", "raw =")}
        inverse = {MATRIX} triangular-solve(a, raw), {LOWER.replace("true", "false", 1)}
        """,
        0,
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_is_no_inverse(name: str) -> None:
    body, products = STAYS[name]
    given = module(f"{body}ROOT x = {VECTOR} dot(inverse, b), {PRODUCT}", MATRIX, VECTOR)
    LinearSystems(reassociate=True).run(given, PassLog())
    assert sum(one.opcode == "dot" for one in given.entry) == 1
    assert sum(dims == (N, 1) for dims in solved(given)) == 2 * products


def test_floats_need_leave() -> None:
    given = module(f"{EYE}{INVERSE}ROOT x = {VECTOR} dot(inverse, b), {PRODUCT}", MATRIX, VECTOR)
    log = PassLog(kinds=frozenset({"missed"}))
    assert not LinearSystems().run(given, log)
    (remark,) = log.remarks
    assert "f32 would round otherwise" in remark.reason
    assert LinearSystems(fast_math=True).run(given, PassLog())


def test_fuel_counts_systems() -> None:
    given = module(
        f"""{EYE}{INVERSE}x = {VECTOR} dot(inverse, b), {PRODUCT}
        i = {MATRIX} triangular-solve(c, eye), {LOWER}
        y = {VECTOR} dot(i, b), {PRODUCT}
        ROOT r = ({VECTOR}, {VECTOR}) tuple(x, y)""",
        MATRIX,
        VECTOR,
        MATRIX,
    )
    log = PassLog(fuel=1)
    assert LinearSystems(reassociate=True).run(given, log)
    assert sum(log.hits.values()) == 1
    assert sum(one.opcode == "dot" for one in given.entry) == 1


def test_long_chains_have_a_budget() -> None:
    """3,000 signs, and 3,000 products of them."""
    signs = "\n".join(f"sign{at + 1} = {MATRIX} negate(sign{at})" for at in range(3000))
    dots = "\n".join(f"d{at} = {VECTOR} dot(sign{at}, b), {PRODUCT}" for at in range(3000))
    solve = f"sign0 = {MATRIX} triangular-solve(a, a), {LOWER}"
    given = module(f"{solve}\n{signs}\n{dots}\nROOT r = {VECTOR} add(d2999, d1)", MATRIX, VECTOR)
    LinearSystems(reassociate=True).run(given, PassLog())
    hloopt.verify(given)


class Draw:
    """A random product of a solution: one to three steps, with batches or without, and its inputs."""

    def __init__(self, seed: int) -> None:
        self.chooser = random.Random(seed)
        self.kind = self.chooser.choice(("f32", "f64", "c64"))
        self.batch = self.chooser.choice(((), (), (2,), (2, 1), (3, 2)))
        self.n = self.chooser.choice((2, 3, 5))
        self.columns = self.chooser.choice((1, 2, 3, self.n))
        self.lines: list[str] = []
        self.given: list[str] = []
        numbers = np.random.default_rng(seed)
        self.numbers = numbers
        self.arrays: list[np.ndarray[Any, Any]] = []

    def shape(self, *dims: int) -> str:
        """The type and dimensions as text."""
        return f"{self.kind}[{','.join(map(str, dims))}]"

    def line(self, shape: str, op: str) -> str:
        """A new instruction."""
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {shape} {op}")
        return name

    def parameter(self, *dims: int, diagonal: float = 0.0, rows: int = 0) -> str:
        """A new parameter: numbers, with more on the diagonal, or an order of ``rows`` rows."""
        number = len(self.arrays)
        if rows:
            shape = f"s32[{','.join(map(str, dims))}]"
            orders = [self.numbers.permutation(rows) for _ in range(prod(dims) // rows)]
            array = np.asarray(orders, dtype=np.int32).reshape(dims)
            if self.chooser.random() < 0.3:  # twice, or none of the rows
                array = self.numbers.integers(-1, rows + 2, array.shape, dtype=np.int32)
        else:
            shape = self.shape(*dims)
            kind = {"f32": np.float32, "f64": np.float64, "c64": np.complex64}[self.kind]
            array = self.numbers.uniform(-1, 1, dims)
            if self.kind == "c64":
                array = array + 1j * self.numbers.uniform(-1, 1, dims)
            if diagonal:
                array = array + diagonal * np.eye(dims[-1])
            array = np.asarray(array, dtype=kind)
        self.arrays.append(array)
        self.given.append(f"p{number} = {shape} parameter({number})")
        return f"p{number}"

    def steps(self) -> tuple[str, bool]:
        """A solution, and whether its right sides are rows."""
        pick = self.chooser
        left = pick.random() < 0.7
        n, m = self.n, self.columns
        dims = (*self.batch, n, m) if left else (*self.batch, m, n)
        if m == n and pick.random() < 0.5:
            square = f"s32[{n},{n}]"
            i, j = (self.line(square, f"iota(), iota_dimension={at}") for at in (0, 1))
            mask = self.line(f"pred[{n},{n}]", f"compare({i}, {j}), direction=EQ")
            value = self.line(self.shape(n, n), f"convert({mask})")
            if self.batch:
                at = len(self.batch)
                value = self.line(
                    self.shape(*dims), f"broadcast({value}), dimensions={{{at},{at + 1}}}"
                )
        elif pick.random() < 0.4:
            value = self.product(dims)
        else:
            value = self.parameter(*dims)
        for _ in range(pick.randint(1, 3)):
            kind = pick.choice(("triangle", "triangle", "rows", "negate"))
            if kind == "negate":
                value = self.line(self.shape(*dims), f"negate({value})")
            elif kind == "rows" and left:
                value = self.rows(value, dims)
            else:
                value = self.triangle(value, dims, left)
        return self.triangle(value, dims, left), left

    def product(self, dims: tuple[int, ...]) -> str:
        """The product of two thin matrices, or of two vectors; its batch may be that of one alone."""
        rank, thin = len(self.batch), self.chooser.choice((1, 2))
        joined = not rank or self.chooser.random() < 0.6
        own = self.batch if joined else ()
        left = self.parameter(*self.batch, dims[-2], thin)
        right = self.parameter(*own, thin, dims[-1])
        numbers = f"lhs_contracting_dims={{{rank + 1}}}, rhs_contracting_dims={{{len(own)}}}"
        if own:
            places = ",".join(map(str, range(rank)))
            numbers += f", lhs_batch_dims={{{places}}}, rhs_batch_dims={{{places}}}"
        elif self.chooser.random() < 0.5:
            places = ",".join(map(str, range(rank + 1)))
            column = self.parameter(*self.batch, dims[-2])
            column = self.line(self.shape(*dims), f"broadcast({column}), dimensions={{{places}}}")
            row = self.parameter(dims[-1])
            row = self.line(self.shape(*dims), f"broadcast({row}), dimensions={{{rank + 1}}}")
            return self.line(self.shape(*dims), f"multiply({row}, {column})")
        return self.line(self.shape(*dims), f"dot({left}, {right}), {numbers}")

    def triangle(self, value: str, dims: tuple[int, ...], left: bool) -> str:
        """One more system."""
        pick = self.chooser
        matrix = self.parameter(*self.batch, self.n, self.n, diagonal=4.0)
        words = [f"left_side={str(left).lower()}"]
        words += [f"{name}={pick.choice(('true', 'false'))}" for name in ("lower", "unit_diagonal")]
        words.append(f"transpose_a={pick.choice(('NO_TRANSPOSE', 'TRANSPOSE', 'ADJOINT'))}")
        return self.line(
            self.shape(*dims), f"triangular-solve({matrix}, {value}), {', '.join(words)}"
        )

    def rows(self, value: str, dims: tuple[int, ...]) -> str:
        """Rows in another order, of each matrix its own or of all the same."""
        n, m, rank = self.n, self.columns, len(self.batch)
        sizes = ",".join("1" if at == rank else str(size) for at, size in enumerate(dims))
        if rank and self.chooser.random() < 0.5:
            order = self.parameter(*self.batch, n, rows=n)
            own = ",".join(map(str, range(rank)))
            sizes = ",".join("1" if at <= rank else str(size) for at, size in enumerate(dims))
            return self.line(
                self.shape(*dims),
                f"gather({value}, {order}), offset_dims={{{rank + 1}}}, "
                f"collapsed_slice_dims={{{rank}}}, start_index_map={{{rank}}}, "
                f"index_vector_dim={rank + 1}, slice_sizes={{{sizes}}}, "
                f"operand_batching_dims={{{own}}}, start_indices_batching_dims={{{own}}}",
            )
        order = self.parameter(n, 1, rows=n) if m > 1 else self.parameter(n, rows=n)
        offsets = ",".join(str(at) for at in range(len(dims)) if at != rank)
        return self.line(
            self.shape(*dims),
            f"gather({value}, {order}), offset_dims={{{offsets}}}, collapsed_slice_dims={{{rank}}}, "
            f"start_index_map={{{rank}}}, index_vector_dim=1, slice_sizes={{{sizes}}}",
        )

    def text(self) -> str:
        """The whole module: the product over rows or columns, on either side."""
        value, left = self.steps()
        pick, rank = self.chooser, len(self.batch)
        dims = (*self.batch, self.n, self.columns) if left else (*self.batch, self.columns, self.n)
        if pick.random() < 0.4:
            value = self.line(
                self.shape(*self.batch, dims[-1], dims[-2]),
                f"transpose({value}), dimensions={{{','.join(map(str, (*range(rank), rank + 1, rank)))}}}",
            )
            dims = (*self.batch, dims[-1], dims[-2])
        axis = rank + pick.randint(0, 1)
        free = dims[rank + 1 if axis == rank else rank]
        wide, joined = pick.choice((1, 2, 4)), bool(rank) and pick.random() < 0.6
        own = self.batch if joined else ()
        other = self.parameter(*own, dims[axis], wide)
        places = ",".join(map(str, range(len(own))))
        numbers = [f"{axis}", f"{len(own)}"]
        sides = [(value, numbers[0]), (other, numbers[1])]
        rest = [*([] if joined else self.batch), free], [wide]
        if pick.random() < 0.5:
            sides, rest = sides[::-1], rest[::-1]
        attributes = [
            f"lhs_contracting_dims={{{sides[0][1]}}}",
            f"rhs_contracting_dims={{{sides[1][1]}}}",
        ]
        if joined:
            attributes += [f"lhs_batch_dims={{{places}}}", f"rhs_batch_dims={{{places}}}"]
        shape = self.shape(*own, *rest[0], *rest[1])
        dot = f"dot({sides[0][0]}, {sides[1][0]}), {', '.join(attributes)}"
        body = "\n".join((*self.given, *self.lines, f"ROOT r = {shape} {dot}"))
        return f"HloModule m\nENTRY e {{\n{body}\n}}\n"


def test_random_products_of_solutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the prices say, what is written has the same value."""
    monkeypatch.setattr(systems, "_LEAST", inf)
    monkeypatch.setattr(systems, "_ROUNDS", 1)
    written = 0
    for seed in range(300):
        draw = Draw(seed)
        text = draw.text()
        given = hloopt.parse(text, f"seed {seed}")
        hloopt.verify(given)
        better = clone_module(given)
        log = PassLog()
        if not LinearSystems(reassociate=True).run(better, log):
            continue
        written += 1
        hloopt.verify(better)
        (want,) = hloopt.evaluate(given, draw.arrays)
        (got,) = hloopt.evaluate(better, draw.arrays)
        scale = float(np.max(np.abs(want), initial=1.0))
        limit = 1e-10 if draw.kind == "f64" else 2e-3
        np.testing.assert_allclose(got, want, rtol=0, atol=limit * scale, err_msg=f"{seed}: {text}")
    assert written > 200


def test_the_whole_contract() -> None:
    text = module(
        f"{EYE}{INVERSE}ROOT x = {VECTOR} dot(inverse, b), {PRODUCT}", MATRIX, VECTOR
    ).to_text()
    numbers = np.random.default_rng(0)
    a = (numbers.uniform(-1, 1, (N, N)) / 16 + 4 * np.eye(N)).astype(np.float32)
    row = [a, numbers.uniform(-1, 1, N).astype(np.float32)]
    check(text, LinearSystems(reassociate=True), rtol=1e-4, given=[row])


def _factors(kind: str, batch: str, first: str, second: str) -> str:
    rank = batch.count(",")
    order = ",".join(map(str, (*range(rank), rank + 1, rank)))
    shape = f"{kind}[{batch}6,6]"
    return f"""HloModule m
    ENTRY e {{
      a = {shape} parameter(0)
      one = {shape} cholesky(a), lower={first}
      turned = {shape} transpose(a), dimensions={{{order}}}
      other = {shape} cholesky(turned), lower={second}
      ROOT r = ({shape}, {shape}) tuple(one, other)
    }}"""


@pytest.mark.parametrize("kind", ["f32", "f64", "c64"])
@pytest.mark.parametrize("batch", ["", "3,"])
@pytest.mark.parametrize("first", ["true", "false"])
def test_the_factor_of_a_transpose_is_shared(kind: str, batch: str, first: str) -> None:
    """Bit by bit, also where a matrix has no factor."""
    second = "false" if first == "true" else "true"
    numbers = np.random.default_rng(1)
    rows = []
    for least in (6.0, 0.5):
        array = numbers.uniform(-1, 1, (*([3] if batch else []), 6, 6)) + least * np.eye(6)
        if kind == "c64":
            array = array + 1j * numbers.uniform(-1, 1, array.shape)
        rows.append([array.astype({"f32": "f4", "f64": "f8", "c64": "c8"}[kind])])
    better, _ = check(_factors(kind, batch, first, second), LinearSystems(), given=rows)
    assert sum(one.opcode == "cholesky" for one in better.entry) == 1


def test_factors_of_other_triangles_are_two() -> None:
    given = hloopt.parse(_factors("f32", "", "true", "true"), "m")
    assert not LinearSystems().run(given, PassLog())


def test_a_factor_of_lapack_is_shared() -> None:
    call = 'custom_call_target="lapack_spotrf_ffi", api_version=API_VERSION_TYPED_FFI'
    text = f"""HloModule m
    ENTRY e {{
      a = f32[6,6] parameter(0)
      one = (f32[6,6], s32[]) custom-call(a), {call}, backend_config={{uplo = 76 : ui8}}
      turned = f32[6,6] transpose(a), dimensions={{1,0}}
      other = (f32[6,6], s32[]) custom-call(turned), {call}, backend_config={{uplo = 85 : ui8}}
      l = f32[6,6] get-tuple-element(one), index=0
      u = f32[6,6] get-tuple-element(other), index=0
      bad = s32[] get-tuple-element(other), index=1
      ROOT r = (f32[6,6], f32[6,6], s32[]) tuple(l, u, bad)
    }}"""
    numbers = np.random.default_rng(1)
    good = (numbers.uniform(-1, 1, (6, 6)) + 6 * np.eye(6)).astype(np.float32)
    better, _ = check(text, LinearSystems(), given=[[good], [good - 6 * np.eye(6, dtype="f4")]])
    assert sum(one.opcode == "custom-call" for one in better.entry) == 1
