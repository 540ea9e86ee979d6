"""Kernels with some statements changed, as mistakes are planted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from hloopt.kernel_ir.statements import Body, For, Statement, mapped

__all__ = ["Change", "changed"]

Change: TypeAlias = Callable[[Statement, bool], "Sequence[Statement] | None"]
"""What stands in place of a statement, which may be in a loop; None leaves it as it is."""


def changed(body: Body, change: Change, *, in_loop: bool = False) -> Body:
    """Statements with those that ``change`` names replaced."""
    made: list[Statement] = []
    for statement in body:
        found = change(statement, in_loop)
        if found is not None:
            made += found
            continue
        inside = in_loop or (isinstance(statement, For) and statement.unroll is None)
        inner = lambda one, inside=inside: changed(one, change, in_loop=inside)  # noqa: E731
        made.append(mapped(statement, lambda one: one, inner))
    return tuple(made)
