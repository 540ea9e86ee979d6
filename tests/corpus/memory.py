"""How much memory reading a text takes: ``python memory.py FILE`` prints bytes, in a process of its own.

What the empty process has, hloopt imported and its grammar loaded, is not counted.
"""

from __future__ import annotations

import math
import re
import resource
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
__all__ = ["LARGE", "MOST", "outcome", "times"]

LARGE = 1_000_000  # bytes; smaller texts say more about the process than about the reader
MOST = 30.0  # times the file's size
TIME_LIMIT = 600.0
TINY = "HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }\n"


def outcome(path: Path) -> str:
    """``ok: N.N times the file``, or ``failed: ...`` where it is more than allowed."""
    command = [sys.executable, "-m", "tests.corpus.memory", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT)
    if done.returncode:
        return f"failed: {(done.stderr.splitlines() or ['the process died'])[-1]}"
    found = int(done.stdout) / path.stat().st_size
    return f"{'ok' if found <= MOST else 'failed'}: {found:.1f} times the file"


def times(said: str) -> int:
    """How many times the file an outcome says, rounded up; 0 where nothing was measured."""
    found = re.search(r": ([0-9.]+) times", said)
    return math.ceil(float(found[1])) if found else 0


def _bytes(kind: str) -> int:
    """What this process has in memory now (``VmRSS``) or had at most (``VmHWM``).

    Linux says it of this process alone; getrusage counts what the parent had when it started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith(kind))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main(path: str) -> None:
    """Read a tiny module, then the file."""
    import hloopt

    hloopt.parse(TINY)
    before = _bytes("VmRSS")
    try:
        module = hloopt.parse(Path(path).read_text(), path)
    except hloopt.ParseError as error:
        sys.exit(str(error).split("\n", 1)[0])
    print(_bytes("VmHWM") - before)
    del module


if __name__ == "__main__":
    main(sys.argv[1])
