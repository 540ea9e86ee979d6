"""Fuses a long producer into its only user by moving the user's instructions, not the producer's.

``apply.fuse`` copies the producer's body to the front of its user's.  In chains of kernels, each
as long as all before it, that is quadratic in their length.  The result here is identical, names and
their order included: where it would not be, ``apply.fuse`` does it.

A body is *in order* when it is in post-order from its root, operands first: as ``apply.fuse`` copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from hloopt.fusion import apply
from hloopt.fusion.merge import copy_in_all, first_instruction, needed_by
from hloopt.ir import Computation, Instruction, edit

__all__ = ["Joiner"]

_LONG: Final = 32
"""Length of a producer from which on the user is moved instead."""
_TIMES: Final = 4
"""How many times longer than its user it must be."""
_RIGID: Final = ("output_to_operand_aliasing", "sharding", "frontend_attributes")
"""Attributes about a fusion's operands or result."""

_Met: TypeAlias = tuple[Instruction, ...]
"""A body in order: its parameters in the order of their use from its last instruction to its first."""


class Joiner:
    """Fuses producers into users, and caches which bodies are in order."""

    def __init__(self) -> None:
        self._orders: dict[Computation, _Met] = {}

    def fuse(self, producer: Instruction, consumer: Instruction) -> Instruction:
        """As ``apply.fuse``; the producer stays without users, or with others."""
        if not self._is_long(producer, consumer):
            return self._copied(producer, consumer)
        fusion = consumer
        if consumer.opcode != "fusion":
            fusion = apply.wrap(consumer, "kLoop", "fusion")
        body = producer.calls
        met = self._met(body)
        if met is None or any(entry.control_predecessors for entry in fusion.calls):
            return self._copied(producer, fusion)
        stays = _comes_first(producer, fusion)
        self._orders.pop(fusion.calls, None)
        behind = [entry for entry in fusion.calls if entry.opcode != "parameter"]
        _rename_as_copies(producer, fusion)
        _move(producer, fusion, met)
        if stays:
            self._orders[body] = _first_met(reversed(behind), met)
        else:
            del self._orders[body]
        return fusion

    def fuse_all(self, producers: Sequence[Instruction], fusion: Instruction) -> None:
        """As ``fuse`` of each in turn: producers of one result each, which the fusion alone reads, once."""
        self._orders.pop(fusion.calls, None)
        copy_in_all(fusion, producers)

    def _met(self, body: Computation) -> _Met | None:
        """The parameters of a body, which is put in order; None where that cannot be."""
        known = self._orders.get(body)
        if known is None:
            order = _order(body)
            met = _first_met(reversed(order))
            if len(met) + len(order) == len(body):
                edit.put_in_order(body, (*body.parameters, *order))
                known = self._orders[body] = met
        return known

    def _copied(self, producer: Instruction, consumer: Instruction) -> Instruction:
        """The body stays in order where the producer is what its first instruction needs."""
        body: Computation | None = consumer.attributes.get("calls")
        met = self._orders.pop(body, None) if body is not None else None
        first = first_instruction(body) if met is not None and body is not None else None
        if first is None or body is None or met is None or producer not in consumer.operands:
            return apply.fuse(producer, consumer)
        parameter = body.parameters[consumer.operands.index(producer)]
        stays = parameter in first.operands and not producer.control_predecessors
        fusion = apply.fuse(producer, consumer)
        if stays:
            added = []
            entry = first._previous
            while entry is not None and entry.opcode != "parameter":
                added.append(entry)
                entry = entry._previous
            left = tuple(other for other in met if other is not parameter)
            self._orders[body] = tuple(dict.fromkeys((*left, *_first_met(added))))
        return fusion

    def _is_long(self, producer: Instruction, consumer: Instruction) -> bool:
        if producer.opcode != "fusion" or producer.users != {consumer: 1} or producer.is_root:
            return False
        body = producer.calls
        user: Computation | None = None
        if consumer.opcode == "fusion":
            user = consumer.calls
        length = 1 if user is None else len(user)
        return (
            len(body) >= max(_LONG, _TIMES * length)
            and body.callers == {producer: 1}
            and (user is None or (user.callers == {consumer: 1} and user.root.opcode != "tuple"))
            and body.root.opcode not in ("tuple", "parameter")
            and not any(name in one.attributes for one in (producer, consumer) for name in _RIGID)
            and not producer.has_control_edges
            and len(set(producer.operands)) == len(producer.operands)
            and len(set(consumer.operands)) == len(consumer.operands)
        )


def _order(body: Computation) -> list[Instruction]:
    """The post-order from the root; empty where there are control dependencies."""
    found = []
    for entry in needed_by([body.root]):
        if entry.control_predecessors:
            return []
        if entry.opcode != "parameter":
            found.append(entry)
    return found


def _first_met(entries: Iterable[Instruction], behind: _Met = ()) -> _Met:
    """The parameters that some instructions read, as they are met, then others."""
    met: dict[Instruction, None] = {}
    for entry in entries:
        for operand in entry.operands:
            if operand.opcode == "parameter":
                met[operand] = None
    return tuple(met | dict.fromkeys(behind))


def _rename_as_copies(producer: Instruction, fusion: Instruction) -> None:
    """Give a producer's instructions the names that copies of them would get in the fusion's body."""
    body = producer.calls
    other = fusion.calls
    names = Computation("names")
    names.by_name |= other.by_name
    names._serial |= other._serial
    renamed: dict[Instruction, str] = {}
    if not body.by_name.keys().isdisjoint(other.by_name):
        entry = body._first
        while entry is not None:
            if entry.opcode != "parameter":
                name = entry.name
                if name in names.by_name:
                    name = renamed[entry] = names.fresh_name(name)
                names.by_name[name] = entry
            entry = entry._next
    edit.rename_all(body, renamed)
    body._serial = names._serial


def _comes_first(producer: Instruction, fusion: Instruction) -> bool:
    """Whether the producer's body, in order, is so with all that the fusion computes behind it, too."""
    body = fusion.calls
    if _order(body) != [entry for entry in body if entry.opcode != "parameter"]:
        return False
    parameter = body.parameters[fusion.operands.index(producer)]
    for entry in needed_by([body.root]):
        if entry is parameter:
            return True
        if entry.opcode != "parameter":
            return False
    return False


def _move(producer: Instruction, fusion: Instruction, met: _Met) -> None:
    """Put what the fusion computes behind the producer's body, which becomes the fusion's."""
    body = producer.calls
    other = fusion.calls
    if body.module is not None:
        body.module.attributes.pop("is_scheduled", None)
    if body.root.metadata is None:
        body.root.metadata = producer.metadata
    inner = dict(zip(producer.operands, body.parameters, strict=True))
    own = dict(zip(fusion.operands, other.parameters, strict=True))
    added = [producer.operands[entry.parameter_number] for entry in met]
    added = [operand for operand in added if operand not in own]
    place = own.pop(producer)
    edit.replace_uses(place, body.root)
    for operand, parameter in own.items():
        if operand in inner:
            edit.replace_uses(parameter, inner[operand])
    root, gone = other.root, {place, *(own[one] for one in own if one in inner)}
    edit.set_root(other, place)
    for entry in list(other):
        if entry not in gone:
            edit.take_over(body, entry)
    edit.set_root(body, root)
    edit.remove_operands(fusion, {producer})
    edit.add_operands(fusion, tuple(added))
    _number(body, [inner.get(operand) or own[operand] for operand in fusion.operands])
    edit.exchange_bodies(producer, fusion)


def _number(body: Computation, parameters: list[Instruction]) -> None:
    places = {parameter: place for place, parameter in enumerate(body.parameters)}
    edit.permute_parameters(body, [places[parameter] for parameter in parameters])
    first = next(entry for entry in body if entry.opcode != "parameter")
    for parameter in parameters:
        edit.move_before(first, parameter)
