"""Names that no instruction of a module has, as XLA gives them."""

from __future__ import annotations

from hloopt.ir import Module

__all__ = ["ModuleNames", "name_number", "name_stem"]


class ModuleNames:
    """The names of all instructions of a module.

    A name is unique in its computation here, in its module in XLA: what a profile of XLA calls
    ``loop_add_fusion.3`` is to be called so here.  Costs are those of the names, once.
    """

    def __init__(self, module: Module) -> None:
        self._used = {instruction.name for instruction in module.instructions()}
        self._serial: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        """``base``, or ``base.N`` with the least unused N; from then on it is used."""
        name, number = base, self._serial.get(base, 1)
        while name in self._used:
            name = f"{base}.{number}"
            number += 1
        self._serial[base] = number
        self._used.add(name)
        return name


def name_stem(name: str) -> str:
    """``base`` of ``base.N``; the whole name where it ends otherwise."""
    stem, _, digits = name.rpartition(".")
    return stem if stem and digits.isdecimal() else name


def name_number(name: str) -> int:
    """The N of ``base.N``; 0 where the name ends otherwise."""
    stem = name_stem(name)
    return int(name[len(stem) + 1 :]) if stem != name else 0
