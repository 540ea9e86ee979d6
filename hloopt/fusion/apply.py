"""Writing fusions down: wrapping an instruction into one, and moving a producer into it.

A body stands with its parameters first, then its instructions, and a producer joins right behind the
parameters: everything that uses it is there already.  Costs are those of the operands concerned.
"""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.ir import Computation, Instruction, build, edit

__all__ = ["first_instruction", "fuse_producer", "number_parameter_names", "remove_unused", "wrap"]

_CARRIED = ("sharding", "frontend_attributes")


def wrap(root: Instruction, kind: str, name: str) -> Instruction:
    """Put a fusion of ``root`` alone in its place; users, control edges and metadata go with it.

    Operands that occur several times become one parameter.
    """
    home = root.computation
    if home is None or home.module is None:
        raise ValueError(f"{root.name} is in no module")
    body = edit.add_computation(home.module, Computation("fused_computation"))
    operands = tuple(dict.fromkeys(root.operands))
    parameters = {
        operand: edit.append(body, _parameter(number, operand))
        for number, operand in enumerate(operands)
    }
    inner = tuple(parameters[operand] for operand in root.operands)
    body.root = build.clone(root, body, inner)
    attributes = {"kind": kind, "calls": body}
    attributes |= {key: root.attributes[key] for key in _CARRIED if key in root.attributes}
    fusion = Instruction(name, "fusion", root.shape, operands, attributes, root.metadata)
    fusion.offset = root.offset
    edit.insert_before(root, fusion)
    edit.replace_uses(root, fusion)
    edit.take_control_edges(root, fusion)
    edit.remove(root)
    return fusion


def first_instruction(body: Computation) -> Instruction | None:
    """The first instruction after the parameters, which are moved to the front.

    None where there are parameters only: a fusion of the text may hand one on as it is.
    """
    first = next((entry for entry in body if entry.opcode != "parameter"), None)
    if first is None:
        return None
    seen = False
    for entry in list(body):
        seen = seen or entry is first
        if seen and entry.opcode == "parameter":
            edit.move_before(first, entry)
    return first


def fuse_producer(
    fusion: Instruction, producer: Instruction, first: Instruction | None
) -> Instruction:
    """Copy ``producer``, an operand of ``fusion``, into its body, before ``first`` or at the end.

    Operands of the producer that the fusion has already are shared; the others become new parameters
    at the end.  The producer stays for its other users.  Returns the copy.
    """
    body: Computation = fusion.attributes["calls"]
    pairs = list(zip(fusion.operands, body.parameters, strict=True))
    # A fusion of the text may take the same operand several times.
    replaced = [parameter for operand, parameter in pairs if operand is producer]
    parameters = {operand: parameter for operand, parameter in pairs if operand is not producer}
    operands = [operand for operand in fusion.operands if operand is not producer]
    for operand in producer.operands:
        if operand not in parameters:
            number = len(body.parameters)
            parameter = _parameter(number, operand)
            if first is None:
                parameters[operand] = edit.append(body, parameter)
            else:
                parameters[operand] = edit.insert_before(first, parameter)
            operands.append(operand)
    inner = tuple(parameters[operand] for operand in producer.operands)
    copy = build.clone(producer, body if first is None else first, inner)
    for parameter in replaced:
        edit.replace_uses(parameter, copy)
        edit.remove(parameter)
    edit.set_operands(fusion, tuple(operands))
    for before in producer.control_predecessors:
        edit.add_control_edge(before, fusion)
    return copy


def remove_unused(producer: Instruction) -> bool:
    """Take a producer out when nothing needs it any more; say whether it went."""
    if producer.users or producer.is_root or producer.control_successors:
        return False
    edit.remove(producer)
    return True


def number_parameter_names(bodies: Iterable[Computation]) -> None:
    """Call every parameter ``param_N`` by its number."""
    for body in bodies:
        wrong = [
            parameter
            for parameter in body.parameters
            if parameter.name != f"param_{parameter.parameter_number}"
        ]
        for parameter in wrong:
            edit.rename(parameter, "param")
        for parameter in wrong:
            edit.rename(parameter, f"param_{parameter.parameter_number}")


def _parameter(number: int, operand: Instruction) -> Instruction:
    return Instruction(
        f"param_{number}", "parameter", operand.shape, (), {"parameter_number": number}
    )
