"""The process a program runs in: commands to it, its reports, and its end."""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import subprocess
import time
import weakref
from contextlib import suppress
from pathlib import Path

from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError

__all__ = ["CONTROL_BYTES", "Child", "ChildEndedError", "Ending"]

CONTROL_BYTES = 1 << 16  # the first of the memory; as large as any page

_POLL = 0.05  # seconds between looks at the clock


class _Control(ctypes.Structure):
    """``include/control.h`` writes the same layout."""

    _fields_ = (
        ("begun", ctypes.c_uint64),
        ("is_launching", ctypes.c_uint32),
        ("status", ctypes.c_uint32),
        ("line", ctypes.c_int32),
        ("signal", ctypes.c_int32),
        ("has_block", ctypes.c_uint32),
        ("has_thread", ctypes.c_uint32),
        ("block", ctypes.c_uint32 * 3),
        ("thread", ctypes.c_uint32 * 3),
        ("text", ctypes.c_char * 1024),
    )


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a child ended, and what it was doing.

    text    what it found, as words that follow "the kernel"
    launch  the number of the running launch since the child began, or None between launches
    line    of the program's text, or 0
    """

    text: str
    launch: int | None
    line: int = 0
    block: tuple[int, ...] | None = None
    thread: tuple[int, ...] | None = None


class ChildEndedError(Exception):
    """The child has ended, or was ended; ``ending`` says why."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.text)
        self.ending = ending


class Child:
    """A running program.  Its memory is the file ``memory``, to whose first page it writes its state.

    Raises ``DeviceError`` where it cannot be started.
    """

    def __init__(
        self, program: Path, memory: int, *, threads: int, seed: int, time_limit: float
    ) -> None:
        self.time_limit = time_limit
        self._page = mmap.mmap(memory, CONTROL_BYTES)
        self._control = _Control.from_buffer(self._page)
        ctypes.memset(ctypes.addressof(self._control), 0, ctypes.sizeof(_Control))
        commands, self._commands = os.pipe()
        self._replies, replies = os.pipe()
        try:
            self._process = subprocess.Popen(
                [
                    str(program),
                    *map(str, (memory, commands, replies, os.getpid(), threads, seed)),
                ],
                pass_fds=(memory, commands, replies),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt from the keyboard is the parent's
            )
        except OSError as error:
            for descriptor in (self._commands, self._replies):
                os.close(descriptor)
            raise DeviceError(
                f"the emulator cannot run {str(program)!r}: {error.strerror}; HLOOPT_CACHE_DIR may name "
                "a folder whose programs can be run"
            ) from error
        finally:
            os.close(commands)
            os.close(replies)
        os.set_blocking(self._commands, False)
        self._end = weakref.finalize(self, _end, self._process, (self._commands, self._replies))

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def exchange(self, data: bytes | bytearray) -> None:
        """Send commands, the last of which requests a reply, and wait for it.

        Raises ``ChildEndedError`` where the child ends first or a launch takes longer than the limit.
        """
        left = memoryview(data)
        begun, since = -1, time.monotonic()
        while True:
            readable, writable, _ = select.select(
                [self._replies], [self._commands] if left else [], [], _POLL
            )
            if writable:
                try:
                    left = left[os.write(self._commands, left) :]
                except BlockingIOError:
                    pass
                except BrokenPipeError:
                    left = left[:0]  # it has ended; the replies say why
            if readable:
                if os.read(self._replies, 1):
                    return
                raise ChildEndedError(self._ending())
            if begun != self._control.begun:
                begun, since = self._control.begun, time.monotonic()
            elif not writable and time.monotonic() - since > self.time_limit:
                ending = Ending(f"did not end within {self.time_limit:g} s", self._launch())
                self.close()
                raise ChildEndedError(ending)

    def close(self) -> None:
        """End the process."""
        self._end()

    def _launch(self) -> int | None:
        return self._control.begun - 1 if self._control.is_launching else None

    def _ending(self) -> Ending:
        code = self._process.wait()
        control = self._control
        block = tuple(control.block) if control.has_block else None
        thread = tuple(control.thread) if control.has_thread else None
        text = bytes(control.text).decode(errors="replace")
        if control.status != _FINDING:
            number = control.signal or -code
            with suppress(ValueError):
                name = signal.Signals(number).name
                text = f"crashed with {name}" + (f": {text}" if text else "")
            text = text or f"ended its process with exit code {code}"
        ending = Ending(text, self._launch(), control.line, block, thread)
        self.close()
        return ending


_FINDING = 1


def _end(process: subprocess.Popen[bytes], descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    process.kill()
    process.wait()
