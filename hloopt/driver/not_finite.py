"""Which instruction makes the first NaN, or the first infinity, of a run."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.interpret import Context, Evaluator, Host, Value, evaluate_participants
from hloopt.interpret.progress import Progress
from hloopt.ir import Instruction, Module
from hloopt.ops.traits import CONTROL_FLOW, PLUMBING
from hloopt.runtime.comparison import not_finite
from hloopt.types import Array

__all__ = ["first_not_finite"]

_SECONDS: Final = 10.0
_NOT_MADE: Final = frozenset({*PLUMBING, *CONTROL_FLOW, "constant", "parameter"})


class _MadeHere(Exception):  # noqa: N818 - it ends a run early; nothing went wrong
    """The instruction that was looked for."""

    def __init__(self, instruction: Instruction) -> None:
        super().__init__(instruction.name)
        self.instruction = instruction


@dataclass
class _Looking:
    """An observer that ends the run where something is made that no operand holds: NaN, or an infinity."""

    nan: bool

    def observing(self, instruction: Instruction, run: Evaluator) -> Evaluator:
        """``run`` with a look at what it gives."""
        if instruction.opcode in _NOT_MADE:
            return run

        def watched(
            instruction: Instruction, operands: tuple[Value, ...], context: Context
        ) -> Value:
            value = run(instruction, operands, context)
            if self._held(value) and not any(map(self._held, operands)):
                raise _MadeHere(instruction)
            return value

        return watched

    def _held(self, value: Value) -> bool:
        if isinstance(value, tuple):
            return any(map(self._held, value))
        return isinstance(value, np.ndarray) and not_finite(value, nan=self.nan) > 0


def first_not_finite(
    module: Module,
    arrays: Sequence[Sequence[Array]],
    results: Sequence[Sequence[Array]],
    counts: tuple[int, int],
    host: Host,
) -> str:
    """``the first NaN is made by %log.1 (line 12, model.py:9)``, by a run of the interpreter for 10 s at most.

    ``results`` are those of a run on these inputs, of which some hold NaN or infinity.  Infinities are looked
    for where none holds NaN.  Empty where the inputs or constants hold it already, or it takes longer.
    Raises what evaluating the module raises.
    """
    nan = any(not_finite(array, nan=True) for each in results for array in each)
    observers = [_Looking(nan) for _ in arrays]
    again, progress = host.restarted(), Progress(monotonic() + _SECONDS)
    try:
        evaluate_participants(
            module, arrays, *counts, host=again, progress=progress, observers=observers
        )
    except _MadeHere as made:
        one = made.instruction
        place = ", ".join(filter(None, (_line(one, module), _user_line(one, module))))
        where = f" ({place})" if place else ""
        return f"the first {'NaN' if nan else 'infinity'} is made by %{one.name}{where}"
    except TimeoutError:
        pass
    return ""


def _line(one: Instruction, module: Module) -> str:
    source = module.source
    return "" if source is None or one.offset < 0 else f"line {source.line(one.offset)}"


def _user_line(one: Instruction, module: Module) -> str:
    return module.user_line(one.metadata).rpartition("/")[2]
