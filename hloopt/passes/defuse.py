"""Taking fusions apart.

    f = fusion(a, b), kind=kLoop, calls=body        =>        the instructions of body, over a and b

XLA's own compilers take modules before fusion; this is the form they compile.  What an asynchronous call wraps
must be one op: where that is a fusion, its instructions stand in the place of the ``async-done``.
"""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, build, edit, walk
from hloopt.rewrite.pass_ import Pass, PassLog

__all__ = ["Defuse"]


@dataclass(frozen=True)
class Defuse(Pass):
    """Take all fusions apart, whatever their kind.

    Fusions that run asynchronously are computed where their result was waited for.
    """

    example: ClassVar[str] = """HloModule example

fused {
  a = f32[4] parameter(0)
  b = f32[4] exponential(a)
  ROOT c = f32[4] negate(b)
}

ENTRY main {
  x = f32[4] parameter(0)
  ROOT r = f32[4] fusion(x), kind=kLoop, calls=fused
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        bodies: dict[Computation, None] = {}
        for computation in walk.callees_first(module):
            opened = False
            for instruction in list(computation):
                if instruction.opcode == "fusion" and log.allows():
                    body = instruction.calls
                    stranger = _stranger(body, computation)
                    if stranger is not None:
                        thread = stranger.execution_thread
                        log.miss(
                            "inline a fusion", instruction, f"{stranger.name} runs on {thread}"
                        )
                        continue
                    bodies[body] = None
                    log.hit("inline a fusion", instruction, f"of {body.name}")
                    _inline(instruction, body, instruction.operands)
                    opened = True
            starts = [one for one in computation.callers if one.opcode == "async-start"]
            if opened and starts:
                bodies[computation] = None
                for start in starts:
                    _wait_at_once(start, computation)
        for body in reversed(bodies):
            if not body.callers:
                edit.remove_computation(body)
        return _drop_schedule(module, log) or bool(bodies)


def _stranger(body: Computation, home: Computation) -> Computation | None:
    """A computation that the body applies and that ``home`` may not call: it runs on another thread."""
    for instruction in body:
        for called in walk.called_computations(instruction):
            if called.execution_thread != home.execution_thread:
                return called
    return None


def _drop_schedule(module: Module, log: PassLog) -> bool:
    if "is_scheduled" not in module.attributes or not log.allows():
        return False
    log.hit("drop the schedule")
    del module.attributes["is_scheduled"]
    return True


def _wait_at_once(start: Instruction, wrapped: Computation) -> None:
    """Put what an asynchronous call wraps in the place of the op that waits for it."""
    chain = [start]
    while chain[-1].opcode != "async-done":
        (following,) = chain[-1].users
        chain.append(following)
    done = chain.pop()
    # An async-update hands over the operands that the start has not.
    operands = start.operands + tuple(one for link in chain[1:] for one in link.operands[1:])
    for link in chain:
        for before in link.control_predecessors:
            if before not in chain:
                edit.add_control_edge(before, done)
    _inline(done, wrapped, operands)
    for link in reversed(chain):
        edit.remove(link)


def _inline(fusion: Instruction, body: Computation, operands: tuple[Instruction, ...]) -> None:
    """Put copies of the body's instructions in the place of a fusion.

    The body holds no fusion itself.  Reads of single outputs go to the instructions that make them;
    the tuple is kept only for users of the whole.
    """
    copies: dict[Instruction, Instruction] = {}
    values = dict(zip(body.parameters, operands, strict=True))
    for instruction in body:
        if instruction.opcode != "parameter":
            inner = tuple(values[operand] for operand in instruction.operands)
            copies[instruction] = values[instruction] = build.clone(instruction, fusion, inner)
    for instruction, copy in copies.items():
        for before in instruction.control_predecessors:
            edit.add_control_edge(values[before], copy)
    result = values[body.root]
    if result.metadata is None and body.root in copies:
        result.metadata = fusion.metadata
    outputs = body.root.operands if body.root.opcode == "tuple" else (body.root,)
    if body.root.opcode == "tuple":
        _read_elements(fusion, result.operands, body.root.operands)
    edit.replace_uses(fusion, result)
    _remove(fusion, [copies[output] for output in outputs if output in copies])
    if body.root.opcode == "tuple" and not result.users and not result.is_root:
        edit.remove(result)


def _read_elements(
    fusion: Instruction, elements: tuple[Instruction, ...], inner: tuple[Instruction, ...]
) -> None:
    """Let readers of single outputs read what makes them, by the name it had where a read bore that."""
    for user in list(fusion.users):
        if user.opcode == "get-tuple-element" and not user.control_predecessors:
            number, name = user.tuple_index, user.name
            edit.replace_uses(user, elements[number])
            if not user.control_successors:
                edit.remove(user)
                if name == inner[number].name and elements[number].name != name:
                    edit.rename(elements[number], name)


def _remove(fusion: Instruction, made: list[Instruction]) -> None:
    """Move the control edges to the outputs' instructions and remove the fusion."""
    for instruction in dict.fromkeys(made):
        for before in fusion.control_predecessors:
            edit.add_control_edge(before, instruction)
        for after in fusion.control_successors:
            edit.add_control_edge(instruction, after)
    edit.remove(fusion)
