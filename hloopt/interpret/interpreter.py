"""Running computations: a list of steps per computation, made once per evaluation.

A step is an evaluator, the slots of its operands and the slots that are dead after it, so that
the memory in use follows liveness.  Instructions are run in the computation's order; there is no
recursion per instruction, only per called computation.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hloopt.errors import UnsupportedError
from hloopt.interpret.context import Context, Evaluator, Value, leaf_arrays, map_arrays
from hloopt.interpret.control import zeros
from hloopt.interpret.dynamic import evaluator
from hloopt.interpret.elementwise import bound, elementwise
from hloopt.interpret.failures import failure
from hloopt.interpret.progress import Progress
from hloopt.interpret.regions import LIFTED, liftable
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import execution_order
from hloopt.types import Array, Literal

__all__ = ["Interpreter"]

_Run = Callable[[Instruction, tuple[Value, ...], Context], Value]
_Step = tuple[_Run, Instruction, tuple[int, ...], int, tuple[int, ...]]


class _Plan:
    """The steps of one computation over numbered slots; parameters come first."""

    __slots__ = ("dead_parameters", "root", "size", "steps")

    def __init__(
        self, computation: Computation, table: Mapping[str, Evaluator], context: Context
    ) -> None:
        slots: dict[Instruction, int] = {
            parameter: number for number, parameter in enumerate(computation.parameters)
        }
        pending: list[tuple[Evaluator, Instruction, tuple[int, ...], int]] = []
        for instruction in execution_order(computation):
            if instruction.opcode == "parameter":
                continue
            operands = tuple(slots[operand] for operand in instruction.operands)
            slot = len(slots)
            slots[instruction] = slot
            run = table[instruction.opcode]
            if run is elementwise:
                run = bound(instruction, context)
            run = evaluator(instruction, run)
            if context.rounding is not None:
                from hloopt.interpret.rounding import moved

                run = moved(instruction, run, context.rounding)
            elif context.bounds is not None:
                from hloopt.interpret.bounds import bounded

                run = bounded(instruction, run, context.bounds)
            if context.observer is not None:
                run = context.observer.observing(instruction, run)
            pending.append((run, instruction, operands, slot))
        self.size = len(slots)
        self.root = slots[computation.root]
        self.steps = self._with_deaths(pending)

    def _with_deaths(
        self, pending: list[tuple[Evaluator, Instruction, tuple[int, ...], int]]
    ) -> list[_Step]:
        seen = {self.root}
        steps: list[_Step] = []
        for run, instruction, operands, slot in reversed(pending):
            dead = tuple(sorted({*operands, slot} - seen))
            seen.update(dead)
            steps.append((run, instruction, operands, slot, dead))
        steps.reverse()
        return steps


class Interpreter(Context):
    """One evaluation of a module: ``call`` runs a computation, ``apply`` a region on arrays."""

    def __init__(
        self, module: Module, evaluators: Mapping[str, Evaluator], *, excess_precision: bool = False
    ) -> None:
        super().__init__(excess_precision=excess_precision)
        self._module = module
        self._table = ChainMap({"constant": _constant}, evaluators)  # type: ignore[arg-type]
        self._lifted_table = ChainMap(LIFTED, *self._table.maps)  # type: ignore[arg-type]
        self._plans: dict[Computation, _Plan] = {}
        self._lifted_plans: dict[Computation, _Plan | None] = {}

    def call(self, computation: Computation, args: Sequence[Value]) -> Value:
        """Evaluate a computation on its parameters' values."""
        plan = self._plans.get(computation)
        if plan is None:
            plan = self._plans[computation] = _Plan(computation, self._table, self)
        return self._run(plan, args)

    def enter(self, entry: Computation, args: Sequence[Value], progress: Progress) -> Value:
        """As ``call``, for a whole program: says how far it has come."""
        plan = _Plan(entry, self._table, self)
        self.progress = progress
        return self._run(plan, args, progress.through(plan.steps))

    def _run(
        self, plan: _Plan, args: Sequence[Value], steps: Iterable[_Step] | None = None
    ) -> Value:
        values: list[Any] = [None] * plan.size
        values[: len(args)] = args
        instruction = None
        try:
            for run, instruction, operands, slot, dead in plan.steps if steps is None else steps:
                values[slot] = run(instruction, tuple([values[index] for index in operands]), self)
                for index in dead:
                    values[index] = None
        except MemoryError as error:
            assert instruction is not None
            raise failure(
                instruction, f"no memory for {instruction.opcode} of {instruction.shape}"
            ) from error
        result: Value = values[plan.root]
        return result

    def apply(self, computation: Computation, arrays: Sequence[Value]) -> Value:
        """Apply a region of scalars to whole arrays, element by element, at once.

        Regions in which something is not a scalar are run once per element.
        """
        if computation not in self._lifted_plans:
            self._lifted_plans[computation] = (
                _Plan(computation, self._lifted_table, self) if liftable(computation) else None
            )
        plan = self._lifted_plans[computation]
        if self.progress is not None:
            self.progress.check()
        dims = np.broadcast_shapes(*[leaf.shape for leaf in leaf_arrays(tuple(arrays))])
        result = (
            self._apply_each(computation, arrays, dims) if plan is None else self._run(plan, arrays)
        )
        return map_arrays(lambda leaf: _spread(leaf, dims), result)

    def _apply_each(
        self, computation: Computation, arrays: Sequence[Value], dims: tuple[int, ...]
    ) -> Value:
        whole = map_arrays(lambda leaf: _spread(leaf, dims), tuple(arrays))
        results = []
        for index in np.ndindex(*dims):
            element = map_arrays(lambda leaf, at=index: np.asarray(leaf[at]), whole)
            assert isinstance(element, tuple)
            results.append(self.call(computation, element))
        if results:
            return map_arrays(lambda *leaves: np.stack(leaves).reshape(dims), *results)
        # Nothing is run, not even to see what it gives: it might not end.
        return map_arrays(
            lambda leaf: np.empty(dims, leaf.dtype), zeros(computation.root.shape, self)
        )

    def unsupported(self, instruction: Instruction, message: str) -> UnsupportedError:
        """An error to raise, with the instruction's name and line."""
        return self._module.unsupported(instruction, message)


def _constant(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    literal = instruction.literal
    assert literal is not None
    return _literal_value(literal, context)


def _literal_value(literal: Literal, context: Context) -> Value:
    if literal.array is None:
        return tuple(_literal_value(element, context) for element in literal.elements)
    return context.round(literal.array, literal.shape.dtype)  # type: ignore[union-attr]


def _spread(array: Array, dims: tuple[int, ...]) -> Array:
    return array if array.shape == dims else np.broadcast_to(array, dims)
