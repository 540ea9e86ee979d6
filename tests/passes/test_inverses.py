"""A matrix beside its inverse in ``linear-systems``: what is left, that results stay, and what is something else."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.linear_algebra.systems import LinearSystems
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import PassLog

N = 6
M, V = f"f32[{N},{N}]", f"f32[{N},1]"
ROWS = f"s32[{N}]"
LOOP = f"""less {{ x = s32[] parameter(0)
y = s32[] parameter(1)
v = s32[] parameter(2)
w = s32[] parameter(3)
ROOT r = pred[] compare(x, y), direction=LT }}
goes_on {{ s = (s32[], {ROWS}, {ROWS}) parameter(0)
k = s32[] get-tuple-element(s), index=0
size = s32[] constant({N})
ROOT r = pred[] compare(k, size), direction=LT }}
exchange {{ s = (s32[], {ROWS}, {ROWS}) parameter(0)
k = s32[] get-tuple-element(s), index=0
rows = {ROWS} get-tuple-element(s), index=1
pivots = {ROWS} get-tuple-element(s), index=2
one = s32[] constant(1)
next = s32[] add(k, one)
at = s32[1] dynamic-slice(pivots, k), dynamic_slice_sizes={{1}}
j = s32[] reshape(at)
there = s32[1] dynamic-slice(rows, j), dynamic_slice_sizes={{1}}
here = s32[1] dynamic-slice(rows, k), dynamic_slice_sizes={{1}}
first = {ROWS} dynamic-update-slice(rows, there, k)
second = {ROWS} dynamic-update-slice(first, here, j)
ROOT r = (s32[], {ROWS}, {ROWS}) tuple(next, second, pivots) }}
"""


def factors(matrix: str = "a", mark: str = "") -> str:
    """``both`` are the factors of a matrix, ``order`` that of its rows; all names end with ``mark``."""
    return f"""lu{mark} = ({M}{{0,1}}, {ROWS}{{0}}, s32[]) custom-call({matrix}), custom_call_target="lapack_sgetrf_ffi",
  operand_layout_constraints={{{M}{{0,1}}}}, api_version=API_VERSION_TYPED_FFI,
  output_to_operand_aliasing={{{{0}}: (0, {{}})}}, backend_config={{}}
both{mark} = {M} get-tuple-element(lu{mark}), index=0
counted{mark} = {ROWS} get-tuple-element(lu{mark}), index=1
pivots{mark} = {ROWS} subtract(counted{mark}, ones)
state{mark} = (s32[], {ROWS}, {ROWS}) tuple(zero, places, pivots{mark})
loop{mark} = (s32[], {ROWS}, {ROWS}) while(state{mark}), condition=goes_on, body=exchange
order{mark} = {ROWS} get-tuple-element(loop{mark}), index=1
"""


MASKS = f"""zero = s32[] constant(0)
one = s32[] constant(1)
ones = {ROWS} broadcast(one), dimensions={{}}
places = {ROWS} iota(), iota_dimension=0
i = s32[{N},{N}] iota(), iota_dimension=0
j = s32[{N},{N}] iota(), iota_dimension=1
same = pred[{N},{N}] compare(i, j), direction=EQ
eye = {M} convert(same)
low = pred[{N},{N}] compare(i, j), direction=GE
none = f32[] constant(0)
zeros = {M} broadcast(none), dimensions={{}}
"""
BY_ROW = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
LEFT = "left_side=true"
GATHERED = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1"


def solved(name: str, right: str, shape: str, order: str = "order", both: str = "both") -> str:
    """``name`` = inverse(a) right."""
    width = shape[:-1].split(",")[1]
    return f"""{name}.at = s32[{N},1] reshape({order})
{name}.rows = {shape} gather({right}, {name}.at), {GATHERED}, slice_sizes={{1,{width}}}
{name}.l = {shape} triangular-solve({both}, {name}.rows), {LEFT}, lower=true, transpose_a=NO_TRANSPOSE, unit_diagonal=true
{name} = {shape} triangular-solve({both}, {name}.l), {LEFT}, lower=false, transpose_a=NO_TRANSPOSE, unit_diagonal=false
"""


def turned(name: str, right: str, order: str = "back") -> str:
    """``name`` = inverse(a') right."""
    return f"""sorted = ({ROWS}, {ROWS}) sort(order, places), dimensions={{0}}, to_apply=less
back = {ROWS} get-tuple-element(sorted), index=1
{name}.u = {V} triangular-solve(both, {right}), {LEFT}, lower=false, transpose_a=TRANSPOSE, unit_diagonal=false
{name}.l = {V} triangular-solve(both, {name}.u), {LEFT}, lower=true, transpose_a=TRANSPOSE, unit_diagonal=true
{name}.at = s32[{N},1] reshape({order})
{name} = {V} gather({name}.l, {name}.at), {GATHERED}, slice_sizes={{1,1}}
"""


def text(body: str) -> str:
    """``a`` is a matrix, ``x`` one column, of which ``body`` makes the root."""
    inputs = f"a = {M} parameter(0)\nx = {V} parameter(1)\n"
    return f"HloModule m\n{LOOP}ENTRY e {{\n{inputs}{MASKS}{factors()}{body}}}\n"


def module(body: str) -> Module:
    """The same, read."""
    found = hloopt.parse(text(body), "m")
    hloopt.verify(found)
    return found


def left(given: Module) -> tuple[int, int, int]:
    """Products, systems and factorisations that are read after the pass; results have to stay as they were."""
    before = clone_module(given)
    log = PassLog(kinds=frozenset({"passed"}))
    LinearSystems(reassociate=True, target="host").run(given, log)
    hloopt.verify(given)
    parse_pipeline("dce").run(given)
    numbers = np.random.default_rng(1)
    a = numbers.standard_normal((N, N)).astype(np.float32)
    arrays = [a, numbers.standard_normal((N, 1)).astype(np.float32)]
    for one, other in zip(
        hloopt.evaluate(before, arrays), hloopt.evaluate(given, arrays), strict=True
    ):
        np.testing.assert_allclose(other, one, rtol=0, atol=2e-5 * float(np.abs(one).max()))
    opcodes = [one.opcode for one in given.entry]
    return tuple(opcodes.count(name) for name in ("dot", "triangular-solve", "custom-call"))


PRODUCT = f"dot(a, x), {BY_ROW}"
GONE = {
    "a solution multiplied": f"{solved('y', 'x', V)}ROOT r = {V} dot(a, y), {BY_ROW}\n",
    "a product solved": f"p = {V} {PRODUCT}\n{solved('y', 'p', V)}ROOT r = {V} copy(y)\n",
    "the matrix solved": f"{solved('y', 'a', M)}ROOT r = {V} dot(y, x), {BY_ROW}\n",
    "a product with the inverse": f"{solved('y', 'eye', M)}b = {M} dot(y, a), {BY_ROW}\nROOT r = {M} copy(b)\n",
    "a product with the inverse multiplied": f"""{solved("y", "eye", M)}b = {M} add(a, eye)
k = {M} dot(b, y), {BY_ROW}
ROOT r = {M} dot(k, a), {BY_ROW}
""",
    "from the left": f"""{solved("y", "eye", M)}k = {V} dot(y, x), {BY_ROW}
ROOT r = {V} dot(a, k), {BY_ROW}
""",
    "the transposed system": f"t = {M} transpose(a), dimensions={{1,0}}\np = {V} dot(t, x), {BY_ROW}\n"
    f"{turned('y', 'p')}ROOT r = {V} copy(y)\n",
    "its solution multiplied": f"{turned('y', 'x')}"
    f"ROOT r = {V} dot(a, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}\n",
    "a triangle": f"""t = {M} select(low, a, zeros)
p = {V} dot(t, x), {BY_ROW}
ROOT r = {V} triangular-solve(t, p), {LEFT}, lower=true, transpose_a=NO_TRANSPOSE, unit_diagonal=false
""",
    "a definite matrix": f"""square = {M} dot(a, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
s = {M} add(square, eye)
l = {M} cholesky(s), lower=true
y.l = {V} triangular-solve(l, x), {LEFT}, lower=true, transpose_a=NO_TRANSPOSE, unit_diagonal=false
y = {V} triangular-solve(l, y.l), {LEFT}, lower=true, transpose_a=TRANSPOSE, unit_diagonal=false
ROOT r = {V} dot(s, y), {BY_ROW}
""",
}


@pytest.mark.parametrize("name", GONE)
def test_neither_a_product_nor_a_system_is_left(name: str) -> None:
    products, systems, _ = left(module(GONE[name]))
    # A product with an identity is another pass's.
    assert (products, systems) == (int(name == "the matrix solved"), 0)


KEPT = {
    "another matrix": f"b = {M} add(a, eye)\n{solved('y', 'x', V)}ROOT r = {V} dot(b, y), {BY_ROW}\n",
    "the transposed matrix": f"{solved('y', 'x', V)}"
    f"ROOT r = {V} dot(a, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}\n",
    "the transposed system": f"{turned('y', 'x')}ROOT r = {V} dot(a, y), {BY_ROW}\n",
    "the inverse's transpose": f"""{solved("y", "eye", M)}b = {M} add(a, eye)
k = {M} dot(b, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
z = {M} dot(k, a), {BY_ROW}
ROOT r = ({M}, {M}) tuple(y, z)
""",
    "rows in no order": f"{solved('y', 'x', V, 'places')}ROOT r = {V} dot(a, y), {BY_ROW}\n",
    "the order not turned": f"{turned('y', 'x', 'order')}"
    f"ROOT r = {V} dot(a, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}\n",
    "more than a triangle": f"""p = {V} {PRODUCT}
ROOT r = {V} triangular-solve(a, p), {LEFT}, lower=true, transpose_a=NO_TRANSPOSE, unit_diagonal=false
""",
    "a diagonal of ones": f"""t = {M} select(low, a, zeros)
p = {V} dot(t, x), {BY_ROW}
ROOT r = {V} triangular-solve(t, p), {LEFT}, lower=true, transpose_a=NO_TRANSPOSE, unit_diagonal=true
""",
    "not symmetric": f"""h = {M} add(a, eye)
l = {M} cholesky(h), lower=true
y.l = {V} triangular-solve(l, x), {LEFT}, lower=true, transpose_a=NO_TRANSPOSE, unit_diagonal=false
y = {V} triangular-solve(l, y.l), {LEFT}, lower=true, transpose_a=TRANSPOSE, unit_diagonal=false
ROOT r = {V} dot(h, y), {BY_ROW}
""",
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_not_the_inverse_stays(name: str) -> None:
    products, systems, _ = left(module(KEPT[name]))
    assert products == (2 if name == "the inverse's transpose" else 1)
    assert systems > 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dynamic-update-slice(first, here, j)", "dynamic-update-slice(first, there, j)"),
        ("dynamic-update-slice(rows, there, k)", "dynamic-update-slice(rows, there, j)"),
        ("dynamic-slice(rows, k)", "dynamic-slice(rows, next)"),
        ("dynamic-slice(pivots, k)", "dynamic-slice(pivots, one)"),
        (f"size = s32[] constant({N})", f"size = s32[] constant({N - 1})"),
        ("next = s32[] add(k, one)", "next = s32[] add(k, k)"),
        ("tuple(zero, places, pivots)", "tuple(zero, pivots, places)"),
        ("pivots = s32[6] subtract(counted, ones)", "pivots = s32[6] add(counted, ones)"),
    ],
)
def test_a_loop_that_does_something_else_is_not_an_exchange(old: str, new: str) -> None:
    source = text(GONE["a solution multiplied"])
    assert source.count(old) == 1
    given = hloopt.parse(source.replace(old, new), "m")
    LinearSystems(reassociate=True, target="host").run(given, PassLog())
    parse_pipeline("dce").run(given)
    assert [one.opcode for one in given.entry].count("dot") == 1


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_inverse_of_an_inverse_is_the_matrix(is_whole: bool) -> None:
    right, shape = ("eye", M) if is_whole else ("x", V)
    last = solved("z", right, shape, "order.2", "both.2")
    body = f"{solved('y', 'eye', M)}{factors('y', '.2')}{last}ROOT r = {shape} copy(z)\n"
    assert left(module(body)) == (0 if is_whole else 1, 0, 0)


@pytest.mark.parametrize("shows", [False, True])
def test_a_matrix_and_its_transpose_are_factored_once(shows: bool) -> None:
    """Where nothing shows the factors of either."""
    shapes, results = (f", {M}", ", both.2") if shows else ("", "")
    body = f"""{solved("y", "x", V)}t = {M} transpose(a), dimensions={{1,0}}
{factors("t", ".2")}{solved("z", "x", V, "order.2", "both.2")}
ROOT r = ({V}, {V}{shapes}) tuple(y, z{results})
"""
    assert left(module(body)) == (0, 4, 2 if shows else 1)


def test_floats_need_leave() -> None:
    given = module(GONE["a solution multiplied"])
    log = PassLog(kinds=frozenset({"missed"}))
    assert not LinearSystems(target="host").run(given, log)
    (remark,) = [one for one in log.remarks if "dot(A, solve(A, B))" in one.rule]
    assert "f32 would round otherwise" in remark.reason
