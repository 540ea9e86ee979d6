"""What C says the same as a tree: parentheses where operators need them, statements line by line."""

from __future__ import annotations

import pytest

from hloopt.analysis.index import Symbol
from hloopt.kernel_ir.expressions import (
    Array,
    Binary,
    Call,
    Cast,
    Expr,
    Make,
    Member,
    Number,
    Select,
    Unary,
    Var,
    as_expr,
    both,
    either,
    eq,
    ne,
)
from hloopt.kernel_ir.listing import listing
from hloopt.kernel_ir.printer import Printer, expression_text
from hloopt.kernel_ir.scope import Names, Scope, TooLong
from hloopt.kernel_ir.statements import Copy, Function, Parameter, Return, Wait
from hloopt.kernel_ir.types import BOOL, FLOAT, INT, LONG, UINT, ULONG, common_type, struct, vector

A, B, C = (Var(name, INT) for name in "abc")
P = Array("p", FLOAT, (64,), "global")
Q = Array("q", FLOAT, (64,), "global")
INDEX = Symbol("i", 0, 63).index


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (A + B * C, "a + b * c"),
        ((A + B) * C, "(a + b) * c"),
        (A - (B - C), "a - (b - c)"),
        (A - B - C, "a - b - c"),
        (A / (B * C), "a / (b * c)"),
        (-(A + B), "-(a + b)"),
        (-Unary("-", A, INT), "-(-a)"),
        (~A & B, "~a & b"),
        (eq(A & B, C), "(a & b) == c"),
        ((A << B) + C, "(a << b) + c"),
        ((A + B) << C, "(a + b) << c"),
        (A | B << C, "a | (b << c)"),
        (both([A < B, either([B < C, ne(A, C)])]), "a < b && (b < c || a != c)"),
        (either([both([A < B, B < C]), eq(A, C)]), "(a < b && b < c) || a == c"),
        (both([]), "true"),
        (either([]), "false"),
        (Select.of(A < B, A, Select.of(B < C, B, C)), "a < b ? a : b < c ? b : c"),
        (Select.of(Select.of(A, B, C), A, B) + 1, "((a ? b : c) ? a : b) + 1"),
        (Cast(LONG, A + B), "(long long)(a + b)"),
        (Cast(LONG, A) * B, "(long long)a * b"),
        (Member(Cast(LONG, A), "re", FLOAT), "((long long)a).re"),
        (Member(A, "lane", FLOAT, as_expr(2)), "a.lane[2]"),
        (Call("f<2>", (A, B + C), INT), "f<2>(a, b + c)"),
        (Make(struct("bf16"), (A + B,)), "bf16{a + b}"),
        (Make(vector(FLOAT, 2), (A, B)), "Vector<float, 2>{{a, b}}"),
        (P[INDEX * 2 + 1], "p[i * 2 + 1]"),
        (P.address(INDEX), "&p[i]"),
        (as_expr(INDEX + 1) * 2, "(i + 1) * 2"),
        (A.negated(), "!a"),
        ((A < B).negated(), "!(a < b)"),
    ],
)
def test_expressions(expr: Expr, text: str) -> None:
    """Only parentheses that are needed, or that help people read."""
    assert expression_text(expr) == text


def test_types_are_those_of_c() -> None:
    """Numbers are joined by the usual arithmetic conversions; comparisons are bool."""
    byte = Var("x", common_type(BOOL, BOOL))
    assert byte.type == INT
    assert (A + Var("u", UINT)).type == UINT
    assert (Var("l", LONG) + Var("u", UINT)).type == LONG
    assert (Var("l", LONG) + Var("m", ULONG)).type == ULONG
    assert (A + Var("f", FLOAT)).type == FLOAT
    assert (A < B).type == BOOL
    assert Binary.of("<<", A, Var("l", LONG)).type == INT
    assert Select.of(A < B, A, Number("1.0f", FLOAT, 1.0)).type == FLOAT


def scope() -> Scope:
    return Scope(Names(None, frozenset({"min"})))


def printed(made: Scope) -> list[str]:
    return list(Printer().body(made.statements()))


def test_blocks_and_names() -> None:
    """Blocks are filled in any order; names are given once, and never those that are reserved."""
    outer = scope()
    total = outer.variable(FLOAT, "sum", Number("0.0f", FLOAT, 0.0))
    block, at = outer.loop(0, 8, "i", unroll=0)
    other, second = outer.loop(8, 0, "i", step=2, test=">", change="/=")
    other.set(total, total * P[second])
    block.set(total, P[at], "+")
    assert outer.declare(INT, 3, "min").name == "min_1"
    assert printed(outer) == [
        "float sum = 0.0f;",
        "#pragma unroll",
        "for (int i = 0; i < 8; ++i) {",
        "  sum += p[i];",
        "}",
        "for (int i_1 = 8; i_1 > 0; i_1 /= 2) {",
        "  sum = sum * p[i_1];",
        "}",
        "const int min_1 = 3;",
    ]


def test_choices() -> None:
    """Else belongs to the block before, however many there are."""
    outer = scope()
    outer.when(A < B).set(A, 1)
    outer.otherwise(B < C).set(A, 2)
    outer.otherwise().set(A, 3)
    outer.leave(A < 0)
    outer.repeat(A < B).leave()
    outer.braces().add(Return())
    assert printed(outer) == [
        "if (a < b) {",
        "  a = 1;",
        "} else if (b < c) {",
        "  a = 2;",
        "} else {",
        "  a = 3;",
        "}",
        "if (a < 0) break;",
        "while (a < b) {",
        "  break;",
        "}",
        "{",
        "  return;",
        "}",
    ]


def test_sections_are_filled_later() -> None:
    """What a section computes stands before what was written since, and is known there where it is shared."""
    outer = scope()
    shared, own = outer.section(), outer.section(shared=False)
    outer.set(A, 1)
    shared.remember(("x",), shared.declare(INT, 2, "x"))
    own.remember(("y",), own.declare(INT, 3, "y"))
    assert printed(outer) == ["const int x = 2;", "const int y = 3;", "a = 1;"]
    assert outer.known(("x",)) == Var("x", INT)
    assert outer.known(("y",)) is None
    assert outer.when(A < B).known(("x",)) == Var("x", INT)


def test_heads_of_loops_change_later() -> None:
    """What is said last of a loop counts; a block that is no loop takes nothing."""
    outer = scope()
    block, _ = outer.loop(0, 8, "i")
    block.unroll(1)
    block.unroll(4)
    block.vectorize()
    assert printed(outer)[:2] == ["#pragma unroll 4", "#pragma omp simd"]
    with pytest.raises(AssertionError):
        outer.unroll(1)


def test_arrays() -> None:
    """Arrays lie where they are said to, in the memory of the launch, too."""
    outer = scope()
    table = outer.array(FLOAT, (2,), "t", [1, 2], space="constant", is_static=True)
    tile = outer.array(FLOAT, (4, 8), "s", space="shared", align=16)
    first = outer.array(FLOAT, (32,), "d", space="shared", offset=0)
    outer.array(FLOAT, (32,), "d", space="shared", offset=128)
    outer.set(tile[INDEX, 1], first[0] + table[1])
    outer.barrier()
    outer.barrier("warp")
    outer.add(Copy(tile.address((0, 0)), P.address(INDEX), 16))
    outer.add(Wait(1))
    assert printed(outer) == [
        "static const float t[2] = {1, 2};",
        "__shared__ __align__(16) float s[4][8];",
        "extern __shared__ __align__(16) unsigned char dynamic_shared[];",
        "float (&d)[32] = *(float (*)[32])(dynamic_shared + 0);",
        "float (&d_1)[32] = *(float (*)[32])(dynamic_shared + 128);",
        "s[i][1] = d[0] + t[1];",
        "__syncthreads();",
        "__syncwarp();",
        "copy_async<16>(&s[0][0], &p[i], true);",
        "wait_async<1>();",
    ]


def test_room() -> None:
    """A function that may have so many bytes raises where it has more."""
    outer = Scope(Names(20))
    outer.set(A, A + B)
    with pytest.raises(TooLong):
        outer.set(A, A + B)


def kernel(*bodies: Scope) -> Function:
    parameters = (Parameter(P, is_alone=True), Parameter(Q, is_read=False), Parameter(A))
    return Function("sums_of_rows", parameters, bodies[0].statements(), 128, 2)


def test_functions_and_their_listing() -> None:
    """The C of a kernel, and the tree as people read it."""
    body = scope()
    i = body.declare(INT, A * 2, "i")
    inner = body.when(i < 64)
    total = inner.variable(FLOAT, "sum")
    block, at = inner.loop(0, 8, "k", unroll=2)
    block.set(total, P[at], "+")
    inner.set(Q[i], total)
    made = kernel(body)
    assert list(Printer().function(made)) == [
        'extern "C" __global__ void __launch_bounds__(128, 2) sums_of_rows(',
        "    const float* __restrict__ p,",
        "    float* q,",
        "    int a) {",
        "  const int i = a * 2;",
        "  if (i < 64) {",
        "    float sum;",
        "    #pragma unroll 2",
        "    for (int k = 0; k < 8; ++k) {",
        "      sum += p[k];",
        "    }",
        "    q[i] = sum;",
        "  }",
        "}",
    ]
    assert list(listing(made)) == [
        "kernel sums_of_rows (128 threads, index int)",
        "  global p: float[64] reads alone",
        "  global q: float[64] writes",
        "  scalar a: int",
        "  let i: int = a * 2",
        "  if i < 64",
        "    var sum: float",
        "    for k: int from 0 to 8 unroll 2",
        "      set sum += p[k]",
        "    store q[i] = sum",
    ]
