"""Computations written by expanders: comparators, and loops that run a step some number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloopt.ir import Computation, Module, build, edit
from hloopt.passes.expand.writer import Term, Writer
from hloopt.types import Metadata, Shape, dtype

__all__ = ["RegionWriter", "loop", "region"]

Step = Callable[[Writer, Term, list[Term]], Sequence[Term]]


class RegionWriter(Writer):
    """A writer of a computation with parameters of the given shapes."""

    def __init__(
        self,
        computation: Computation,
        module: Module,
        metadata: Metadata | None,
        parameters: Sequence[Shape],
    ) -> None:
        super().__init__(computation, module, metadata)
        self.computation = computation
        self.parameters = [
            self.term(
                build.make(
                    computation,
                    "parameter",
                    (),
                    {"parameter_number": number},
                    shape=shape,
                    name=f"p{number}",
                )
            )
            for number, shape in enumerate(parameters)
        ]

    def finish(self, root: Term) -> Computation:
        """The computation, with its result."""
        edit.set_root(self.computation, root.instruction)
        return self.computation


def region(write: Writer, name: str, *parameters: Shape) -> RegionWriter:
    """A writer of a new computation of the module, whose name begins with ``name``."""
    computation = edit.add_computation(write.module, Computation(name))
    return RegionWriter(computation, write.module, write.metadata, parameters)


def loop(
    write: Writer, trips: int, state: Sequence[Term], step: Step, fixed: Sequence[Term] = ()
) -> list[Term]:
    """The state after a ``while`` that runs ``step(writer, i, state)`` for each s32 ``i`` below ``trips``.

    What is ``fixed`` follows the state and is the same in each iteration; ``step`` returns the state alone, in
    its shapes.  A single iteration is written without a loop.
    """
    start = write.scalar(dtype("s32"), 0)
    if trips == 1:
        return list(step(write, start, [*state, *fixed]))
    first = write.pack(start, *state, *fixed)
    shape = first.instruction.shape
    inner = region(write, "condition", shape)
    condition = inner.finish(inner.parameters[0].part(0) < trips)
    inner = region(write, "body", shape)
    index, *carried = (
        inner.parameters[0].part(number) for number in range(1 + len(state) + len(fixed))
    )
    following = step(inner, index, carried)
    body = inner.finish(inner.pack(index + 1, *following, *carried[len(state) :]))
    final = write.make("while", first, shape=shape, condition=condition, body=body)
    return [final.part(number) for number in range(1, 1 + len(state))]
