"""A ``HloModuleProto`` to a module."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hloopt.dataclass import dataclass
from hloopt.errors import ParseError
from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.ir.build import no_collection
from hloopt.ops import MANY, op_of
from hloopt.proto import ProtoProblem, header, within
from hloopt.proto.annotations import read_metadata
from hloopt.proto.attributes import COMMON, rows_of
from hloopt.proto.calls import calls
from hloopt.proto.entry import ProtoSource, Reading
from hloopt.proto.messages import decode, text
from hloopt.proto.rows import ProtoRow
from hloopt.proto.schema import fields
from hloopt.types import DTYPES

__all__ = ["read_module"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_OPCODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# XLA keeps two underscores in front for itself.
_KEPT = re.compile(r"__(?!xla_)_*")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
# Seen to by the reader itself, whatever the opcode.
_LINKS = frozenset(
    (
        *("name", "opcode", "shape", "metadata", "id", "operand_ids"),
        *("control_predecessor_ids", "called_computation_ids"),
    )
)


def read_module(data: bytes, name: str) -> Module:
    """The module in the bytes of a ``HloModuleProto``; raises ``ParseError`` naming field and id.

    ``module.warnings`` names what has no text form (at offset -1: there is no text).
    """
    reading = Reading()
    with parse_errors(name), no_collection():
        return _ModuleReader(reading, name).module(decode("Module", data, reading.warnings))


@contextmanager
def parse_errors(name: str) -> Iterator[None]:
    """Turn a ``ProtoProblem`` into a ``ParseError`` of the file ``name``."""
    try:
        yield
    except ProtoProblem as problem:
        raise ParseError(str(problem), name=name) from None


class _ModuleReader:
    """Computations, each after those it calls; then what the module says of itself."""

    def __init__(self, reading: Reading, name: str) -> None:
        self.reading = reading
        self.result = Module(name)
        self.computations: dict[int, Computation] = {}
        self.sequences: dict[int, list[int]] = {}
        self._plans: dict[tuple[str, tuple[int, ...]], _Plan] = {}

    def module(self, proto: Any) -> Module:
        module = self.result
        module.name = self.legal(text(proto.name) or "module", "module")
        self.reading.payloads = list(proto.payloads)
        self.sequences = _sequences(proto)
        protos = _by_id(proto.computations, "computation", "computations")
        entry = proto.entry_computation_id
        if entry not in protos:
            raise ProtoProblem(f"there is no computation with id {entry}", "entry_computation_id")
        for number in _sorted_by_needs(
            list(protos), lambda key: _callees(protos, key), lambda key: _told(protos[key])
        ):
            with within(f"computation {_told(protos[number])}"):
                computation = self.computation(protos[number])
            edit.add_computation(module, computation)
            self.computations[number] = computation
        module.entry = self.computations[entry]
        header.read_header(proto, module, self.reading, read_module)
        module.warnings += [(-1, warning) for warning in self.reading.warnings]
        return module

    # ---- computation ----

    def computation(self, proto: Any) -> Computation:
        computation = Computation(self.legal(text(proto.name) or "computation", "computation"))
        thread = text(proto.execution_thread)
        computation.execution_thread = None if thread in {"", "main"} else thread
        protos = _by_id(proto.instructions, "instruction", "instructions")
        if proto.root_id not in protos:
            raise ProtoProblem(f"there is no instruction with id {proto.root_id}", "root_id")
        made: dict[int, Instruction] = {}
        for number in self.order(proto, protos):
            source = protos[number]
            try:
                instruction = self.instruction(source, made)
            except ProtoProblem as problem:
                raise problem.within(f"instruction {_told(source)}") from None
            wanted = instruction.name
            made[number] = edit.append(computation, instruction)
            if instruction.name != wanted:
                self.warn(
                    f"a second instruction {wanted!r} in computation {computation.name!r} is "
                    f"called {instruction.name!r}"
                )
            for before in source.control_predecessor_ids:
                edit.add_control_edge(made[before], instruction)
        computation.root = made[proto.root_id]
        for number, parameter in enumerate(computation.parameters):
            if parameter.parameter_number != number:
                raise ProtoProblem(
                    f"parameter {parameter.parameter_number} ({parameter.name}) stands where "
                    f"parameter {number} is expected"
                )
        return computation

    def order(self, proto: Any, protos: dict[int, Any]) -> list[int]:
        """The schedule's order, or the proto's with each instruction after what it needs."""
        given = self.sequences.get(proto.id)
        ids = list(protos) if given is None else given
        if given is not None and (len(given) != len(protos) or set(given) != protos.keys()):
            wrong = next((entry for entry in given if entry not in protos), None)
            what = (
                f"there is no instruction with id {wrong}"
                if wrong is not None
                else f"{len(given)} instructions are scheduled, there are {len(protos)}"
            )
            raise ProtoProblem(what, f"schedule.sequences[{proto.id}]")
        seen: set[int] = set()
        sorted_already = True
        for number in ids:
            source = protos[number]
            for needed in (*source.operand_ids, *source.control_predecessor_ids):
                if needed not in seen:
                    sorted_already = False
                    if needed not in protos:
                        raise ProtoProblem(
                            f"there is no instruction with id {needed}",
                            _field_of(source, needed),
                            f"instruction {_told(source)}",
                        )
            seen.add(number)
        if sorted_already:
            return ids

        def needs(number: int) -> tuple[int, ...]:
            return (*protos[number].operand_ids, *protos[number].control_predecessor_ids)

        found = _sorted_by_needs(ids, needs, lambda key: _told(protos[key]))
        if given is not None:
            self.warn(
                f"the schedule of computation {_told(proto)} runs instructions before their "
                "operands; they are put behind them"
            )
        return found

    # ---- instruction ----

    def instruction(self, proto: Any, made: dict[int, Instruction]) -> Instruction:
        name = text(proto.name)
        if not _NAME.fullmatch(name) or name in DTYPES or _KEPT.match(name):
            name = self.legal(name or text(proto.opcode), "instruction")
        opcode = text(proto.opcode)
        with within("shape"):
            shape = self.reading.shapes.read(proto.shape)
        operands = tuple([made[number] for number in proto.operand_ids])
        called: tuple[Computation, ...] = ()
        if proto.called_computation_ids:
            called = tuple([self.computations[number] for number in proto.called_computation_ids])
        present = tuple([field.number for field, _ in proto.ListFields()])
        plan = self._plans.get((opcode, present))
        if plan is None:
            plan = self._plans[opcode, present] = self.plan(opcode, present)
        if not plan.least <= len(operands) <= plan.most:
            raise ProtoProblem(_wrong_count(opcode, plan, len(operands)), "operand_ids")
        attributes: dict[str, Any] = {}
        if plan.own or plan.common or called:
            entry = ProtoSource(self.reading, proto, opcode, shape, operands, called)
            for row in plan.own:
                value = row.read(entry)
                if value is not None:
                    attributes[row.name] = value
            if called:
                attributes.update(calls(opcode, called, tuple(part.shape for part in operands)))
            for row in plan.common:
                value = row.read(entry)
                if value is not None:
                    attributes[row.name] = value
        for needed in plan.required:
            if needed not in attributes:
                raise ProtoProblem(f"{opcode} needs {needed}")
        for name_of, words in plan.words:
            if attributes.get(name_of, words[0]) not in words:
                raise ProtoProblem(f"{name_of} cannot be {attributes[name_of]!r}")
        data = proto.metadata
        metadata = self.reading.once(read_metadata, data) if data else None
        return Instruction(name, opcode, shape, operands, attributes, metadata)

    def plan(self, opcode: str, present: tuple[int, ...]) -> _Plan:
        """What there is to read for an opcode with these fields; made once."""
        if not opcode:
            raise ProtoProblem("an instruction needs an opcode", "opcode")
        if not _OPCODE.fullmatch(opcode) or opcode in DTYPES:
            raise ProtoProblem(f"{opcode!r} is not an opcode", "opcode")
        op = op_of(opcode)
        if op.family == "unknown":
            self.warn(f"unknown opcode {opcode!r}: it is kept as it is")
        names = {fields("Instruction")[number].name for number in present}
        own = tuple(row for row in rows_of(opcode) if row.always or names & set(row.fields))
        common = tuple(row for row in COMMON if names & set(row.fields))
        known = _LINKS.union(*(row.fields for row in (*rows_of(opcode), *COMMON)))
        for name in sorted(names - known - _IDLE):
            self.warn(f"{opcode} has a field {name}, which has no text form there; it is left out")
        required = tuple(entry.name for entry in op.attributes if entry.required)
        words = tuple((entry.name, entry.words) for entry in op.attributes if entry.words)
        return _Plan(own, common, required, words, *op.arity)

    def legal(self, name: str, what: str) -> str:
        """A name that can stand in a text; as XLA makes one, other characters become ``_``."""
        if _NAME.fullmatch(name) and name not in DTYPES and not _KEPT.match(name):
            return name
        found = _NOT_IN_NAMES.sub("_", name)
        if not (found[0].isalpha() or found[0] == "_"):
            found = f"_{found}"
        found = _KEPT.sub("_", found, count=1)
        if found in DTYPES:
            found += "_"
        self.warn(f"{name!r} cannot be the name of a {what}; it is called {found!r}")
        return found

    def warn(self, message: str) -> None:
        if message not in self.reading.warnings:
            self.reading.warnings.append(message)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The rows to read, the attributes that must be there, the words of others, and how many operands."""

    own: tuple[ProtoRow, ...]
    common: tuple[ProtoRow, ...]
    required: tuple[str, ...]
    words: tuple[tuple[str, tuple[str, ...]], ...]
    least: int
    most: int


# XLA writes these for ops that have no use for them.
_IDLE = frozenset(("async_execution_thread",))


def _wrong_count(opcode: str, plan: _Plan, found: int) -> str:
    most = f"at least {plan.least}" if plan.most >= MANY else str(plan.most)
    wanted = f"{plan.least} to {most}" if plan.least < plan.most < MANY else most
    return f"{opcode} takes {wanted} operands, it has {found}"


def _told(proto: Any) -> str:
    return f"{text(proto.name)!r} (id {proto.id})"


def _by_id(protos: Any, what: str, field: str) -> dict[int, Any]:
    """Protos by their ids, which must differ."""
    found: dict[int, Any] = {}
    for index, proto in enumerate(protos):
        if found.setdefault(proto.id, proto) is not proto:
            raise ProtoProblem(
                f"{what}s {text(found[proto.id].name)!r} and {text(proto.name)!r} have the same id "
                f"{proto.id}",
                f"{field}[{index}]",
            )
    return found


def _field_of(proto: Any, needed: int) -> str:
    return "operand_ids" if needed in proto.operand_ids else "control_predecessor_ids"


def _callees(protos: dict[int, Any], number: int) -> Iterator[int]:
    for instruction in protos[number].instructions:
        for called in instruction.called_computation_ids:
            if called not in protos:
                raise ProtoProblem(
                    f"there is no computation with id {called}",
                    "called_computation_ids",
                    f"instruction {_told(instruction)}",
                    f"computation {_told(protos[number])}",
                )
            yield called


def _sequences(proto: Any) -> dict[int, list[int]]:
    """The scheduled order of computations, by their ids."""
    if not proto.HasField("schedule"):
        return {}
    return {entry.key: list(entry.value.instruction_ids) for entry in proto.schedule.sequences}


def _sorted_by_needs(
    ids: Sequence[int], needs: Callable[[int], Iterable[int]], what: Callable[[int], str]
) -> list[int]:
    """``ids`` so that each comes after those it needs, otherwise as they are.

    Raises ``ProtoProblem`` naming a cycle by ``what``.
    """
    order: list[int] = []
    done: set[int] = set()
    for start in ids:
        if start in done:
            continue
        stack = [(start, iter(needs(start)))]
        path, on_path = [start], {start}
        while stack:
            current, rest = stack[-1]
            needed = next((entry for entry in rest if entry not in done), None)
            if needed is None:
                stack.pop()
                path.pop()
                on_path.discard(current)
                done.add(current)
                order.append(current)
            elif needed in on_path:
                cycle = [*path[path.index(needed) :], needed]
                shown = [what(entry) for entry in cycle[:8]]
                raise ProtoProblem(f"depends on itself: {' needs '.join(shown)}")
            else:
                stack.append((needed, iter(needs(needed))))
                path.append(needed)
                on_path.add(needed)
    return order
