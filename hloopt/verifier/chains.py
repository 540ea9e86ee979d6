"""What starts asynchronously and is ended later: async-start, copies, collectives, transfers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import DONES, STARTS, TRANSFERS, op_table
from hloopt.types import FrontendAttributes, compatible
from hloopt.verifier.constraints import Fault

__all__ = ["CHAINED", "ChainChecks", "thread_faults"]

_MAIN = "main"
_THREAD = "async_execution_thread"

# What begins, and who may use it; what goes on or ends, and what it may be given.
_USERS: Mapping[str, tuple[str, ...]] = op_table(
    {
        "all-reduce-start": ("all-reduce-done",),
        "async-start": ("async-update", "async-done"),
        "async-update": ("async-update", "async-done"),
        "collective-permute-start": ("collective-permute-done",),
        "copy-start": ("copy-done",),
        "recv": ("recv-done", "tuple"),
        "send": ("send-done", "tuple"),
    },
    STARTS | {"async-update"},
    "any use is allowed",
)
_OPERANDS: Mapping[str, tuple[str, ...]] = op_table(
    {
        "all-reduce-done": ("all-reduce-start",),
        "async-done": ("async-start", "async-update"),
        "async-update": ("async-start", "async-update"),
        "collective-permute-done": ("collective-permute-start",),
        "copy-done": ("copy-start",),
        "recv-done": ("recv", "get-tuple-element"),
        "send-done": ("send", "get-tuple-element"),
    },
    DONES | {"async-update"},
    "shape inference checks it",
)

CHAINED = tuple({**_USERS, **_OPERANDS})
"""The opcodes that ``ChainChecks`` looks at."""

# What an async-start may wrap beside a single op: transfers, and what passes their parts on.
_TRANSFERS = STARTS & TRANSFERS | {"bitcast", "parameter", "tuple"}
_PARTS = ("parameter", "get-tuple-element")
_GROUP = "_collectives_group"


def thread_faults(instruction: Instruction, called: Computation) -> Iterator[Fault]:
    """Only async-start leaves its thread; what does not say its thread runs on that of its callers."""
    there = called.execution_thread
    if there is None or instruction.computation is None:
        return
    here = _thread(instruction.computation)
    if here is not None and here != there:
        yield Fault(
            instruction,
            "execution-thread",
            f"runs on thread {here!r} and calls %{called.name}, which runs on {there!r}",
        )


def _thread(computation: Computation) -> str | None:
    """The thread that a computation says, or the asynchronous op that runs it; None for its callers'."""
    if computation.execution_thread is not None:
        return computation.execution_thread
    caller = next(iter(computation.callers), None)
    if caller is None:
        return _MAIN
    thread = caller.attributes.get(_THREAD) if caller.opcode == "async-start" else None
    return None if thread is None else str(thread)


class ChainChecks:
    """The checks of one module; instructions are given in the order of their computations."""

    def __init__(self) -> None:
        self._starts: dict[Instruction, Instruction] = {}
        self._transfers: dict[int, Instruction] = {}

    def faults(self, instruction: Instruction) -> Iterator[Fault]:
        """The offences of an instruction that starts or ends something."""
        opcode = instruction.opcode
        if opcode in _OPERANDS:
            yield from self._given(instruction, _OPERANDS[opcode])
        if opcode in _USERS:
            yield from self._used(instruction, _USERS[opcode])
        if opcode == "async-start":
            self._starts[instruction] = instruction
            yield from self._wrapped(instruction)
        elif opcode in ("send", "recv"):
            yield from self._channel(instruction)

    def _given(self, instruction: Instruction, opcodes: tuple[str, ...]) -> Iterator[Fault]:
        before = instruction.operands[0]
        if before.opcode not in opcodes:
            yield Fault(
                instruction,
                "async-chain",
                f"ends or goes on with %{before.name}, which is {before.opcode}, not "
                f"{_one_of(opcodes)}",
            )
            return
        start = self._starts.get(before)
        if start is None:
            return
        self._starts[instruction] = start
        called = start.attributes["calls"]
        own = instruction.attributes.get("calls", called)
        if own is not called:
            yield Fault(
                instruction,
                "async-chain",
                f"calls= is %{own.name}, %{start.name} calls %{called.name}",
            )
        thread = str(start.attributes.get(_THREAD, _MAIN))
        mine = str(instruction.attributes.get(_THREAD, thread))
        if mine != thread:
            yield Fault(
                instruction,
                "execution-thread",
                f"{_THREAD}={mine!r}, that of %{start.name} is {thread!r}",
            )

    def _used(self, instruction: Instruction, opcodes: tuple[str, ...]) -> Iterator[Fault]:
        if instruction.opcode in ("send", "recv") and _ends_async(instruction):
            return
        users = list(instruction.users)
        if len(users) != 1 or users[0].opcode not in opcodes:
            names = ", ".join(f"%{user.name} ({user.opcode})" for user in users[:5]) or "nothing"
            yield Fault(
                instruction,
                "async-chain",
                f"is used by {names}; it must be used by one {_one_of(opcodes)}",
            )

    def _wrapped(self, start: Instruction) -> Iterator[Fault]:
        called: Computation = start.attributes["calls"]
        thread, own = start.attributes.get(_THREAD), called.execution_thread
        if thread is not None and own is not None and str(thread) != own:
            yield Fault(
                start,
                "execution-thread",
                f"{_THREAD}={str(thread)!r}, %{called.name} runs on {own!r}",
            )
        if next(iter(called.callers), start) is not start:
            return  # reported where it is called first
        others = [one for one in called if one is not called.root and one.opcode != "parameter"]
        if not others or _GROUP in FrontendAttributes.of(start.attributes):
            return
        if all(one.opcode in _TRANSFERS for one in called):
            return
        if all(one.opcode in _PARTS for one in others):
            return
        yield Fault(
            called,
            "async-computation",
            f"is wrapped by %{start.name} and has %{others[0].name} beside its root",
        )

    def _channel(self, instruction: Instruction) -> Iterator[Fault]:
        attributes = instruction.attributes
        channel = attributes.get("channel_id")
        if channel is None:
            return
        if attributes.get("is_host_transfer"):
            first = self._transfers.setdefault(channel, instruction)
            if not _alike(first, instruction):
                yield Fault(
                    instruction,
                    "channel",
                    f"channel_id={channel} to the host is also that of %{first.name}, which is "
                    f"{first.opcode} of {first.shape}",
                )
        for done in instruction.users:
            if done.opcode != f"{instruction.opcode}-done":
                continue
            for name in ("channel_id", "is_host_transfer"):
                mine, other = attributes.get(name) or 0, done.attributes.get(name) or 0
                if mine != other:
                    shown = f"{other!r}".lower()
                    yield Fault(
                        instruction,
                        "channel",
                        f"{name}={f'{mine!r}'.lower()}, %{done.name} has {shown}",
                    )


def _alike(first: Instruction, second: Instruction) -> bool:
    return (
        first.opcode == second.opcode
        and compatible(first.shape, second.shape)
        and len(first.operands) == len(second.operands)
    )


def _ends_async(instruction: Instruction) -> bool:
    """Whether this is what an async-start wraps: its users are outside."""
    computation = instruction.computation
    return (
        computation is not None
        and computation.root is instruction
        and any(caller.opcode == "async-start" for caller in computation.callers)
    )


def _one_of(opcodes: tuple[str, ...]) -> str:
    return " or ".join(opcodes)
