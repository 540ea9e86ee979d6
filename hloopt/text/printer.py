"""A module as HLO text that XLA's parser reads back, laid out as XLA lays it out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.canonical import canonical
from hloopt.ir.normal import DEBUGGING, without_metadata
from hloopt.ir.walk import callees_first
from hloopt.text.numbers import literal_text
from hloopt.types import (
    AliasEntry,
    ArrayShape,
    BufferShape,
    ConvDims,
    Literal,
    PaddingDim,
    Shape,
    SliceRange,
    Text,
    TupleShape,
    Verbatim,
    Window,
    attribute_name,
    without_layout,
)
from hloopt.types.strings import quote

__all__ = [
    "PrintOptions",
    "header_text",
    "print_instruction",
    "print_module",
    "value_text",
]


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """What is printed of a module; any choice can be read back.

    metadata    metadata, stack tables, and the other attributes that serve debugging only (``origin``,
                ``statistics`` and the like); without it a sharding has no metadata in it, either
    layouts     layouts of shapes; without it, neither the entry's layout nor layout constraints of custom
                calls: a reader takes the usual layouts
    canonical   the canonical form, in which equal modules are the same text (see ``ir.canonical``)
    """

    metadata: bool = True
    layouts: bool = True
    canonical: bool = False


_ALL = PrintOptions()
_ARGUMENTS = frozenset(("literal", "parameter_number"))
_WITH_ARGUMENTS = frozenset(("constant", "parameter"))
_SHARDINGS = frozenset(("sharding", "domain"))
_LAYOUTS_ONLY = frozenset(("entry_computation_layout", "operand_layout_constraints"))


def print_module(module: Module, options: PrintOptions = _ALL) -> str:
    """Complete HLO text: header, stack tables, computations, each after those it calls."""
    if options.canonical:
        module, options = canonical(module), replace(options, metadata=False, canonical=False)
    printer = _Printer(options)
    tables = _tables(module) if options.metadata else []
    parts = [printer.header(module), *tables, *([""] if tables else [])]
    parts += [printer.computation(computation) for computation in callees_first(module)]
    return "\n".join(parts) + "\n"


def print_instruction(instruction: Instruction, options: PrintOptions = _ALL) -> str:
    """One instruction on one line, without indentation or line end."""
    mark = "ROOT " if instruction.is_root else ""
    return mark + _Printer(options).instruction(instruction)


class _Printer:
    """Prints with one set of options, while nothing changes.

    Shapes and values are shared by many instructions: their texts are kept by identity.
    """

    def __init__(self, options: PrintOptions) -> None:
        self.metadata = options.metadata
        self.layouts = options.layouts
        hidden = frozenset() if options.metadata else DEBUGGING
        self.hidden = hidden if options.layouts else hidden | _LAYOUTS_ONLY
        self.texts: dict[int, str] = {}

    def instruction(self, instruction: Instruction) -> str:
        """One instruction, without indentation or line end."""
        texts, opcode, shape = self.texts, instruction.opcode, instruction.shape
        shown = texts.get(id(shape))
        if shown is None:
            shown = texts[id(shape)] = str(shape) if self.layouts else _logical_text(shape)
        operands = instruction.operands
        if not operands:
            arguments = _no_operands(instruction)
        elif len(operands) == 1:
            arguments = "%" + operands[0].name
        elif len(operands) <= 5:
            arguments = ", ".join(["%" + operand.name for operand in operands])
        else:
            arguments = _indexed("%" + operand.name for operand in operands)
        text = f"%{instruction.name} = {shown} {opcode}({arguments})"
        last = ""
        for name, value in instruction.attributes.items():
            if name in self.hidden or (name in _ARGUMENTS and opcode in _WITH_ARGUMENTS):
                continue
            written = texts.get(id(value))
            if written is None:
                written = texts[id(value)] = self.value(name, value)
            if name == "backend_config":
                last = f", backend_config={written}"
            else:
                text = f"{text}, {attribute_name(name)}={written}"
        if instruction.control_predecessors:
            names = ", ".join(f"%{before.name}" for before in instruction.control_predecessors)
            text = f"{text}, control-predecessors={{{names}}}"
        if instruction.metadata is not None and self.metadata:
            text = f"{text}, metadata={instruction.metadata.text}"
        return text + last

    def value(self, name: str, value: Any) -> str:
        """The value of an instruction's attribute."""
        if not self.layouts and isinstance(value, (ArrayShape, TupleShape, BufferShape)):
            return _logical_text(value)
        if not self.metadata and name in _SHARDINGS and isinstance(value, Verbatim):
            return without_metadata(value)
        return value_text(value)

    def computation(self, computation: Computation) -> str:
        """One computation and the end of its last line."""
        module, root = computation.module, computation.root
        mark = "ENTRY " if module is not None and module.entry is computation else ""
        parameters = ", ".join(
            f"{parameter.name}: {_logical_text(parameter.shape)}"
            for parameter in computation.parameters
        )
        result = _logical_text(computation.result_shape)
        lines = [f"{mark}%{computation.name} ({parameters}) -> {result} {{"]
        for instruction in computation:
            indent = "  ROOT " if instruction is root else "  "
            lines.append(indent + self.instruction(instruction))
        thread = computation.execution_thread
        lines.append("}" if thread is None else f"}}, execution_thread={quote(thread)}")
        return "\n".join(lines) + "\n"

    def header(self, module: Module) -> str:
        """The first line and an empty one."""
        parts = [f"HloModule {module.name}"]
        for name, value in module.attributes.items():
            if name not in self.hidden:
                parts.append(f"{name}={header_text(name, value)}")
        return ", ".join(parts) + "\n"


def _no_operands(instruction: Instruction) -> str:
    if instruction.opcode == "parameter":
        return str(instruction.parameter_number)
    literal = instruction.literal
    return "" if literal is None else literal_text(literal)


def _indexed(items: Iterable[str]) -> str:
    return ", ".join(
        f"/*index={index}*/{item}" if index and index % 5 == 0 else item
        for index, item in enumerate(items)
    )


# ---- header and tables -------------------------------------------------------------------------------


def header_text(name: str, value: Any) -> str:
    """The value of an attribute of the header."""
    if name == "entry_computation_layout":
        parameters, result = value
        return f"{{({_indexed(map(str, parameters))})->{result}}}"
    if name == "input_output_alias":
        return f"{{ {', '.join(map(_alias, value))} }}"
    if name == "buffer_donor":
        entries = (f"({number}, {_braces(index)})" for number, index in value)
        return f"{{ {', '.join(entries)} }}"
    if isinstance(value, tuple):
        return f"{{{','.join('true' if flag else 'false' for flag in value)}}}"
    return value_text(value)


def _alias(entry: AliasEntry) -> str:
    kind = f", {entry.kind}" if entry.kind else ""
    index = ", ".join(map(str, entry.parameter_index))
    return f"{_braces(entry.output_index)}: ({entry.parameter}, {{{index}}}{kind})"


def _braces(index: tuple[int, ...]) -> str:
    return f"{{{', '.join(map(str, index))}}}"


def _tables(module: Module) -> list[str]:
    tables = module.stack_tables
    parts = []
    for name, names in (("FileNames", tables.file_names), ("FunctionNames", tables.function_names)):
        if names:
            rows = [f"{number} {quote(value)}" for number, value in names.items()]
            parts.append("\n".join([name, *rows]) + "\n")
    for name, table in (("FileLocations", tables.locations), ("StackFrames", tables.frames)):
        if table:
            rows = [
                f"{number} {{{' '.join(f'{key}={value}' for key, value in fields.items())}}}"
                for number, fields in table.items()
            ]
            parts.append("\n".join([name, *rows]) + "\n")
    return parts


@lru_cache(maxsize=10_000)
def _logical_text(shape: Shape) -> str:
    return str(without_layout(shape))


# ---- values -----------------------------------------------------------------------------------------


def value_text(value: Any) -> str:
    """The value of an instruction's attribute."""
    kind = type(value)
    if kind is tuple:
        return _tuple_text(value)
    if kind is Computation:
        return f"%{value.name}"
    if kind is bool:
        return "true" if value else "false"
    if kind is Text:
        return quote(value)
    if kind is Window:
        return _window_text(value)
    if kind is Literal:
        return _shaped_literal(value)
    if kind is ConvDims:
        return str(value.text)
    return str(value)


def _tuple_text(values: tuple[Any, ...]) -> str:
    if values and isinstance(values[0], Computation):
        return f"{{{', '.join(f'%{value.name}' for value in values)}}}"
    return _frozen_tuple_text(values)


@lru_cache(maxsize=10_000, typed=True)
def _frozen_tuple_text(values: tuple[Any, ...]) -> str:
    if not values:
        return "{}"
    first = values[0]
    if isinstance(first, PaddingDim):
        interior = any(dim.interior for dim in values)
        return "x".join(
            f"{dim.low}_{dim.high}_{dim.interior}" if interior else f"{dim.low}_{dim.high}"
            for dim in values
        )
    if isinstance(first, SliceRange):
        strides = any(part.stride != 1 for part in values)
        ranges = (
            f"[{part.start}:{part.limit}:{part.stride}]"
            if strides
            else f"[{part.start}:{part.limit}]"
            for part in values
        )
        return f"{{{', '.join(ranges)}}}"
    if isinstance(first, (ArrayShape, TupleShape, BufferShape)):
        return f"{{{', '.join(map(str, values))}}}"
    return f"{{{','.join(map(value_text, values))}}}"


@lru_cache(maxsize=10_000)
def _window_text(window: Window) -> str:
    dims = window.dims
    fields = [("size", "x".join(str(dim.size) for dim in dims), True)]
    for name, texts, default in (
        ("stride", [str(dim.stride) for dim in dims], "1"),
        ("pad", [f"{dim.pad_low}_{dim.pad_high}" for dim in dims], "0_0"),
        ("lhs_dilate", [str(dim.base_dilation) for dim in dims], "1"),
        ("rhs_dilate", [str(dim.window_dilation) for dim in dims], "1"),
        ("rhs_reversal", [str(int(dim.reversal)) for dim in dims], "0"),
    ):
        fields.append((name, "x".join(texts), any(text != default for text in texts)))
    return f"{{{' '.join(f'{name}={text}' for name, text, shown in fields if shown and dims)}}}"


def _shaped_literal(literal: Literal) -> str:
    # A tuple's elements have their shapes with them, the tuple has none.
    if isinstance(literal.shape, TupleShape) and not literal.elided:
        parts = list(map(_shaped_literal, literal.elements))
        return f"( {', '.join(parts)} )" if parts else "()"
    return f"{_with_layout(literal.shape)} {literal_text(literal)}"


def _with_layout(shape: Shape) -> str:
    # An array literal's "{" would be taken for a layout where none is written.
    if isinstance(shape, ArrayShape) and shape.layout is None:
        return f"{shape}{{{','.join(map(str, range(shape.rank - 1, -1, -1)))}}}"
    return str(shape)
