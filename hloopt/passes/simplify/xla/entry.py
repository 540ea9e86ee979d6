"""What an entry of the list of XLA's rules says."""

from __future__ import annotations

from hloopt.dataclass import dataclass

__all__ = ["Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing XLA's algebraic simplifier does, and what hloopt does about it.

    number      its place in the list, from 1
    equation    what XLA rewrites, as an equation
    rules       equations of the rules of ``simplify`` that do it
    passes      names of other passes that do it
    reason      what is left out, and why; empty where rules or passes do all of it
    """

    number: int
    equation: str
    rules: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    reason: str = ""
