"""The canonical form: equivalent modules become equal.

Nothing is left in it that only the writer chose: names, the order of attributes, of computations and of
independent instructions, defaults that may be written or not, layouts that are the usual ones, blanks in
values kept as text, and everything that serves debugging.  The instructions of a module that is scheduled
keep their order, for there it has a meaning.

Instructions without a path to the root that cannot be distinguished by anything linked to them keep the
order they have: the one choice of the writer that remains visible.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Any

from hloopt.ir import edit
from hloopt.ir.computation import Computation
from hloopt.ir.encode import encoded, rows
from hloopt.ir.instruction import Instruction
from hloopt.ir.module import Module
from hloopt.ir.normal import normal_attributes, normal_header, normal_shape, normal_thread
from hloopt.ir.order import computation_orders

__all__ = ["canonical", "fingerprint"]


def canonical(module: Module) -> Module:
    """A copy in canonical form: called ``module``, its entry ``main``, the rest numbered."""
    copy = Module("module")
    made: dict[Computation, Computation] = {}
    for computation, order in computation_orders(module):
        is_entry = computation is module.entry
        new = Computation("main" if is_entry else f"computation.{len(made)}")
        new.execution_thread = normal_thread(computation)
        _fill(new, computation, order, made)
        made[computation] = edit.add_computation(copy, new)
    copy.entry = made[module.entry]
    copy.attributes = normal_header(module)
    return copy


def _fill(
    new: Computation,
    old: Computation,
    order: list[Instruction],
    computations: dict[Computation, Computation],
) -> None:
    made: dict[Instruction, Instruction] = {}
    counts: Counter[str] = Counter()
    for instruction in order:
        opcode = instruction.opcode
        if opcode == "parameter":
            name = f"param_{instruction.parameter_number}"
        else:
            name = f"{opcode}.{counts[opcode]}"
            counts[opcode] += 1
        copy = Instruction(
            name,
            opcode,
            normal_shape(instruction.shape),
            tuple([made[operand] for operand in instruction.operands]),
            {
                key: _copied(value, computations)
                for key, value in normal_attributes(instruction).items()
            },
        )
        made[instruction] = edit.append(new, copy)
    places = {instruction: index for index, instruction in enumerate(order)}
    for instruction, copy in made.items():
        for before in sorted(instruction.control_predecessors, key=places.__getitem__):
            edit.add_control_edge(made[before], copy)
    new.root = made[old.root]


def _copied(value: Any, computations: dict[Computation, Computation]) -> Any:
    if isinstance(value, Computation):
        return computations[value]
    if isinstance(value, tuple) and value and isinstance(value[0], Computation):
        return tuple(computations[entry] for entry in value)
    return value


_VERSION = b"hloopt module, version 1\n"
"""Begins what is hashed: a change of the canonical form gives other digests."""


def fingerprint(module: Module) -> str:
    """A hexadecimal digest of the canonical form, 128 bits.

    Equal modules have equal digests on every machine and in every version of Python; the values of
    elided constants are not known and count as equal.
    """
    digest = blake2b(_VERSION, digest_size=16)
    for name, value in normal_header(module).items():
        digest.update(_bytes(f"{name}={encoded(value, {})}\n"))
    numbers: dict[Computation, str] = {}
    for computation, order in computation_orders(module):
        digest.update(_bytes(f"computation {normal_thread(computation)}\n"))
        for line in rows(computation, order, numbers):
            digest.update(_bytes(line))
        numbers[computation] = str(len(numbers))
    digest.update(_bytes(f"entry {numbers[module.entry]}\n"))
    return digest.hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
