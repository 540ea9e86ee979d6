"""What the module's header says: device counts, the entry's layout, aliases, donors, stack tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeGuard

from hloopt.ir import Module
from hloopt.ir.module import StackTables
from hloopt.ops.shapes import braces
from hloopt.types import AliasEntry, ArrayShape, Shape, compatible
from hloopt.verifier.constraints import Fault
from hloopt.verifier.readings import part_of

__all__ = ["header_faults"]

_Parameters = tuple[Shape, ...]


def header_faults(module: Module) -> Iterator[Fault]:
    """Counts are positive; layout, aliases and donors name parameters and results that exist."""
    for name in ("replica_count", "num_partitions"):
        count = module.attributes.get(name, 1)
        if not isinstance(count, int) or count < 1:
            yield Fault(module, "device-count", f"{name}={count} is not a positive number")
    if any(caller.opcode == "fusion" for caller in module.entry.callers):
        yield Fault(module, "entry", f"the entry %{module.entry.name} is the body of a fusion")
    parameters = module.entry.parameter_shapes
    result = module.entry.result_shape
    layout = module.attributes.get("entry_computation_layout")
    if layout is not None:
        faults = list(_layout_faults(module, layout, parameters, result))
        yield from faults
        if not faults:
            # Layouts and memory spaces of the entry are those of the header.
            parameters, result = layout
    yield from _alias_faults(module, parameters, result)
    yield from _donor_faults(module, parameters)
    for message in _table_messages(module.stack_tables):
        yield Fault(module, "stack-frame", message)


def _layout_faults(
    module: Module, layout: tuple[_Parameters, Shape], parameters: _Parameters, result: Shape
) -> Iterator[Fault]:
    written, returned = layout
    if len(written) != len(parameters):
        yield Fault(
            module,
            "entry-layout",
            f"entry_computation_layout has {len(written)} parameters, the entry has "
            f"{len(parameters)}",
        )
        return
    for number, (shape, parameter) in enumerate(zip(written, parameters, strict=True)):
        if not compatible(shape, parameter):
            yield Fault(
                module,
                "entry-layout",
                f"entry_computation_layout gives parameter {number} the shape {shape}, it has "
                f"{parameter}",
            )
    if not compatible(returned, result):
        yield Fault(
            module,
            "entry-layout",
            f"entry_computation_layout gives the result the shape {returned}, it has {result}",
        )


# ---- aliases ----------------------------------------------------------------------------------------


def _alias_faults(module: Module, parameters: _Parameters, result: Shape) -> Iterator[Fault]:
    taken: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
    outputs: set[tuple[int, ...]] = set()
    for entry in module.attributes.get("input_output_alias", ()):
        place = (entry.parameter, entry.parameter_index)
        message = _alias_message(entry, parameters, result)
        if not message and entry.output_index in outputs:
            message = f"{braces(entry.output_index)} of the result is aliased twice"
        if not message and place in taken:
            message = (
                f"{braces(entry.parameter_index)} of parameter {entry.parameter} is aliased with "
                f"{braces(taken[place])} and with {braces(entry.output_index)}"
            )
        taken[place] = entry.output_index
        outputs.add(entry.output_index)
        if message:
            yield Fault(module, "alias", f"input_output_alias: {message}")


def _alias_message(entry: AliasEntry, parameters: _Parameters, result: Shape) -> str:
    output = part_of(result, entry.output_index)
    if output is None:
        return f"{braces(entry.output_index)} is not in the result {result}"
    message = _parameter_message(parameters, entry.parameter, entry.parameter_index)
    if message:
        return message
    given = part_of(parameters[entry.parameter], entry.parameter_index)
    if not _is_array(output) or not _is_array(given):
        return (
            f"{braces(entry.output_index)} of the result is {output}, {_shown(entry)} is {given}; "
            "both must be arrays"
        )
    if entry.kind == "must-alias" and output != given and _says_layout(output, given):
        return (
            f"{braces(entry.output_index)} of the result is {output}, {_shown(entry)} is {given}; "
            "must-alias needs equal shapes and layouts"
        )
    if output.byte_size != given.byte_size:
        return (
            f"{braces(entry.output_index)} of the result has {output.byte_size} bytes, "
            f"{_shown(entry)} has {given.byte_size}"
        )
    return ""


def _shown(entry: AliasEntry) -> str:
    return f"{braces(entry.parameter_index)} of parameter {entry.parameter}"


def _says_layout(*shapes: Shape | None) -> bool:
    return all(isinstance(shape, ArrayShape) and shape.layout is not None for shape in shapes)


def _donor_faults(module: Module, parameters: _Parameters) -> Iterator[Fault]:
    aliased = {
        (entry.parameter, entry.parameter_index)
        for entry in module.attributes.get("input_output_alias", ())
    }
    for number, index in module.attributes.get("buffer_donor", ()):
        message = _parameter_message(parameters, number, index)
        if not message and not _is_array(part_of(parameters[number], index)):
            message = f"{braces(index)} of parameter {number} is not an array"
        if not message and (number, index) in aliased:
            message = f"{braces(index)} of parameter {number} is aliased with a result"
        if message:
            yield Fault(module, "donor", f"buffer_donor: {message}")


def _is_array(shape: Shape | None) -> TypeGuard[ArrayShape]:
    return isinstance(shape, ArrayShape) and shape.dtype.is_array


def _parameter_message(parameters: _Parameters, number: int, index: tuple[int, ...]) -> str:
    if not 0 <= number < len(parameters):
        return f"there is no parameter {number} among {len(parameters)}"
    if part_of(parameters[number], index) is None:
        return f"{braces(index)} is not in parameter {number} of shape {parameters[number]}"
    return ""


# ---- stack tables -----------------------------------------------------------------------------------


def _table_messages(tables: StackTables) -> Iterator[str]:
    """Rows name rows that exist; 0 stands for none, and an outermost frame may be its own parent."""
    for number, row in tables.locations.items():
        yield from _missing(number, row, "file_name_id", tables.file_names)
        yield from _missing(number, row, "function_name_id", tables.function_names)
    for number, row in tables.frames.items():
        yield from _missing(number, row, "file_location_id", tables.locations)
        yield from _missing(number, row, "parent_frame_id", tables.frames)


_TABLES = {
    "file_name_id": ("FileLocations", "FileNames"),
    "function_name_id": ("FileLocations", "FunctionNames"),
    "file_location_id": ("StackFrames", "FileLocations"),
    "parent_frame_id": ("StackFrames", "StackFrames"),
}


def _missing(
    number: int, row: Mapping[str, int], field: str, rows: Mapping[int, object]
) -> Iterator[str]:
    named = row.get(field, 0)
    if named and named not in rows:
        table, other = _TABLES[field]
        yield f"{table} {number}: {field}={named} is not a row of {other}"
