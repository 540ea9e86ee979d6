"""The list of ops that are planned, beside the modules that plan them."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from hloopt.backends import numpy
from hloopt.backends.numpy.emitters import EMITTERS, PLANNED
from hloopt.ops import OPS


def test_the_list_names_what_the_modules_hold() -> None:
    """All of it and nothing else, and no op twice."""
    modules = {
        info.name: import_module(f"hloopt.backends.numpy.{info.name}")
        for info in iter_modules(numpy.__path__)
    }
    tables = {name: getattr(module, "EMITTERS", {}) for name, module in modules.items()}
    held = {name: set(table) for name, table in tables.items() if table is not EMITTERS}
    listed = {module: set(opcodes) for module, opcodes in PLANNED.items()}
    assert listed == {module: opcodes for module, opcodes in held.items() if opcodes}
    assert sum(map(len, listed.values())) == len(EMITTERS) == len(set(EMITTERS))


def test_only_ops_of_the_table_are_planned() -> None:
    """Others are nobody's."""
    assert set(EMITTERS) <= set(OPS)
    assert EMITTERS.get("add") is None
    assert EMITTERS["dot"] is import_module("hloopt.backends.numpy.dot").EMITTERS["dot"]
