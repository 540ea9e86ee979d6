"""A module for several participants on the device ``native``: a program of its own for each, in lock step.

Participants share the compiled code and have memory of their own.  What they exchange is a call of the NumPy
executor, as every op without a loop: a collective meets the others there, whatever carries the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hloopt.backends.device_compile import Prepared
from hloopt.backends.native.program import NativeProgram
from hloopt.errors import EvaluationError, UsageError
from hloopt.interpret import Host, check_inputs
from hloopt.interpret.participant import Participant, Transport
from hloopt.interpret.participants import Participants
from hloopt.interpret.progress import Progress
from hloopt.runtime.program import NativeOptions, Program, SharedProgram
from hloopt.runtime.timing import StepClock
from hloopt.types import Array

__all__ = ["NativeParticipants"]


class NativeParticipants(SharedProgram):
    """A program for as many participants as the options say; ``prepared`` is the same for all."""

    def __init__(self, prepared: Prepared, options: NativeOptions) -> None:
        self.prepared = prepared
        self.module, self.plan = prepared.module, prepared.plan
        self.launches, self.progress = 0, Progress()
        self._counts = options.replicas, options.partitions
        self._make = partial(
            NativeProgram,
            prepared.module,
            prepared.plan,
            threads=options.threads,
            source=prepared.source,
        )
        self._members: dict[int, NativeProgram] = {}
        self.kernels = self._member(0).kernels

    def run(self, inputs: Sequence[Array], host: Host | None = None) -> list[Array]:
        """Raises ``EvaluationError``: several participants have several lists of inputs."""
        count = self._counts[0] * self._counts[1]
        raise EvaluationError(f"this program has {count} participants; see run_participants")

    def timed(self) -> tuple[Program, StepClock]:
        """Raises ``UsageError``: one clock cannot tell several programs apart."""
        raise UsageError("steps of several participants are timed on the device cpu, not native")

    def run_participants(
        self, inputs: Sequence[Sequence[Array]], host: Host | None = None
    ) -> list[list[Array]]:
        """Run the entry once for each participant."""
        return self._run(inputs, Host.given(host), None)

    def run_local(
        self, inputs: Sequence[Sequence[Array]], host: Host, transport: Transport
    ) -> list[list[Array]]:
        """Run the entry once for each participant of this process."""
        return self._run(inputs, host, transport)

    def _run(
        self, inputs: Sequence[Sequence[Array]], host: Host, transport: Transport | None
    ) -> list[list[Array]]:
        check_inputs(inputs, *self._counts)

        def one(participant: Participant) -> list[Array]:
            number = participant.number
            member = self._member(number)
            return member.run_as(participant, inputs[number], host.of(number))

        several = Participants[list[Array]](*self._counts, transport=transport)
        first = next(iter(several.local), 0)
        self.progress = self._member(first).progress
        outputs = several.run(one)
        self.launches = self._member(first).launches
        return outputs

    def _member(self, number: int) -> NativeProgram:
        if number not in self._members:
            self._members[number] = self._make()
        return self._members[number]
