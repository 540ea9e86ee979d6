"""What stands in the Python function that the NumPy executor writes for a module, asked of its tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import hloopt
from hloopt.backends.numpy.program import NumpyProgram

__all__ = ["PythonCode"]

N = TypeVar("N", bound=ast.AST)


@dataclass(frozen=True)
class PythonCode:
    """A function's tree, and questions about it."""

    tree: ast.Module

    @classmethod
    def of(cls, text: str) -> PythonCode:
        """The function of a module's entry."""
        program = hloopt.compile(hloopt.parse(text))
        assert isinstance(program, NumpyProgram)
        return cls(ast.parse(program._entry.__doc__ or ""))

    def nodes(self, kind: type[N]) -> Iterator[N]:
        """All nodes of a class."""
        return (one for one in ast.walk(self.tree) if isinstance(one, kind))

    def methods(self, name: str) -> list[ast.Call]:
        """The calls of a method."""
        return [
            one
            for one in self.nodes(ast.Call)
            if isinstance(one.func, ast.Attribute) and one.func.attr == name
        ]

    def operators(self, kind: type[ast.operator]) -> list[ast.BinOp]:
        """The operations of two operands by a Python operator."""
        return [one for one in self.nodes(ast.BinOp) if isinstance(one.op, kind)]

    def steps(self) -> list[ast.Call]:
        """The calls of functions that were planned beforehand, ``k0`` and so on."""
        calls = self.nodes(ast.Call)
        return [
            one
            for one in calls
            if isinstance(one.func, ast.Name) and one.func.id.lstrip("k").isdigit()
        ]

    def keywords(self) -> list[str]:
        """The names of keyword arguments."""
        return [str(one.arg) for one in self.nodes(ast.keyword)]

    def assigned(self, target: type[ast.expr], value: type[ast.expr]) -> list[ast.Assign]:
        """The assignments of an expression of one class to a target of another."""
        return [
            one
            for one in self.nodes(ast.Assign)
            if isinstance(one.targets[0], target) and isinstance(one.value, value)
        ]

    def loop(self) -> PythonCode:
        """The body of the only loop over a range."""
        (found,) = self.nodes(ast.For)
        return PythonCode(ast.Module(found.body, []))

    def elements(self) -> list[ast.Subscript]:
        """The reads and writes of the one element of a scalar, ``[()]``."""
        return [one for one in self.nodes(ast.Subscript) if ast.unparse(one.slice) == "()"]

    def exits(self) -> list[ast.If]:
        """The conditions that end a loop."""
        return [one for one in self.nodes(ast.If) if isinstance(one.body[-1], ast.Break)]
