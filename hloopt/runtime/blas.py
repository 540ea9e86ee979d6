"""How many threads BLAS has while a program runs.

NumPy's BLAS shares products among threads of its own, which spin while they wait.  Beside other work, and
for products that take less time than waking a thread, that costs many times what it gains: each product ends
when the last of them was given a core.  So a program has one where all its products are small, else as many
as it may have itself and as there are cores without other work; before and after, the number of the process.

``threadpoolctl`` sets the number.  Where it is not installed the libraries keep their own.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Final

from hloopt.analysis.cost import instruction_cost
from hloopt.ir import Instruction, Module

__all__ = ["WORTH_SHARING", "blas_threads"]

WORTH_SHARING: Final = 50_000_000
"""Flops of a product from which on several threads help: about a millisecond of one core."""

_LIBRARY: Final = frozenset({"linear", "custom"})
"""Families of ops that BLAS and LAPACK compute."""


def blas_threads(module: Module, threads: int) -> AbstractContextManager[object]:
    """A context in which BLAS has as many threads as pay for a module's products, ``threads`` at most."""
    largest = max(map(_product, _instructions(module)), default=-1)
    if largest < 0:
        return nullcontext()
    return _Limit(threads if largest >= WORTH_SHARING else 1)


def _instructions(module: Module) -> list[Instruction]:
    return [entry for computation in module for entry in computation]


def _product(instruction: Instruction) -> int:
    """Flops of what BLAS computes; -1 for every other op."""
    if instruction.op.family not in _LIBRARY and instruction.opcode != "convolution":
        return -1
    return instruction_cost(instruction).flops


class _Limit:
    """Any number of threads may be inside; the last one to enter sets how many threads BLAS has."""

    _lock = Lock()
    _inside = 0
    _before: tuple[int, ...] = ()

    def __init__(self, count: int) -> None:
        self.count = count

    def __enter__(self) -> None:
        libraries = _libraries()
        with _Limit._lock:
            if not _Limit._inside:
                _Limit._before = tuple(one.get_num_threads() for one in libraries)
            _Limit._inside += 1
            count = self.count if self.count == 1 else max(1, min(self.count, _idle_cores()))
            for one in libraries:
                one.set_num_threads(count)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with _Limit._lock:
            _Limit._inside -= 1
            if not _Limit._inside:
                for one, count in zip(_libraries(), _Limit._before, strict=True):
                    one.set_num_threads(count)


_SYSTEM: Final = Path("/proc/loadavg")
_OWN: Final = Path("/proc/self/task")


def _idle_cores() -> int:
    """Cores of the machine on which no other process runs or waits now; all of them where Linux does not say.

    Threads of this process that still spin after the last product are not counted.
    """
    cores = os.cpu_count() or 1
    try:
        running = int(_SYSTEM.read_bytes().split()[3].partition(b"/")[0])
        # This thread is one of them.
        others = running - sum(map(_is_running, _OWN.iterdir())) if running > 1 else 0
    except (OSError, ValueError, IndexError):
        return cores
    return cores - max(others, 0)


def _is_running(task: Path) -> bool:
    try:
        # The name, in parentheses, may hold anything.
        return (task / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"R"
    except OSError:
        return False  # it ended


@cache
def _libraries() -> tuple[Any, ...]:
    """The BLAS libraries that this process has loaded; none where they cannot be controlled."""
    from importlib.util import find_spec

    if find_spec("threadpoolctl") is None:
        return ()
    from threadpoolctl import ThreadpoolController

    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)
