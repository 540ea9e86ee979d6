"""Participants on several processes, by MPI: the only import of mpi4py.

Processes take consecutive participants, as many each as there are for one.  Process 0 leads: it says what is
compiled and run, has the inputs and collects the results; the others serve it.  Messages are Python objects
between two processes.  Nothing waits inside MPI, so that a process that waits costs no time of a core which
another one needs.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError
from hloopt.extras import install_command
from hloopt.interpret.context import Value
from hloopt.interpret.participant import Claims, Meeting, Parcel, Transport, two_claims
from hloopt.runtime.mpi_reductions import MpiReductions, Pending

__all__ = ["Processes", "RemoteRun", "processes"]

_SHORTEST, _LONGEST = 1e-5, 2e-3
"""Seconds between two looks for a message: short at first, so that an answer is taken at once."""

_STARTED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Where mpiexec says how many processes it starts: Open MPI's, and MPICH's with all that is made from it."""


def processes() -> Processes:
    """The processes that ``mpiexec`` started, this one among them.

    Raises ``DeviceError`` where mpi4py is missing, no MPI is there that it can load, or that is not mpiexec's:
    then each process would believe itself alone, and do all by itself.
    """
    try:
        from mpi4py import MPI
    except ModuleNotFoundError as error:
        raise DeviceError(f"--participants mpi needs MPI: {install_command('mpi')}") from error
    except (ImportError, RuntimeError) as error:
        raise DeviceError(f"--participants mpi: {error}") from error
    found = Processes(MPI)
    said = (os.environ.get(name, "") for name in _STARTED)
    started = max((int(number) for number in said if number.isdecimal()), default=1)
    if found.count == 1 < started:
        loaded = MPI.Get_library_version().split(",")[0].split("\n")[0].strip()
        raise DeviceError(
            f"--participants mpi: mpiexec has started {started} processes, which do not see each other: it is "
            f"of another MPI than {loaded}, which mpi4py has loaded"
        )
    return found


class Processes:
    """All processes; ``rank`` is this one's number."""

    def __init__(self, mpi: Any) -> None:
        self._mpi, self._world, self._status = mpi, mpi.COMM_WORLD.Dup(), mpi.Status()
        self.rank: int = self._world.Get_rank()
        self.count: int = self._world.Get_size()
        self.communicators = 0
        self._sent: list[Any] = []
        self._kept: list[tuple[int, Any]] = []

    def owner(self, participant: int, participants: int) -> int:
        """The process of a participant."""
        return participant * min(self.count, participants) // participants

    def local(self, participants: int) -> tuple[int, ...]:
        """The participants of this process."""
        return tuple(
            number
            for number in range(participants)
            if self.owner(number, participants) == self.rank
        )

    def among(self, ranks: Sequence[int], operation: str) -> tuple[Any, Any]:
        """A communicator of some processes, None in others, and an operation of MPI.

        All of them have to ask for it, in the same order as for others.
        """
        self.communicators += 1
        made = None
        if self.rank in ranks:
            made = self._world.Create_group(self._world.Get_group().Incl(ranks), self.communicators)
        return made, getattr(self._mpi, operation)

    def send(self, rank: int, message: object) -> None:
        """Send to another process; does not wait."""
        self._sent = [one for one in self._sent if not one.Test()]
        self._sent.append(self._world.isend(message, dest=rank))

    def tell_all(self, message: object) -> None:
        """Send to all other processes."""
        for rank in range(self.count):
            if rank != self.rank:
                self.send(rank, message)

    def poll(self) -> tuple[int, Any] | None:
        """Who sent the next message, and the message; None where none has come."""
        for request in self._sent:
            request.Test()  # what was sent may need a push
        if not self._world.Iprobe(status=self._status):
            return None
        sender = self._status.Get_source()
        return sender, self._world.recv(source=sender)

    def keep(self, sender: int, message: object) -> None:
        """Keep a message that comes before its time."""
        self._kept.append((sender, message))

    def kept(self) -> list[tuple[int, Any]]:
        """The messages that were kept, which are kept no longer."""
        found, self._kept = self._kept, []
        return found

    def receive(self) -> tuple[int, Any]:
        """The next message; waits for it."""
        patience = _Patience()
        while True:
            found = self.poll()
            if found is not None:
                return found
            patience.wait()

    def abort(self, message: str, code: int) -> NoReturn:
        """End all processes, after saying why."""
        sys.stdout.flush()
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()
        self._world.Abort(code)
        raise SystemExit(code)  # for an MPI that lets this process go on


class _Patience:
    """Waits longer from time to time."""

    def __init__(self) -> None:
        self._seconds = _SHORTEST

    def wait(self) -> None:
        time.sleep(self._seconds)
        self._seconds = min(self._seconds * 1.5, _LONGEST)


@dataclass(frozen=True)
class _Data:
    """A message of a run between participants; ``run`` is the run's number."""

    run: int
    message: Parcel


@dataclass(frozen=True)
class _Idle:
    """A process has nothing to do before another one sends: what it has sent to each and received from each.

    ``places`` says where its participants are, ``done`` that they have ended.  ``started`` reductions of MPI's
    are ``pending`` until the others have started them.
    """

    run: int
    sent: Mapping[int, int]
    received: Mapping[int, int]
    started: Pending
    pending: Pending
    claims: Claims
    places: tuple[str, ...]
    done: bool


class RemoteRun(Transport):
    """One run: carries messages between participants of this process and those of others.

    All wait where all processes are idle and each has received what was sent to it.  Process 0 finds that out:
    a process that is idle tells it what it has sent and received.  ``reductions`` are those of the program that
    MPI makes, None where it is to make none.
    """

    def __init__(
        self,
        processes: Processes,
        number: int,
        participants: int,
        reductions: MpiReductions | None = None,
    ) -> None:
        self.local = processes.local(participants)
        self.claims = {}
        self._reductions = reductions
        self._processes, self._number, self._participants = processes, number, participants
        self._sent: defaultdict[int, int] = defaultdict(int)
        self._received: defaultdict[int, int] = defaultdict(int)
        self._reports: dict[int, _Idle] = {}
        self._early = deque(processes.kept())

    def send(self, receiver: int | None, message: Parcel) -> None:
        """Send to the process of a participant; to all others, where the receiver is not known."""
        processes = self._processes
        ranks = range(processes.count)
        if receiver is not None:
            ranks = range(at := processes.owner(receiver, self._participants), at + 1)
        for rank in ranks:
            if rank != processes.rank:
                self._sent[rank] += 1
                processes.send(rank, _Data(self._number, message))

    def reduces(self, meeting: Meeting) -> bool:
        """Whether MPI makes this reduction."""
        return self._reductions is not None and meeting in self._reductions

    def reduce(self, meeting: Meeting, values: Sequence[Value]) -> None:
        """Begin it."""
        assert self._reductions is not None, "asked before"
        self._reductions.begin(meeting, values)

    def receive(self, places: tuple[str, ...]) -> Parcel | None:
        """The next message for a participant of this process; None where all wait for each other.

        Raises ``EvaluationError``, as ``finish``, for what participants of several processes claim.
        """
        self._report(places, done=False)
        patience = _Patience()
        while True:
            found = self._next()
            if found is not None:
                return found
            if self._are_stuck():
                self._check_claims()
                return None
            patience.wait()

    def finish(self) -> bool:
        """Wait, in process 0, until all participants have ended; false where they never will."""
        self._report((), done=True)
        if self._processes.rank:
            return True
        patience = _Patience()
        while any(not self._is_done(rank) for rank in range(self._processes.count)):
            self._next()
            if self._are_stuck():
                self._check_claims()
                return False
            patience.wait()
        self._check_claims()
        return True

    def _check_claims(self) -> None:
        found: Claims = {}
        for _, report in sorted(self._reports.items()):
            for what, (number, at) in report.claims.items():
                owner, _ = found.setdefault(what, (number, at))
                if owner != number:
                    raise two_claims(at, owner, number)

    def _is_done(self, rank: int) -> bool:
        return rank in self._reports and self._reports[rank].done

    @property
    def places(self) -> tuple[str, ...]:
        """Where the participants are that wait, as far as process 0 knows."""
        return tuple(place for _, one in sorted(self._reports.items()) for place in one.places)

    def _report(self, places: tuple[str, ...], *, done: bool) -> None:
        made = self._reductions
        started = ({}, {}) if made is None else (dict(made.started), made.pending)
        counts = dict(self._sent), dict(self._received), *started
        report = _Idle(self._number, *counts, dict(self.claims), places, done)
        if self._processes.rank == 0:
            self._reports[0] = report
        else:
            self._processes.send(0, report)

    def _next(self) -> Parcel | None:
        """A message of this run, if one has come; reports are noted, what is of a later run is kept."""
        if self._reductions is not None and (ended := self._reductions.finished()):
            return Parcel("reduced", ended[0], 0, ended[1])
        found = self._early.popleft() if self._early else self._processes.poll()
        if found is None:
            return None
        sender, message = found
        if isinstance(message, _Data | _Idle) and message.run < self._number:
            return None
        if isinstance(message, _Idle) and message.run == self._number:
            self._reports[sender] = message
        elif isinstance(message, _Data) and message.run == self._number:
            self._received[sender] += 1
            return message.message
        else:
            self._processes.keep(sender, message)
        return None

    def _are_stuck(self) -> bool:
        """Whether all are idle, some not done, and nothing is under way.

        Reports of different times will do: the first process to go on after its report would need a message
        that another one sent before its own, which the counts would show.
        """
        count = self._processes.count
        if self._processes.rank or len(self._reports) < count:
            return False
        if all(report.done for report in self._reports.values()):
            return False
        made, reports = self._reductions, [self._reports[rank] for rank in range(count)]
        if made is not None and any(
            made.will_end(one.pending, [report.started for report in reports]) for one in reports
        ):
            return False
        return all(
            self._reports[sender].sent.get(receiver, 0)
            == self._reports[receiver].received.get(sender, 0)
            for sender in range(count)
            for receiver in range(count)
            if sender != receiver
        )
