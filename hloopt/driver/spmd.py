"""``--participants mpi``: the participants of a module on the processes that mpiexec started.

Process 0 does all that a run does, and has the others compile and run what it does.  They need neither files
nor options of their own: modules go to them as text, with the user's text for errors, inputs as arrays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from hloopt.backends import compile_module
from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError, HlooptError, UnsupportedError
from hloopt.interpret import Host
from hloopt.runtime.mpi import Processes, RemoteRun, processes
from hloopt.runtime.mpi_reductions import MpiReductions
from hloopt.runtime.program import NativeOptions, NumpyOptions, Program, SharedProgram
from hloopt.source import Source
from hloopt.text.parser import parse_module
from hloopt.types import Array

if TYPE_CHECKING:
    from hloopt.ir import Module

__all__ = ["World", "processes"]


_Options: TypeAlias = NumpyOptions | NativeOptions


@dataclass(frozen=True)
class _Compile:
    """``read`` is the name and the text that the module was read from, ``offsets`` the places in that."""

    program: int
    text: str
    options: _Options
    read: tuple[str, str] | None
    offsets: Mapping[tuple[str, str], int]

    @classmethod
    def of(cls, number: int, module: Module, options: _Options) -> _Compile:
        source = module.source
        offsets = {
            (computation.name, one.name): one.offset
            for computation in module.computations.values()
            for one in computation
        }
        read = None if source is None else (source.name, source.text)
        return cls(number, module.to_text(), options, read, offsets)

    def module(self) -> Module:
        """The module, whose instructions are where they are in the user's text."""
        module = parse_module(self.text, f"program {self.program}")
        if self.read is not None:
            name, text = self.read
            module.source = Source(text, name)
            for computation in module.computations.values():
                for one in computation:
                    one.offset = self.offsets.get((computation.name, one.name), -1)
        return module


@dataclass(frozen=True)
class _RunAll:
    """``inputs`` are None where they are those of the run before."""

    program: int
    run: int
    inputs: Sequence[Sequence[Array]] | None
    host: Host


@dataclass(frozen=True)
class _Results:
    run: int
    outputs: dict[int, list[Array]]
    hosts: dict[int, Host]


@dataclass(frozen=True)
class _Stop:
    pass


class World:
    """The processes and the programs that they have compiled."""

    def __init__(
        self, processes: Processes, show: Callable[[HlooptError], None], *, exact: bool
    ) -> None:
        self.processes = processes
        self.inputs: Sequence[Sequence[Array]] | None = None
        self._exact = exact
        self._programs: list[tuple[SharedProgram, MpiReductions | None]] = []
        self._runs = 0
        self._show = show

    def share(self, program: Program, module: Module, options: _Options) -> Program:
        """What process 0 has made of a module, as a program of all processes; as it is for one participant."""
        if not isinstance(program, SharedProgram) or options.replicas * options.partitions == 1:
            return program
        number = len(self._programs)
        self.processes.tell_all(_Compile.of(number, module, options))
        self._add(program, options)
        return _Spread(program, number, self)

    def _add(self, program: SharedProgram, options: _Options) -> None:
        counts = options.replicas, options.partitions
        made = None if self._exact else MpiReductions(self.processes, program.module, counts)
        self._programs.append((program, made))

    def stop(self) -> None:
        """Have the other processes end."""
        if self.processes.rank == 0:
            self.processes.tell_all(_Stop())

    def serve(self) -> None:
        """Do what process 0 says, until it says that this is all; for the others."""
        while True:
            sender, message = self.processes.receive()
            if isinstance(message, _Stop):
                return
            try:
                if isinstance(message, _Compile | _RunAll):
                    self._do(message)
                else:  # another process has begun with the next run
                    self.processes.keep(sender, message)
            except (HlooptError, MemoryError) as error:
                self.fail(error)

    def _do(self, message: _Compile | _RunAll) -> None:
        if isinstance(message, _Compile):
            options = message.options
            device = "cpu" if isinstance(options, NumpyOptions) else "native"
            program = compile_module(message.module(), device, options)
            assert isinstance(program, SharedProgram), "several participants run it"
            self._add(program, options)
            return
        if message.inputs is not None:
            self.inputs = message.inputs
        assert self.inputs is not None, "the first run has some"
        outputs, hosts = self.run(message.program, message.run, self.inputs, message.host)
        self.processes.send(0, _Results(message.run, outputs, hosts))

    def run(
        self, number: int, run: int, inputs: Sequence[Sequence[Array]], host: Host
    ) -> tuple[dict[int, list[Array]], dict[int, Host]]:
        """Run this process's participants: their results and hosts by their numbers."""
        program, reductions = self._programs[number]
        transport = RemoteRun(self.processes, run, len(inputs), reductions)
        outputs = program.run_local(inputs, host, transport)
        if not transport.finish():
            waiting = "; ".join(transport.places)
            raise EvaluationError(f"participants wait for each other without end: {waiting}")
        local = transport.local
        return dict(zip(local, outputs, strict=True)), {at: host.of(at) for at in local}

    def run_all(
        self, number: int, inputs: Sequence[Sequence[Array]], host: Host
    ) -> list[list[Array]]:
        """Run all participants; the results of each.  An error ends all processes."""
        self._runs += 1
        given = None if inputs is self.inputs else inputs
        self.inputs = inputs
        self.processes.tell_all(_RunAll(number, self._runs, given, host.restarted()))
        try:
            outputs, _ = self.run(number, self._runs, inputs, host)
        except (HlooptError, MemoryError) as error:
            self.fail(error)
        messages = deque(self.processes.kept())
        while len(outputs) < len(inputs):
            _, message = messages.popleft() if messages else self.processes.receive()
            if isinstance(message, _Results) and message.run == self._runs:
                outputs |= message.outputs
                for at, other in message.hosts.items():
                    host.take(at, other)
        return [outputs[at] for at in range(len(inputs))]

    def fail(self, error: HlooptError | MemoryError) -> None:
        """End all processes with a message that names this one."""
        if isinstance(error, MemoryError):
            error = UnsupportedError(
                f"out of memory: {error or 'allocation failed'}", name="hloopt"
            )
        self._show(error)
        self.processes.abort(
            f"note: this ended process {self.processes.rank}, and so all", error.exit_code
        )


class _Spread(Program):
    """A program that runs on all processes."""

    def __init__(self, program: SharedProgram, number: int, world: World) -> None:
        self.module, self.kernels = program.module, program.kernels
        self.plan, self.prepared = (getattr(program, name, None) for name in ("plan", "prepared"))
        self.progress, self.launches = program.progress, 0
        self._program, self._number, self._world = program, number, world

    def run(self, inputs: Sequence[Array], host: Host | None = None) -> list[Array]:
        """Raises ``EvaluationError``: several participants have several lists of inputs."""
        return self._program.run(inputs, host)

    def run_participants(
        self, inputs: Sequence[Sequence[Array]], host: Host | None = None
    ) -> list[list[Array]]:
        """Run each participant on its process."""
        outputs = self._world.run_all(self._number, inputs, Host.given(host))
        self.launches = self._program.launches
        return outputs
