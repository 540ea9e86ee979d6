"""Programs of the corpus for several devices on processes: results beside the interpreter's, and a killed one.

    python -m tests.corpus.spmd_board [--processes N] [--device cpu|native] [--seconds S] [FILE...]

Without files: the programs of ``$HLOOPT_CORPUS`` for 8 devices in which these meet.  Each is run by ``mpiexec`` with its
participants on N processes, more than there are cores, and what cannot be run says why; then the run is repeated without end, and one of its
processes killed: how long the others live is the second figure.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.helpers import mpi

_EIGHT = re.compile(r"(?:num_partitions|replica_count)=8\b")
_MEET = re.compile(
    r"\b(?:all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute)(?:-start)?\("
)
_MOST_SECONDS = 5.0


def main() -> int:
    """Print a line for each program; 1 where one is not right, or outlives a killed process too long."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--device", action="append")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("files", nargs="*")
    given = parser.parse_args()
    paths = [Path(name) for name in given.files] or _corpus()
    bad = 0
    for path in paths:
        for device in given.device or ("cpu", "native"):
            words = [*mpi.start(given.processes), sys.executable, "-m", "hloopt", "run"]
            words += ["--participants", "mpi", "--device", device, str(path)]
            verdict = _verdict(words, given.seconds)
            seconds = _killed(words, given.processes) if verdict == "ok" else None
            bad += verdict in ("differs", "nothing verified", "too long")
            bad += seconds is not None and seconds > _MOST_SECONDS
            lived = "" if seconds is None else f"{seconds:5.2f} s"
            print(f"{path.name:50} {device:7} {verdict:12} {lived}".rstrip(), flush=True)
    print(f"{len(paths)} programs, {bad} bad")
    return int(bad > 0)


def _corpus() -> list[Path]:
    top = Path(os.environ["HLOOPT_CORPUS"])
    found = [*top.glob("jax/*.before.hlo"), *top.glob("xla-tests/texts/*.hlo")]
    texts = {path: path.read_text() for path in sorted(found)}
    return [path for path, text in texts.items() if _EIGHT.search(text) and _MEET.search(text)]


def _verdict(words: list[str], seconds: float) -> str:
    words = [*words, "--repeat", "1", "--json"]
    try:
        ran = subprocess.run(
            words,
            env=mpi.environment(),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "too long"
    if ran.returncode not in (0, 1) or not ran.stdout.strip():
        said = [line for line in ran.stderr.splitlines() if line.strip("- ")]
        return next((line for line in said if "error:" in line), (said or ["no answer"])[0])
    (row,) = json.loads(ran.stdout)["modules"]
    return str(row["verdict"])


def _killed(words: list[str], count: int) -> float:
    """Seconds that a run goes on after one of its processes was killed."""
    words = [*words, "--no-verify", "-O0", "--repeat", "1000000"]
    none = subprocess.DEVNULL
    with subprocess.Popen(words, stdout=none, stderr=none, env=mpi.environment()) as run:
        ranks: list[int] = []
        while len(ranks) < count and run.poll() is None:
            time.sleep(0.1)
            ranks = [
                one for one, line in mpi.descendants(run.pid) if line.startswith(sys.executable)
            ]
        time.sleep(4)
        begin = time.monotonic()
        if run.poll() is None:
            os.kill(ranks[-1], signal.SIGKILL)
            run.wait(60)
        return time.monotonic() - begin


if __name__ == "__main__":
    sys.exit(main())
