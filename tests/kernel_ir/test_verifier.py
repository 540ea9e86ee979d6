"""What the verifier of the kernel IR refuses: a case for each rule, and kernels that keep them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import pytest

from hloopt.analysis.index import Index, Symbol
from hloopt.kernel_ir.expressions import (
    FALSE,
    TRUE,
    Array,
    ArrayValue,
    Binary,
    Call,
    Cast,
    Element,
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
)
from hloopt.kernel_ir.statements import (
    Agree,
    Barrier,
    Block,
    Break,
    Commit,
    Copy,
    Declare,
    Do,
    For,
    Function,
    If,
    Let,
    LoadMatrices,
    MultiplyMatrices,
    Parameter,
    Return,
    Set,
    Statement,
    Wait,
    While,
)
from hloopt.kernel_ir.types import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    UINT,
    VOID,
    Type,
    struct,
    vector,
)
from hloopt.kernel_ir.verifier import ElementPlaces, KernelError, verify

F16: Final = struct("f16")
GIVEN: Final = Array("given", FLOAT, (64,), "global")
RESULT: Final = Array("result", FLOAT, (64,), "global")
N: Final = Var("n", INT)
THREAD: Final = Cast(INT, Var("threadIdx.x", UINT))
BLOCK: Final = Cast(INT, Var("blockIdx.x", UINT))
SHARED: Final = Array("shared", FLOAT, (8, 64), "shared")
STATE: Final = Array("state", INT, (4,), "shared")
OWN: Final = Array("own", FLOAT, (4,), "local")
ONE: Final = Number("1.0f", FLOAT, 1.0)
WIDE: Final = Number("1.0", DOUBLE, 1.0)
SUMS: Final = tuple(Array("sums", DOUBLE, (2,), "local")[at] for at in range(2))
WORDS: Final = tuple(Array("words", UINT, (4,), "local")[at] for at in range(4))
TILE: Final = Array("tile", FLOAT, (64,), "shared")
LOOSE: Final = Array("s", FLOAT, (64,), "shared")
ROWS: Final = Declare(TILE, align=16)
COPY: Final = Copy(TILE.address(0), GIVEN.address(0), 16)


def _multiplies(
    sums: Sequence[Element], left: Sequence[Expr], right: Sequence[Expr]
) -> MultiplyMatrices:
    return MultiplyMatrices("m8n8k4.f64", tuple(sums), tuple(left), tuple(right))


def _function(*body: Statement) -> Function:
    parameters = (Parameter(GIVEN, True), Parameter(RESULT, True, is_read=False), Parameter(N))
    return Function("hlo_test", parameters, body, 64)


def _let(name: str, value: Expr, type: Type | None = None) -> Let:
    return Let(Var(name, type or value.type), value)


def _place(name: str, low: int, high: int) -> Index:
    return Symbol(name, low, high).index


X: Final = Var("x", INT)
Y: Final = Var("y", FLOAT)

TYPES: Final[Sequence[tuple[str, Sequence[Statement]]]] = [
    ("x is of type void", [Declare(Var("x", VOID))]),
    ("state is of type void", [Declare(Array("state", VOID, (4,), "shared"))]),
    ("void is not given to int", [_let("x", Call("f", (), VOID), INT)]),
    ("float is not given to int", [_let("x", ONE, INT)]),
    ("double is not given to float", [_let("x", WIDE, FLOAT)]),
    ("int is not given to f16", [_let("x", as_expr(1), F16)]),
    ("f16 is not given to c64", [Declare(Var("h", F16)), _let("x", Var("h", F16), struct("c64"))]),
    ("float is not given to int", [Declare(X, (ONE,))]),
    ("float is not given to int", [Declare(STATE, (ONE,))]),
    ("float is not given to int", [Declare(X), Set(X, ONE)]),
    ("float is not given to int", [Declare(X), Set(X, ONE, "+")]),
    ("+ takes no f16 and float", [Declare(Var("h", F16)), _let("x", Var("h", F16) + ONE)]),
    ("% takes no float and int", [_let("x", ONE % 2)]),
    ("<< takes no float and int", [_let("x", ONE << 2)]),
    ("& takes no int and float", [_let("x", N & ONE)]),
    ("& takes no float and int", [Declare(Y), Set(Y, as_expr(1), "&")]),
    ("~ takes no float", [_let("x", ~ONE)]),
    ("- takes no f16", [Declare(Var("h", F16)), _let("x", -Var("h", F16))]),
    ("* takes no int", [_let("x", Unary("*", N, INT))]),
    ("- takes no float* and int", [_let("x", ArrayValue(RESULT) - 1)]),
    ("+ gives no int", [_let("x", Binary("+", ONE, ONE, INT))]),
    ("either f16 or int", [Declare(Var("h", F16)), _let("x", Select.of(TRUE, Var("h", F16), 1))]),
    ("a test is not float", [_let("x", Select.of(ONE, 1, 2))]),
    ("a test is not float", [If(ONE, ())]),
    ("a test is not float", [While(ONE, ())]),
    ("f16 does not become int", [Declare(Var("h", F16)), _let("x", Cast(INT, Var("h", F16)))]),
    ("int has no re", [_let("x", Member(N, "re", FLOAT))]),
    (
        "re is of type void",
        [Declare(Var("h", F16)), _let("x", Member(Var("h", F16), "re", VOID))],
    ),
    ("float has no parts", [_let("x", Make(FLOAT, (ONE,)))]),
    ("1 parts of Vector<float, 2>", [_let("x", Make(vector(FLOAT, 2), (ONE,)))]),
    ("double is not given to float", [_let("x", Make(vector(FLOAT, 1), (WIDE,)))]),
    ("an argument of f is of type void", [_let("x", Call("f", (Call("g", (), VOID),), INT))]),
    ("given has no place float", [_let("x", GIVEN[ONE])]),
    ("only a call does something", [Do(N + 1)]),
    ("a loop does not count by float", [For(Y, ONE, ONE, ())]),
    ("a loop does not end by ==", [For(X, N, N, (), test="==")]),
    ("a loop does not go on by <<=", [For(X, N, N, (), change="<<=")]),
    ("2 values for 1", [Declare(X, (N, N))]),
    ("5 values for 4", [Declare(STATE, (N,) * 5)]),
    ("only a table of constants is static", [Declare(STATE, is_static=True)]),
    (
        "2 bytes are not copied at once",
        [Declare(STATE), Copy(STATE.address(0), GIVEN.address(0), 2)],
    ),
    ("copies go to shared memory", [Copy(RESULT.address(0), GIVEN.address(0), 4)]),
    ("a number of groups is not negative", [Wait(-1)]),
    ("grid is not a group of threads", [Barrier("grid")]),
]

NAMES: Final[Sequence[tuple[str, Sequence[Statement]]]] = [
    ("n is declared twice", [_let("n", ONE)]),
    ("x is declared twice", [_let("x", ONE), Block((_let("x", ONE),))]),
    ("x is declared twice", [Block((_let("x", ONE),)), Block((_let("x", ONE),))]),
    ("x is declared twice", [For(X, N, N, (For(X, N, N, ()),))]),
    ("x is declared twice", [For(X, N, N, ()), Declare(X)]),
    ("x is not declared here", [_let("y", X), _let("x", N)]),
    ("x is not declared here", [Block((Declare(X),)), _let("y", X)]),
    ("x is not declared here", [For(X, N, N, ()), _let("y", X)]),
    ("x is not declared here", [For(X, N, X, ())]),
    ("x is not declared here", [If(TRUE, (Declare(X),), (Set(X, N),))]),
    ("x is not declared here", [Declare(X, (X,))]),
    ("n is declared as", [_let("y", Var("n", LONG))]),
    ("shared is not declared here", [_let("x", SHARED[0, 0])]),
    ("shared is not declared here", [Do(Call("f", (ArrayValue(SHARED),), VOID))]),
    ("given is declared as", [_let("x", Array("given", FLOAT, (65,), "global")[0])]),
    ("i is not an integer declared here", [_let("x", GIVEN[_place("i", 0, 3)])]),
    (
        "y is not an integer declared here",
        [_let("y", ONE), _let("x", GIVEN[_place("y", 0, 3)])],
    ),
    ("x never changes", [_let("x", N), Set(X, N)]),
    ("x never changes", [For(X, N, N, (Set(X, N),))]),
    ("given never changes", [Set(GIVEN[0], ONE)]),
    ("threadIdx.x never changes", [Set(Var("threadIdx.x", UINT), N)]),
    (
        "table never changes",
        [
            Declare(Array("table", INT, (2,), "constant"), (N, N), is_static=True),
            Set(Array("table", INT, (2,), "constant")[0], N),
        ],
    ),
    ("what a block agrees on is no int", [Agree(X, TRUE)]),
    ("there is no loop to leave", [Break()]),
    ("there is no loop to leave", [While(TRUE, (Break(),)), If(TRUE, (Break(),))]),
]

BARRIERS: Final[Sequence[tuple[str, Sequence[Statement]]]] = [
    ("part at if", [If(THREAD < 3, (Barrier(),))]),
    ("part at if", [If(THREAD < 3, (), (Barrier("warp"),))]),
    ("part at if", [If(THREAD < 3, (For(X, as_expr(0), N, (Barrier(),)),))]),
    ("part at for", [For(X, THREAD, N, (Barrier(),))]),
    ("part at for", [For(X, as_expr(0), THREAD, (Barrier(),))]),
    ("part at while", [While(GIVEN[THREAD] < 3, (Barrier(),))]),
    ("part at if", [If(THREAD < 3, (Agree(Var("all", BOOL), TRUE),))]),
    # What is derived from the thread's number.
    ("part at if", [_let("x", THREAD / 2), If(X < 3, (Barrier(),))]),
    (
        "part at if",
        [_let("x", THREAD), _let("y", GIVEN[_place("x", 0, 63)]), If(Y < 3, (Barrier(),))],
    ),
    ("part at if", [Declare(OWN), Set(OWN[0], GIVEN[THREAD]), If(OWN[1] < 3, (Barrier(),))]),
    (
        "part at if",
        [_let("x", Call("atomicAdd", (RESULT.address(0), N), INT)), If(eq(X, 0), (Barrier(),))],
    ),
    (
        "part at if",
        [
            Declare(OWN),
            Do(Call("store_vector", (OWN.address(0), GIVEN[THREAD]), VOID)),
            If(OWN[0] < 3, (Barrier(),)),
        ],
    ),
    # A variable that only some threads set, in a branch or in trips that only they make.
    ("part at if", [Declare(X, (N,)), If(THREAD < 3, (Set(X, N + 1),)), If(X < 3, (Barrier(),))]),
    (
        "part at if",
        [
            Declare(X, (N,)),
            For(Var("i", INT), as_expr(0), THREAD, (Set(X, as_expr(1), "+"),)),
            If(X < 3, (Barrier(),)),
        ],
    ),
    # It differs in the second trip.
    (
        "part at if",
        [Declare(X, (N,)), While(TRUE, (If(X < 3, (Barrier(),)), Set(X, X + THREAD), Break()))],
    ),
    # Some have left.
    ("part at if", [If(THREAD < 3, (Return(),)), Barrier()]),
    ("part at while", [While(TRUE, (If(THREAD < 3, (Break(),)), Barrier()))]),
    ("part at while", [While(TRUE, (Barrier(), If(THREAD < 3, (Break(),))))]),
    ("part at while", [While(TRUE, (If(THREAD < 3, (Return(),)),)), Barrier()]),
]

MATRICES: Final[Sequence[tuple[str, Sequence[Statement]]]] = [
    ("m8n8k4.f32 is none of", [MultiplyMatrices("m8n8k4.f32", (), (), ())]),
    ("1 registers where 2 are needed", [_multiplies(SUMS[:1], (ONE,), (ONE,))]),
    ("2 registers where 1 are needed", [_multiplies(SUMS, (ONE, ONE), (ONE,))]),
    ("a register of m8n8k4.f64 is no float", [_multiplies(SUMS, (WIDE,), (ONE,))]),
    ("double is not given to float", [_multiplies((OWN[0], OWN[1]), (WIDE,), (WIDE,))]),
    ("is set twice", [_multiplies((SUMS[0], SUMS[0]), (WIDE,), (WIDE,))]),
    ("is not a lane's own", [_multiplies((RESULT[0], SUMS[1]), (WIDE,), (WIDE,))]),
    ("it is neither a variable", [_multiplies((WIDE, SUMS[1]), (WIDE,), (WIDE,))]),  # type: ignore[arg-type]
    ("part at if", [If(THREAD < 32, (_multiplies(SUMS, (WIDE,), (WIDE,)),))]),
    ("part at if", [_multiplies(SUMS, (WIDE,), (WIDE,)), If(SUMS[0] < 3, (Barrier(),))]),
    ("3 matrices are not loaded", [ROWS, LoadMatrices((WORDS[0],) * 3, TILE.address(0))]),
    ("come from shared memory", [ROWS, LoadMatrices((WORDS[0],), RESULT.address(0))]),
    ("s is not aligned to 16", [Declare(LOOSE), LoadMatrices((WORDS[0],), LOOSE.address(0))]),
    ("unsigned is not given to float", [ROWS, LoadMatrices((OWN[0],), TILE.address(0))]),
    ("part at if", [ROWS, If(THREAD < 8, (LoadMatrices((WORDS[0],), TILE.address(0)),))]),
    (
        "part at if",
        [ROWS, LoadMatrices((WORDS[0],), TILE.address(0)), If(WORDS[0] < 3, (Barrier(),))],
    ),
    ("no group of copies was committed", [ROWS, COPY, Wait()]),
    ("no group of copies was committed", [Wait()]),
    ("its group is never committed", [ROWS, COPY]),
    ("its group is never committed", [ROWS, Commit(), COPY, Wait()]),
    ("nothing waits for it", [ROWS, COPY, Commit()]),
    ("a test is not float", [ROWS, Copy(TILE.address(0), GIVEN.address(0), 16, ONE)]),
]

PLACES: Final[Sequence[tuple[str, Sequence[Statement]]]] = [
    ("64 to 64 is outside of the 64 of given", [_let("x", GIVEN[64])]),
    ("-1 to -1 is outside", [_let("x", GIVEN[-1])]),
    ("8 to 8 is outside of the 8 of shared", [Declare(SHARED), _let("x", SHARED[8, 0])]),
    ("64 to 70 is outside", [_let("x", N), _let("y", GIVEN[_place("x", 64, 70)])]),
    ("64 to 70 is outside", [_let("x", N), _let("y", GIVEN[as_expr(_place("x", 0, 6)) + 64])]),
    ("3 to 2 is outside", [_let("x", N), _let("y", GIVEN[_place("x", 3, 2)])]),
    ("64 to 99 is outside", [For(X, as_expr(64), as_expr(100), (Set(RESULT[X], ONE),))]),
    ("64 to 64 is outside", [_let("x", as_expr(64)), Set(RESULT[X], ONE)]),
    ("64 to 64 is outside", [If(FALSE, (), (Set(RESULT[64], ONE),))]),
    ("64 to 64 is outside", [If(either([TRUE, FALSE]), (Set(RESULT[64], ONE),))]),
    ("shared has 2 dimensions", [Declare(SHARED), _let("x", SHARED[0])]),
    ("memory has one dimension", [_let("x", Array("memory", FLOAT, (), "global")[0, 0])]),
]


@pytest.mark.parametrize(("words", "body"), [*TYPES, *NAMES, *BARRIERS, *MATRICES, *PLACES])
def test_what_breaks_a_rule_is_refused(words: str, body: Sequence[Statement]) -> None:
    """The error has the function and the rule."""
    if (words, body) in MATRICES:
        body = [Declare(OWN), Declare(SUMS[0].array), Declare(WORDS[0].array), *body]
    if "memory" in words.split():
        body = [Declare(Array("memory", FLOAT, (), "global")), *body]
    with pytest.raises(KernelError) as found:
        verify(_function(*body))
    assert words in str(found.value)
    assert str(found.value).startswith("hlo_test: ")


def test_nodes_that_it_does_not_know_are_mistakes() -> None:
    """A node that is added to the IR has to be checked, too."""

    @dataclass(frozen=True)
    class Odd(Expr):
        type: Type = INT

    @dataclass(frozen=True)
    class Odder:
        body = ()

    with pytest.raises(TypeError, match="Odd is not an expression"):
        verify(_function(Let(X, Odd())))
    with pytest.raises(TypeError, match="Odder is not a statement"):
        verify(_function(cast("Statement", Odder())))


def test_the_error_has_the_statement() -> None:
    """It is named by its first line."""
    loop = For(X, as_expr(0), N, (If(THREAD < X, (Barrier(),)),), unroll=0)
    with pytest.raises(KernelError) as found:
        verify(_function(loop))
    assert str(found.value) == (
        "hlo_test: __syncthreads(): some threads may not reach it: they part at "
        "if ((int)threadIdx.x < x)"
    )
    with pytest.raises(
        KernelError, match=r"^hlo_test: const int x = 1.0f: float is not given to int$"
    ):
        verify(_function(_let("x", ONE, INT)))


@pytest.mark.parametrize(
    "body",
    [
        # By blocks, parameters and constants all threads go alike.
        [If(BLOCK < N, (For(X, BLOCK, as_expr(8), (Barrier(),)),))],
        [If(GIVEN[BLOCK] < 3, (Barrier(),))],
        # One thread decides for all, in shared memory.
        [
            Declare(STATE),
            While(
                TRUE,
                (
                    If(eq(THREAD, 0), (Set(STATE[0], STATE[1] + 1),)),
                    Barrier(),
                    If(eq(STATE[0], 4), (Break(),)),
                    Barrier(),
                ),
            ),
            Barrier(),
        ],
        # Some go through a loop more often, and all come together behind it.
        [For(X, THREAD, N, (If(X < 3, (Break(),)),)), Barrier()],
        # A loop that all leave together.
        [Declare(X, (N,)), While(TRUE, (Barrier(), Set(X, X / 2), If(eq(X, 0), (Break(),))))],
        # All have left or none has.
        [If(eq(BLOCK, 0), (Return(),)), Barrier()],
        # What is outside is never reached.
        [
            _let("x", N),
            If(as_expr(_place("x", 64, 70)) < 64, (Set(RESULT[_place("x", 64, 70)], ONE),)),
        ],
        [For(X, as_expr(64), as_expr(64), (Set(RESULT[64], ONE),))],
        [If(both([TRUE, FALSE]), (Set(RESULT[64], ONE),), (Set(RESULT[63], ONE),))],
        # Two loops, one behind the other, have one counter.
        [For(X, N, N, ()), For(X, N, N, ())],
        # Numbers become wider, or what they were.
        [_let("x", N, LONG), _let("y", N, FLOAT), _let("z", ONE, DOUBLE), _let("w", TRUE, INT)],
        [_let("x", eq(N, 1), BOOL), _let("y", Number("1ll", LONG, 1), INT)],
    ],
)
def test_what_keeps_the_rules_passes(body: Sequence[Statement]) -> None:
    """What is right is not refused."""
    verify(_function(*body))


def test_a_function_for_the_host_may_keep_what_is_no_constant() -> None:
    """It may fill a table once; on a device that has a place of its own."""
    table = Declare(Array("table", INT, (2,), "local"), is_static=True)
    verify(replace(_function(table), threads=0))
    with pytest.raises(KernelError, match="only a table of constants is static"):
        verify(_function(table))


def test_places_are_counted() -> None:
    """Those in their arrays for all values of variables, and others."""
    body = [
        _let("x", N),
        _let("a", GIVEN[_place("x", 0, 63)]),
        _let("b", GIVEN[_place("x", 0, 64)]),
        _let("c", GIVEN[X]),
        For(Var("i", INT), as_expr(0), as_expr(64), (Set(RESULT[Var("i", INT)], ONE),)),
        _let("d", GIVEN[Select.of(X < 3, as_expr(_place("x", 0, 9)) % 8, 63)]),
    ]
    assert verify(_function(*body)) == ElementPlaces(certain=3, unknown=2)
