"""An expression and a statement of each kind."""

from __future__ import annotations

from hloopt.analysis.index import Index
from hloopt.kernel_ir import expressions, statements
from hloopt.kernel_ir.expressions import Address, Array, Element, Expr, as_expr
from hloopt.kernel_ir.types import BOOL, FLOAT, INT

__all__ = ["EXPRESSIONS", "STATEMENTS", "E", "P", "X"]

P = Array("p", FLOAT, (8,), "global")
X = expressions.Var("x", INT)
E = Element(P, (X,))

EXPRESSIONS: dict[type, Expr] = {
    expressions.Var: X,
    expressions.Number: expressions.TRUE,
    expressions.IndexValue: as_expr(Index(3)),
    expressions.Unary: -X,
    expressions.Binary: X + 1,
    expressions.Select: expressions.Select.of(X < 1, X, 2),
    expressions.Cast: X.cast(FLOAT),
    expressions.Call: expressions.Call("f", (X,), INT),
    expressions.Member: X.member("re", FLOAT),
    expressions.Make: expressions.Make(BOOL, (X,)),
    expressions.Element: E,
    expressions.Address: Address(E),
    expressions.ArrayValue: expressions.ArrayValue(P),
}

STATEMENTS: dict[type, statements.Statement] = {
    statements.Let: statements.Let(X, X),
    statements.Declare: statements.Declare(X, (X,)),
    statements.Set: statements.Set(E, X),
    statements.Do: statements.Do(EXPRESSIONS[expressions.Call]),
    statements.Barrier: statements.Barrier(),
    statements.Agree: statements.Agree(X, X < 1),
    statements.Break: statements.Break(),
    statements.Return: statements.Return(),
    statements.Copy: statements.Copy(Address(E), Address(E), 4),
    statements.Commit: statements.Commit(),
    statements.Wait: statements.Wait(),
    statements.LoadMatrices: statements.LoadMatrices((X,), Address(E)),
    statements.MultiplyMatrices: statements.MultiplyMatrices("m8n8k4.f64", (X, E), (X,), (X,)),
    statements.For: statements.For(X, as_expr(0), as_expr(8), ()),
    statements.While: statements.While(expressions.TRUE, ()),
    statements.If: statements.If(X < 1, (), (statements.Break(),)),
    statements.Block: statements.Block(()),
}
