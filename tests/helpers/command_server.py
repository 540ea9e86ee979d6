"""``hloopt`` without its start-up: a process that has everything loaded, and is forked for each command.

The commands of documentation pages are hundreds of processes, and most of their time would be imports.  ``commands()`` starts a
server and gives the folder to put first in ``PATH``: the ``hloopt`` in it hands its arguments, folder, environment and
streams to the server, and exits as the fork does.  What a start costs and loads is tested in ``test_start_up.py``.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import marshal
import os
import pkgutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
_CLIENT = f"""#!{sys.executable} -ISs
import _socket, marshal, os, sys
asked = _socket.socket(_socket.AF_UNIX)
asked.connect(os.path.dirname(os.path.abspath(__file__)) + "/socket")
given = [0, 1, 2, *(int(word[8:]) for word in sys.argv if word.startswith("/dev/fd/"))]
streams = b"".join(n.to_bytes(4, sys.byteorder) for n in given)
data = marshal.dumps((given, sys.argv[1:], os.getcwd(), dict(os.environ)))
asked.sendmsg([len(data).to_bytes(8, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
asked.sendall(data)
for n in given:
    os.close(n)  # readers of our pipes see their end when the command ends
answer = asked.recv(1)
os._exit(answer[0] if answer else 70)
"""
_UNLOADED = ("hloopt.torch", "hloopt.jax", "hloopt.stablehlo.child", "hloopt.__main__")
"""What needs packages that few have, or runs when it is imported."""


@contextmanager
def commands() -> Iterator[Path]:
    """A folder with an ``hloopt`` that runs this tree, as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="hloopt-") as name:
        folder = Path(name)
        client = folder / "hloopt"
        client.write_text(_CLIENT)
        client.chmod(0o755)
        command = [sys.executable, "-m", "tests.helpers.command_server", str(folder / "socket")]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n", "the server of commands does not start"
            yield folder
            server.terminate()


def _load() -> None:
    import hloopt

    for module in pkgutil.walk_packages(hloopt.__path__, "hloopt."):
        if module.name.startswith(_UNLOADED):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as missing:
            if (missing.name or "").startswith("hloopt"):
                raise
    hloopt.parse("a = f32[2] iota(), iota_dimension=0")
    gc.freeze()
    # Commands ask whether there are any, again and again, and Python counts a million one by one.
    gc.get_freeze_count = lambda: 1


def _serve(address: str) -> None:
    _load()
    answering = 0
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(64)
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _answer(connection)
            connection.close()
            answering += 1
            while answering and os.waitpid(-1, os.WNOHANG)[0]:
                answering -= 1


def _answer(connection: socket.socket) -> None:
    """Run the command in a fork of this fork, which ends as a program does, and send its exit code."""
    length, streams, _, _ = socket.recv_fds(connection, 8, 32)
    data = b""
    while len(data) < int.from_bytes(length, "little"):
        data += connection.recv(1 << 20)
    child = os.fork()
    if child == 0:
        connection.close()
        _become(streams, *marshal.loads(data))
        from hloopt.cli.main import main

        end_at_once(main)
    for n in (*streams, 0, 1, 2):
        os.close(n)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.send(bytes([status if status >= 0 else 128 - status]))
    os._exit(0)


def end_at_once(main: Callable[[], None]) -> NoReturn:
    """Run a program and end as one does, but leave the memory to the system.

    To take apart all that is loaded, page by page of its own, takes ten times as long as a small command.
    """
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - as Python does at the top
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _become(
    streams: list[int],
    numbers: list[int],
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
) -> None:
    """Make this process what a new one would be."""
    aside = [fcntl.fcntl(stream, fcntl.F_DUPFD_CLOEXEC, 1000) for stream in streams]
    for stream in streams:
        os.close(stream)
    for n, stream in zip(numbers, aside, strict=True):
        os.dup2(stream, n, inheritable=n < 3)
        os.close(stream)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["hloopt", *arguments]
    named = environment.get("PYTHONPATH", "")
    sys.path[0:1] = [str(Path(path).resolve()) for path in named.split(os.pathsep) if path]


if __name__ == "__main__":
    _serve(sys.argv[1])
