"""A module to a ``HloModuleProto``."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from hloopt.errors import UnsupportedError
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ops.traits import op_table
from hloopt.proto import ProtoProblem
from hloopt.proto.annotations import write_array, write_frontend, write_metadata
from hloopt.proto.attributes import rows_by_name
from hloopt.proto.calls import called_by
from hloopt.proto.entry import ProtoTarget, Writing, said
from hloopt.proto.messages import encoded, new, text
from hloopt.proto.words import ALIAS_KINDS, number_of
from hloopt.types import Shape, Verbatim, attribute_name

__all__ = ["module_proto", "write_entry_over"]

# XLA numbers the instructions of a computation in the lower half of an id, computations in the upper.
_COMPUTATION = 32
# Messages that XLA wants to be there, even when they say nothing.
_ALWAYS = op_table(
    {
        "convolution": ("window", "convolution_dimension_numbers"),
        "dot": ("dot_dimension_numbers",),
        "reduce-window": ("window",),
        "select-and-scatter": ("window",),
    },
    otherwise="none",
)
# What XLA takes for an attribute that is not there, where that is not the field's zero.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "custom-call": {"api_version": "API_VERSION_ORIGINAL"},
    "triangular-solve": {"transpose_a": "NO_TRANSPOSE"},
    "compare": {"type": None},
}


def module_proto(module: Module) -> Any:
    """The module as a ``HloModuleProto``.

    As XLA's own parser does, it names instructions differently where two computations use one name, and
    gives shapes without a layout the usual one.

    What a text's header says and XLA keeps in its configuration (``num_partitions`` and the like) is left
    out, as XLA leaves it out.  Raises ``UnsupportedError`` with the place of an instruction that has no
    form in a proto.
    """
    return _ModuleWriter(module).proto()


def write_entry_over(
    proto: Any, module: Module, callees: Mapping[str, int], names: set[str]
) -> None:
    """Put a module's entry in the place of a computation of another module.

    ``proto`` is the message of that computation, which keeps its id; ``callees`` has those of others by name.
    ``names`` are all names of instructions in the other module; new ones differ from them, and join them.
    Raises as ``module_proto``.
    """
    writer, own = _ModuleWriter(module), {text(one.name) for one in proto.instructions}
    writer.computations = {
        one: proto.id if one is module.entry else callees[one.name] for one in module
    }
    for instruction in module.entry:
        name = stem = writer.names[instruction]
        serial = count(1)
        while name in names and name not in own:
            name = f"{stem}.{next(serial)}"
        own.discard(name)
        names.add(name)
        writer.names[instruction] = name
    del proto.instructions[:]
    writer.computation(module.entry, proto)


class _ModuleWriter:
    """Numbers for computations and instructions, and what several of them share."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.writing = Writing()
        self.computations: dict[Computation, int] = {}
        self.instructions: dict[Instruction, int] = {}
        self.names = _unique_names(module)

    def proto(self) -> Any:
        module, proto = self.module, new("Module")
        proto.name = encoded(module.name)
        ordered = walk.callees_first(module)
        fused = {
            callee
            for instruction in module.instructions()
            if instruction.opcode == "fusion"
            for callee in walk.called_computations(instruction)
        }
        for number, computation in enumerate(ordered, 1):
            self.computations[computation] = number
            made = proto.computations.add(is_fusion_computation=computation in fused)
            self.computation(computation, made)
        proto.entry_computation_name = encoded(module.entry.name)
        proto.entry_computation_id = self.computations[module.entry]
        try:
            self.header(proto)
        except ProtoProblem as problem:
            raise UnsupportedError(str(problem), name=_name(module)) from None
        if module.attributes.get("is_scheduled"):
            proto.schedule.SetInParent()
            for computation in ordered:
                if computation not in fused:
                    ids = [self.instructions[instruction] for instruction in computation]
                    proto.schedule.sequences.add(
                        key=self.computations[computation], value={"instruction_ids": ids}
                    )
        return proto

    # ---- header ----

    def header(self, proto: Any) -> None:
        attributes, entry = self.module.attributes, self.module.entry
        parameters, result = attributes.get(
            "entry_computation_layout", (entry.parameter_shapes, entry.result_shape)
        )
        names = [self.names[parameter] for parameter in entry.parameters]
        proto.host_program_shape = self.program_shape(parameters, result, names)
        for alias in attributes.get("input_output_alias", ()):
            proto.input_output_alias.entries.add(
                output_shape_index=alias.output_index,
                parameter_number=alias.parameter,
                parameter_shape_index=alias.parameter_index,
                # The text's default; in a proto no word at all is no alias.
                kind=number_of(ALIAS_KINDS, alias.kind or "may-alias"),
            )
        for number, index in attributes.get("buffer_donor", ()):
            proto.buffer_donor.entries.add(parameter_number=number, parameter_shape_index=index)
        if "frontend_attributes" in attributes:
            write_frontend(proto.frontend_attributes, attributes["frontend_attributes"])
        if "origin_recovery_table" in attributes:
            table = attributes["origin_recovery_table"]
            write_recovery(proto.original_value_recovery_table, table)
        self.stack_tables(proto)

    def program_shape(
        self, parameters: tuple[Shape, ...], result: Shape, names: list[str]
    ) -> bytes:
        proto = new("ProgramShape")
        proto.parameters.extend([self.writing.shapes.write(shape) for shape in parameters])
        proto.result = self.writing.shapes.write(result)
        proto.parameter_names.extend(map(encoded, names))
        data: bytes = proto.SerializeToString()
        return data

    def stack_tables(self, proto: Any) -> None:
        tables = self.module.stack_tables
        if not tables:
            return
        index = proto.stack_frame_index
        for names, field in (
            (tables.file_names, index.file_names),
            (tables.function_names, index.function_names),
        ):
            field.extend(encoded(names.get(number, "")) for number in _dense(names))
        for number in _dense(tables.locations):
            index.file_locations.add(**tables.locations.get(number, {}))
        for number in _dense(tables.frames):
            row = tables.frames.get(number, {})
            # The text counts parents from 1 for the outermost, which has none.
            index.stack_frames.add(
                file_location_id=row.get("file_location_id", 0),
                parent_frame_id=max(row.get("parent_frame_id", 1) - 1, 0),
            )

    # ---- computations ----

    def computation(self, computation: Computation, proto: Any) -> None:
        number = self.computations[computation]
        proto.name = encoded(computation.name)
        proto.id = number
        for serial, instruction in enumerate(computation, 1):
            self.instructions[instruction] = number << _COMPUTATION | serial
            made = proto.instructions.add()
            try:
                self.instruction(instruction, made)
            except ProtoProblem as problem:
                raise self.error(instruction, problem) from None
        proto.root_id = self.instructions[computation.root]
        names = [self.names[parameter] for parameter in computation.parameters]
        proto.program_shape = self.program_shape(
            computation.parameter_shapes, computation.result_shape, names
        )
        proto.execution_thread = encoded(computation.execution_thread or "main")

    def instruction(self, instruction: Instruction, proto: Any) -> None:
        proto.name = encoded(self.names[instruction])
        proto.opcode = encoded(instruction.opcode)
        proto.shape = self.writing.shapes.write(instruction.shape)
        proto.id = self.instructions[instruction]
        proto.operand_ids.extend([self.instructions[part] for part in instruction.operands])
        if instruction.control_predecessors:
            before = [self.instructions[part] for part in instruction.control_predecessors]
            proto.control_predecessor_ids.extend(before)
        if instruction.metadata is not None:
            proto.metadata = self.writing.once(write_metadata, instruction.metadata)
        for field in _ALWAYS.get(instruction.opcode, ()):
            setattr(proto, field, b"")
        if instruction.opcode == "outfeed" and instruction.operands:
            proto.outfeed_shape = self.writing.shapes.write(instruction.operands[0].shape)
        attributes = instruction.attributes
        defaults = _DEFAULTS.get(instruction.opcode)
        if defaults is not None:
            attributes = {**defaults, **attributes}
        if not attributes:
            return
        called = called_by(instruction.opcode, attributes)
        proto.called_computation_ids.extend([self.computations[part] for part in called])
        calls = walk.calls_by_attribute(instruction) if called else {}
        rows = rows_by_name(instruction.opcode)
        target = ProtoTarget(self.writing, instruction, proto)
        for name, value in attributes.items():
            if name in calls:
                continue
            if name not in rows:
                spelled = attribute_name(name)
                raise ProtoProblem(
                    f"{instruction.opcode} has no field for {spelled} in a protocol buffer"
                )
            rows[name].write(target, value)
        target.finish()

    def error(self, instruction: Instruction, problem: ProtoProblem) -> UnsupportedError:
        source = self.module.source
        if source is not None and instruction.offset >= 0:
            return source.error(UnsupportedError, instruction.offset, str(problem))
        return UnsupportedError(f"%{instruction.name}: {problem}", name=_name(self.module))


def _unique_names(module: Module) -> dict[Instruction, str]:
    """Names that no two instructions of the module have, as XLA wants them; the entry's stay."""
    used: set[str] = set()
    serial: dict[str, int] = {}
    found: dict[Instruction, str] = {}
    for computation in sorted(module, key=lambda entry: entry is not module.entry):
        for instruction in computation:
            name = instruction.name
            if name in used:
                stem, dot, digits = name.rpartition(".")
                stem = stem if dot and digits.isdigit() else name
                number = serial.get(stem, 1)
                while (name := f"{stem}.{number}") in used:
                    number += 1
                serial[stem] = number + 1
            used.add(name)
            found[instruction] = name
    return found


def write_recovery(proto: Any, value: Verbatim) -> None:
    """``{ {"a"} : {"b"}, "HloModule ..." ... }`` into an ``OriginalValueRecoveryTable``."""
    from hloopt.text.parser import parse_module

    for row in said("origin_recovery_table", value, tuple):
        entry = proto.entries.add()
        entry.SetInParent()
        write_array(entry.old_original_array, row.old)
        write_array(entry.new_original_array, row.new)
        if row.module:
            module = parse_module(row.module, "recovery_module")
            entry.recovery_module = module_proto(module).SerializeToString()


def _name(module: Module) -> str:
    return module.source.name if module.source is not None else module.name


def _dense(rows: dict[int, Any]) -> range:
    return range(1, max(rows, default=0) + 1)
