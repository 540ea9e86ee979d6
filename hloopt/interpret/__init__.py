"""The reference interpreter: the executable definition of every op.

Strict mode, the default, rounds the result of every op to its element type.  In excess-precision
mode bf16 and f16 values are carried as float32 and rounded only where XLA must keep a buffer of
the type (``Context.materialize``): entry results, carries of loops, operands and results of
conditionals, operands of sort and top-k, custom calls, and all ops that read bits (bitcast,
bitcast-convert).  A ``convert`` to bf16 or f16 does not round then either, as in XLA's own mode
of that name.  ``reduce-precision`` always rounds: that is what it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from hloopt.errors import EvaluationError, UsageError
from hloopt.interpret import dynamic
from hloopt.interpret.context import Context, Evaluator, Observer, Value
from hloopt.interpret.families import CHECKS, COLLECTIVES, EVALUATORS
from hloopt.interpret.host import Host
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.participant import Participant
from hloopt.interpret.participants import Participants
from hloopt.interpret.progress import Progress
from hloopt.interpret.values import array_leaves, flatten_results, parameter_values
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import called_computations
from hloopt.ops import attributes_of
from hloopt.types import Array, Literal, attribute_name

if TYPE_CHECKING:
    from hloopt.interpret.bounds_elementwise import ErrorBound

__all__ = [
    "EVALUATORS",
    "Context",
    "Evaluator",
    "Host",
    "Observer",
    "Value",
    "check_inputs",
    "evaluate_bounds",
    "evaluate_module",
    "evaluate_participants",
    "has_evaluation",
    "participant_counts",
    "supported",
    "tells_participants_apart",
]

# Each has its own thread and inputs; a header may declare any number.
_MOST_PARTICIPANTS = 1 << 16
# Run by the interpreter itself.
_OWN = frozenset({"constant", "parameter"})
_T = TypeVar("_T")


def has_evaluation(opcode: str) -> bool:
    """Whether the interpreter can evaluate an opcode (of custom-call: some targets)."""
    return opcode in EVALUATORS or opcode in _OWN


def evaluate_module(
    module: Module,
    inputs: Sequence[Array],
    *,
    excess_precision: bool = False,
    host: Host | None = None,
) -> list[Array]:
    """Evaluate the entry on arrays in parameter order; the flat list of result arrays.

    Inputs have the storage types of their element types, or views of these (see
    ``values.parameter_values``); results have storage types, tokens are left out.  ``host`` is where
    infeed and outfeed lead to; without one, each evaluation has its own, which draws from seed 0.

    Raises ``UnsupportedError`` before anything runs, ``EvaluationError`` when the inputs, or the
    host's, do not fit.
    """
    supported(module)
    return _evaluate(module, inputs, Host.given(host), Participant(), excess_precision)


def evaluate_participants(
    module: Module,
    inputs: Sequence[Sequence[Array]],
    replicas: int | None = None,
    partitions: int | None = None,
    *,
    excess_precision: bool = False,
    host: Host | None = None,
    progress: Progress | None = None,
    rounding: int | None = None,
    observers: Sequence[Observer] | None = None,
) -> list[list[Array]]:
    """Evaluate the entry once for each participant, in lock step; the results of each.

    Participant ``replica * partitions + partition`` gets ``inputs[number]`` and ``host.of(number)``.  Where
    counts are not given they are the module's.  Collectives exchange what the participants have.
    ``progress`` says, to another thread, how far the participant that runs has come.  ``rounding`` is the
    number of another way to round (``rounding.Rounding``); None is the definition.  ``observers``, one for each
    participant, see the values.

    Raises as ``evaluate_module``, and ``EvaluationError`` when participants wait for each other without
    end.
    """
    replicas, partitions = participant_counts(module, replicas, partitions)
    supported(module, replicas, partitions)
    hosts = Host.given(host)

    def evaluate(participant: Participant) -> list[Array]:
        given = inputs[participant.number]
        own = hosts.of(participant.number)
        observer = None if observers is None else observers[participant.number]
        return _evaluate(
            module, given, own, participant, excess_precision, progress, rounding, observer
        )

    check_inputs(inputs, replicas, partitions)
    return _each(evaluate, replicas, partitions)


def evaluate_bounds(
    module: Module,
    inputs: Sequence[Sequence[Array]],
    replicas: int | None = None,
    partitions: int | None = None,
    *,
    host: Host | None = None,
    progress: Progress | None = None,
) -> list[list[ErrorBound]]:
    """How far each element of each participant's results may be off in an evaluation that is as right.

    Arguments and errors are those of ``evaluate_participants``; the results are those of ``interpret.bounds``:
    None where nothing may be off, infinite where nothing is known.  ``host.written_bounds`` has those of what
    the host is sent.
    """
    from hloopt.interpret.bounding import Bounds

    replicas, partitions = participant_counts(module, replicas, partitions)
    supported(module, replicas, partitions)
    hosts = Host.given(host)

    def evaluate(participant: Participant) -> list[ErrorBound]:
        own = hosts.of(participant.number)
        interpreter = _interpreter(module, own, participant)
        interpreter.bounds = bounds = Bounds()
        value = _entered(interpreter, module.entry, inputs[participant.number], progress)
        own.bound(bounds.of)
        return [bounds.of(array) for array, _ in array_leaves(value, module.entry.result_shape)]

    check_inputs(inputs, replicas, partitions)
    return _each(evaluate, replicas, partitions)


def _each(
    evaluate: Callable[[Participant], list[_T]], replicas: int, partitions: int
) -> list[list[_T]]:
    """What every participant gives, in lock step."""
    if replicas * partitions == 1:
        return [evaluate(Participant())]
    return Participants[list[_T]](replicas, partitions).run(evaluate)


def check_inputs(inputs: Sequence[object], replicas: int, partitions: int) -> None:
    """Raise ``EvaluationError`` where there are not as many inputs as participants."""
    if len(inputs) != replicas * partitions:
        raise EvaluationError(
            f"{len(inputs)} lists of inputs for {replicas * partitions} participants"
        )


def _evaluate(
    module: Module,
    inputs: Sequence[Array],
    host: Host,
    participant: Participant,
    excess_precision: bool,
    progress: Progress | None = None,
    rounding: int | None = None,
    observer: Observer | None = None,
) -> list[Array]:
    interpreter = _interpreter(module, host, participant, excess_precision=excess_precision)
    interpreter.observer = observer
    if rounding is not None:
        from hloopt.interpret.rounding import Rounding

        interpreter.rounding = Rounding(rounding)
    result = _entered(interpreter, module.entry, inputs, progress)
    with np.errstate(all="ignore"):
        return flatten_results(result, module.entry.result_shape, interpreter)


def _interpreter(
    module: Module, host: Host, participant: Participant, *, excess_precision: bool = False
) -> Interpreter:
    interpreter = Interpreter(module, EVALUATORS, excess_precision=excess_precision)
    interpreter.host, interpreter.participant = host, participant
    return interpreter


def _entered(
    interpreter: Interpreter,
    entry: Computation,
    inputs: Sequence[Array],
    progress: Progress | None,
) -> Value:
    """The value of the entry for these inputs, which are exact."""
    with np.errstate(all="ignore"):
        arguments = parameter_values(entry, inputs, interpreter)
        if interpreter.bounds is not None:
            interpreter.bounds.exact(tuple(arguments))
        return interpreter.enter(entry, arguments, progress or Progress())


def participant_counts(
    module: Module, replicas: int | None = None, partitions: int | None = None
) -> tuple[int, int]:
    """Replicas and partitions to run: what is given, else ``replica_count`` and ``num_partitions``."""
    found = []
    for given, name in ((replicas, "replica_count"), (partitions, "num_partitions")):
        written = module.attributes.get(name, 1)
        count = given if given is not None else (written if isinstance(written, int) else 1)
        if count < 1:
            raise UsageError(f"{count} participants cannot be run")
        found.append(count)
    if found[0] * found[1] > _MOST_PARTICIPANTS:
        raise UsageError(
            f"{found[0] * found[1]} participants cannot be run, at most {_MOST_PARTICIPANTS}"
        )
    return found[0], found[1]


def tells_participants_apart(module: Module) -> bool:
    """Whether anything the entry can reach is not the same for each participant: a collective, its own
    number, a transfer between devices, its part of an array.
    """
    return any(
        instruction.opcode in COLLECTIVES and not instruction.attributes.get("is_host_transfer")
        for computation in _reached(module.entry)
        for instruction in computation
    )


def supported(module: Module, replicas: int = 1, partitions: int = 1) -> None:
    """Raise ``UnsupportedError`` for the first instruction the entry can reach that has no
    evaluation.

    That is an opcode or custom-call target without one, a constant whose value the text leaves out
    (``{...}``), dynamic dimensions whose sizes are open, or a collective that so many participants
    cannot run.
    """
    context = Interpreter(module, EVALUATORS)
    for computation in _reached(module.entry):
        for instruction in computation:
            reason = _obstacle(instruction, replicas, partitions)
            if reason is not None:
                raise context.unsupported(instruction, reason)


def _reached(entry: Computation) -> Iterator[Computation]:
    seen = {entry}
    pending = [entry]
    while pending:
        computation = pending.pop()
        yield computation
        for instruction in computation:
            for called in called_computations(instruction):
                if called not in seen:
                    seen.add(called)
                    pending.append(called)


def _obstacle(instruction: Instruction, replicas: int, partitions: int) -> str | None:
    opcode = instruction.opcode
    if not has_evaluation(opcode):
        return f"{opcode} has no evaluation"
    if not instruction.is_understood:
        unknown = sorted(instruction.attributes.keys() - (attributes_of(opcode) or frozenset()))
        return f"{opcode} has no attribute '{attribute_name(unknown[0])}': what it would change is not known"
    literal = instruction.literal
    if literal is not None and _elided(literal):
        return (
            "the value of this constant is left out of the text ({...}); "
            "dump with --xla_dump_large_constants=true, or run with --fill-constants SEED"
        )
    reason = dynamic.obstacle(instruction)
    if reason is not None:
        return reason
    if replicas * partitions > 1:
        from hloopt.interpret.collective_checks import check_among
        from hloopt.interpret.shards import check_shards, is_boundary

        if opcode in COLLECTIVES:
            return check_among(instruction, replicas, partitions)
        if is_boundary(instruction):
            return check_shards(instruction, partitions)
    check = CHECKS.get(opcode)
    return check(instruction) if check is not None else None


def _elided(literal: Literal) -> bool:
    return literal.elided or any(map(_elided, literal.elements))
