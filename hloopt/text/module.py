"""A module's header, tables and computations."""

from __future__ import annotations

import re
from typing import Any

from hloopt.ir import Computation, Module, edit
from hloopt.text.attributes import read_header_attribute
from hloopt.text.body import BodyReader
from hloopt.text.grammar import pattern, read, shape_of
from hloopt.text.problem import Problem, did_you_mean
from hloopt.text.records import (
    AttributeText,
    ComputationText,
    InstructionText,
    ModuleText,
    Token,
    integer,
)
from hloopt.text.scope import TextScope
from hloopt.types import Shape, compatible
from hloopt.types.strings import unquote

__all__ = ["ModuleReader"]

_FIELD = re.compile(r"([a-z_]+)=(-?[0-9]+)")  # the next one may follow without a blank


class ModuleReader:
    """Makes a module of what the grammar found in a text; ``body`` reads its instructions."""

    def __init__(self, body: BodyReader) -> None:
        self.body = body
        self.result = body.result
        self.strict = body.strict
        self.text = body.text

    # ---- a single instruction ----

    def single(self, items: list[Any]) -> Module:
        """A module for one instruction; what it needs and is written with its shape is a parameter."""
        module = self.result
        module.name = "_"
        module.attributes["is_scheduled"] = True
        computation = module.entry = Computation("_", 0)
        scope = TextScope(computation, items, 0, open=True)
        for number, (item, _, start) in enumerate(self.body.items(scope)):
            if number:
                at = (
                    item.name.begin
                    if type(item) is InstructionText
                    else start + item.start("target")
                )
                raise Problem(at, "a second instruction, and no computation around them")
        self.body.body(scope)
        edit.add_computation(module, computation)
        return module

    # ---- module ----

    def module(self, syntax: ModuleText) -> Module:
        module = self.result
        for entry in syntax.attributes:
            self.header_attribute(entry)
        self.tables(syntax)
        first = syntax.computations[0]
        if self.strict and syntax.name is None and not first.entry and first.result is not None:
            message = "XLA reads a computation with parameters first only after HloModule or ENTRY"
            raise Problem(first.name.begin, message, first.name)
        entry_seen = False
        for computation in syntax.computations:
            if computation.entry and entry_seen:
                raise Problem(computation.name.begin, "a second computation is marked ENTRY")
            built = self.computation(computation)
            if computation.entry or not entry_seen:
                module.entry = built
            entry_seen = entry_seen or computation.entry
        if syntax.name is None:
            module.name = f"module_{module.entry.name}"
        else:
            module.name = syntax.name.lstrip("%")
            self.body.check_word(module.name, syntax.name.end - len(module.name))
        return module

    def header_attribute(self, entry: AttributeText) -> None:
        attributes = self.result.attributes
        if entry.name in attributes:
            raise Problem(entry.offset, f"attribute {entry.name!r} is given twice", entry.name)
        value, unfamiliar = read_header_attribute(entry, self.text)
        if unfamiliar is not None:
            self.body.tolerate(unfamiliar)
        attributes[entry.name] = value

    def tables(self, syntax: ModuleText) -> None:
        tables = self.result.stack_tables
        for name, names in (
            ("FileNames", tables.file_names),
            ("FunctionNames", tables.function_names),
        ):
            for line in syntax.tables.get(name, ()):
                number, value = str(line).split(None, 1)
                names[integer(number, line.begin)] = unquote(value)
        for name, rows in (("FileLocations", tables.locations), ("StackFrames", tables.frames)):
            for line in syntax.tables.get(name, ()):
                number, _, rest = line.partition("{")
                rows[integer(number.strip(), line.begin)] = {
                    key: integer(value, line.begin) for key, value in _FIELD.findall(rest)
                }

    # ---- computation ----

    def computation(self, syntax: ComputationText) -> Computation:
        name = syntax.name.lstrip("%")
        if name in self.body.computations:
            raise Problem(
                syntax.name.begin,
                f"computation {name!r} is defined twice",
                syntax.name,
            )
        offset = syntax.name.end - len(name)
        self.body.check_word(name, offset)
        if self.strict and syntax.parameters is not None:
            self.check_signature(syntax.parameters)
        computation = Computation(name, offset)
        self.body.body(TextScope(computation, syntax.body, 0))
        self.check_result(computation, syntax.result)
        for entry in syntax.attributes:
            self.computation_attribute(computation, entry)
        edit.add_computation(self.result, computation)
        self.body.computations[name] = computation
        return computation

    def check_signature(self, parameters: Token) -> None:
        """The body repeats the parameters' shapes; only their syntax is checked here."""
        for found in pattern("PARAMETER").finditer(parameters):
            shape_of(found["shape_text"], parameters.begin + found.start("shape_text"))

    def check_result(self, computation: Computation, declared: Shape | None) -> None:
        """The shape given in front of the body is that of the root."""
        if declared is not None and not compatible(declared, computation.result_shape):
            raise Problem(
                computation.offset,
                f"computation {computation.name!r} is declared to give {declared}, its root has shape "
                f"{computation.result_shape}",
                computation.name,
            )

    def computation_attribute(self, computation: Computation, entry: AttributeText) -> None:
        if entry.name != "execution_thread":
            raise Problem(
                entry.offset,
                f"a computation has no attribute {entry.name!r}"
                f"{did_you_mean(entry.name, ['execution_thread'])}",
                entry.name,
            )
        thread = read("string", self.text[entry.start : entry.end], entry.start)
        computation.execution_thread = str(thread)
