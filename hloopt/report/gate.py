"""Gates: what may grow between two modules, and by how much.

::

    gates := gate ("," gate)*
    gate  := FIGURE "<=" limit
    limit := NUMBER UNIT?              the figure of the second module itself
           | SIGN NUMBER UNIT?         how much it may be above the first module's (``-1``: below)
           | SIGN NUMBER "%"           the same in hundredths of the first module's

Blanks are free.  Units are those of the figure: B, KiB ... TiB and kB ... TB of bytes, k ... P of flops and of
counts; a time needs one of ns, us, ms and s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NoReturn

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.rewrite.spec import did_you_mean
from hloopt.source import Source

__all__ = ["FIGURES", "Gate", "GateVerdict", "parse_gates"]

_COUNTS: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BYTES: Final = {
    "": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
}  # fmt: skip
_TIMES: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}

FIGURES: Final[Mapping[str, Mapping[str, float]]] = {
    "kernels": _COUNTS,
    "launches": _COUNTS,
    "bytes": _BYTES,
    "peak": _BYTES,
    "flops": _COUNTS,
    "transcendentals": _COUNTS,
    "time": _TIMES,
    "instructions": _COUNTS,
}
"""What a gate may be about, with its units; time is in seconds, peak the most bytes alive at once."""

_WORD = re.compile(r"\s*([A-Za-z_]+)")
_AT_MOST = re.compile(r"\s*<=")
_LIMIT = re.compile(r"\s*([+-]?)(\d+(?:\.\d*)?|\.\d+)\s*(%|[A-Za-zµ]*)")
_BLANKS = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Gate:
    """One figure of the second module that must not be above a limit.

    text     as the user wrote it
    value    the limit: in units of the figure, or a factor of the first module's figure for ``percent``
    relative  whether the limit is added to the first module's figure
    """

    text: str
    figure: str
    value: float
    relative: bool = False
    percent: bool = False

    def limit(self, before: float) -> float:
        """The most that the figure of the second module may be."""
        if self.percent:
            return before + before * self.value
        return before + self.value if self.relative else self.value

    def check(self, before: float, after: float) -> GateVerdict:
        """Whether a figure that was ``before`` may be ``after``; equal is within the limit."""
        limit = self.limit(before)
        slack = 1e-9 * max(abs(limit), abs(after))  # percentages of integers are not exact
        return GateVerdict(self, before, after, limit, after <= limit + slack)


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """What a gate says of two figures."""

    gate: Gate
    before: float
    after: float
    limit: float
    passed: bool


def parse_gates(text: str) -> tuple[Gate, ...]:
    """Read the text of ``--max``; raises ``UsageError`` with the column where it stops making sense."""
    gates: list[Gate] = []
    at = 0
    while True:
        gate, at = _gate(text, at)
        gates.append(gate)
        at = _skip(text, at)
        if at == len(text):
            return tuple(gates)
        if text[at] != ",":
            _fail(text, at, f"expected ',' or the end, found {text[at]!r}")
        at += 1


def _gate(text: str, start: int) -> tuple[Gate, int]:
    start = _skip(text, start)
    word = _WORD.match(text, start)
    if word is None:
        _fail(text, start, f"expected one of {', '.join(FIGURES)}, found {_found(text, start)}")
    figure = word[1]
    if figure not in FIGURES:
        hint = did_you_mean(figure, FIGURES)
        _fail(text, word.start(1), f"no gate is called '{figure}'{hint}", len(figure))
    sign = _AT_MOST.match(text, word.end())
    if sign is None:
        at = _skip(text, word.end())
        _fail(text, at, f"expected '<=' after '{figure}', found {_found(text, at)}")
    limit = _LIMIT.match(text, sign.end())
    if limit is None:
        at = _skip(text, sign.end())
        _fail(text, at, f"expected a limit such as 100, +0 or +2%, found {_found(text, at)}")
    plain = text[start : limit.end()].strip()
    value = float(limit[2]) * (-1 if limit[1] == "-" else 1)
    if limit[3] == "%":
        if not limit[1]:
            message = f"a percentage is of what was before: write +{limit[2]}% or -{limit[2]}%"
            _fail(text, limit.start(2), message, limit.end() - limit.start(2))
        return Gate(plain, figure, value / 100, relative=True, percent=True), limit.end()
    units = FIGURES[figure]
    if limit[3] not in units and not (limit[3] == "" and value == 0):
        at = limit.start(3) if limit[3] else limit.end()
        valid = ", ".join(filter(None, units))
        said = f"'{limit[3]}' is not a unit of {figure}" if limit[3] else f"{figure} needs a unit"
        _fail(text, at, f"{said} (valid: {valid})", max(1, len(limit[3])))
    return Gate(plain, figure, value * units.get(limit[3], 1.0), bool(limit[1])), limit.end()


def _skip(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _found(text: str, at: int) -> str:
    return repr(text[at]) if at < len(text) else "the end"


def _fail(text: str, at: int, message: str, width: int = 1) -> NoReturn:
    excerpt = Source(text, "--max").excerpt(at, width)
    raise UsageError(f"--max, column {at + 1}: {message}\n{excerpt}")
