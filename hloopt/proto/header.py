"""What a module says of itself: the attributes of the text's header, and the stack tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hloopt.ir import Module
from hloopt.proto import within
from hloopt.proto.annotations import read_array, read_frontend
from hloopt.proto.entry import Reading
from hloopt.proto.messages import decode, text
from hloopt.proto.schema import named
from hloopt.proto.words import ALIAS_KINDS, word_of
from hloopt.types import AliasEntry, Recovery, Shape, Verbatim

__all__ = ["read_header"]

# Fields the reader sees to elsewhere, and those that say nothing about what the module computes: its
# numbers, and the devices of one run, which XLA's own texts leave out without a word.
_SEEN = frozenset(
    (
        *("name", "entry_computation_name", "entry_computation_id", "computations", "id"),
        *("host_program_shape", "schedule", "input_output_alias", "payloads", "buffer_donor"),
        *("stack_frame_index", "frontend_attributes", "original_value_recovery_table", "pjrt_id"),
        "device_assignment",
    )
)


def read_header(
    proto: Any, module: Module, reading: Reading, read_module: Callable[[bytes, str], Module]
) -> None:
    """Fill in ``module.attributes`` and ``module.stack_tables``; raises ``Problem``.

    ``read_module`` is the reader of modules, for those inside the header.
    """
    attributes = module.attributes
    if proto.HasField("schedule"):
        attributes["is_scheduled"] = True
    aliases = tuple(
        AliasEntry(
            tuple(entry.output_shape_index),
            entry.parameter_number,
            tuple(entry.parameter_shape_index),
            word_of(ALIAS_KINDS, entry.kind, "input_output_alias.kind"),
        )
        for entry in proto.input_output_alias.entries
    )
    if aliases:
        attributes["input_output_alias"] = aliases
    donors = tuple(
        (entry.parameter_number, tuple(entry.parameter_shape_index))
        for entry in proto.buffer_donor.entries
    )
    if donors:
        attributes["buffer_donor"] = donors
    if proto.HasField("host_program_shape"):
        attributes["entry_computation_layout"] = _layout(proto.host_program_shape, reading)
    frontend = read_frontend(proto.frontend_attributes)
    if frontend is not None:
        attributes["frontend_attributes"] = frontend
    if proto.original_value_recovery_table.entries:
        attributes["origin_recovery_table"] = _recovery(
            proto.original_value_recovery_table, read_module
        )
    _stack_tables(proto.stack_frame_index, module)
    for field, value in proto.ListFields():
        if field.name not in _SEEN and value:
            reading.warnings.append(
                f"the module has a field {field.name}, which has no text form; it is left out"
            )


def _layout(data: bytes, reading: Reading) -> tuple[tuple[Shape, ...], Shape]:
    with within("host_program_shape"):
        proto = decode("ProgramShape", data, reading.warnings)
        parameters = tuple(reading.shapes.read(part) for part in proto.parameters)
        return parameters, reading.shapes.read(proto.result)


def _recovery(proto: Any, read_module: Callable[[bytes, str], Module]) -> Verbatim:
    """Pairs of arrays, and the module that makes the first of the second where they differ."""
    from hloopt.text.printer import print_module

    found = tuple(
        Recovery(
            read_array(entry.old_original_array),
            read_array(entry.new_original_array),
            print_module(read_module(entry.recovery_module, "recovery_module"))
            if entry.recovery_module
            else "",
        )
        for entry in proto.entries
    )
    return Verbatim("{\n" + "".join(f"  {entry}\n" for entry in found) + "}", found)


def _stack_tables(proto: Any, module: Module) -> None:
    tables = module.stack_tables
    for names, found in (
        (tables.file_names, proto.file_names),
        (tables.function_names, proto.function_names),
    ):
        names.update((number, text(value)) for number, value in enumerate(found, 1))
    for number, row in enumerate(proto.file_locations, 1):
        tables.locations[number] = {name: getattr(row, name) for name in named("FileLocation")}
    for number, frame in enumerate(proto.stack_frames, 1):
        # The text counts parents from 1 for the outermost, which has none.
        tables.frames[number] = {
            "file_location_id": frame.file_location_id,
            "parent_frame_id": frame.parent_frame_id + 1,
        }
