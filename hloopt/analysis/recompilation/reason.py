"""What can make a second compilation necessary, the most telling first, and what to do about each."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction

__all__ = ["REMEDIES", "Reason", "argument_name", "by_weight", "user_line_near"]

REMEDIES: Final = {
    "parameters": "call it with the same arguments: an optional one that is sometimes None, and a tree of "
    "arguments with other leaves, are other programs",
    "order": "keep the order of arguments, and of the leaves in trees of arguments",
    "dtype": "convert the argument before the call: integers for floats, NumPy's float64 and mixed precision "
    "are other programs",
    "shape": "pad the argument to one of a few fixed sizes, and mask the rest; drop or pad the last batch",
    "dynamic": "keep the same dimensions dynamic, with the same bounds",
    "layout": "keep the argument's layout, or leave its choice to the compiler",
    "devices": "call it on the same devices, or one mesh of them, each time",
    "sharding": "place the argument alike before each call; one that was put on a device is not like one "
    "that was not",
    "donation": "donate the same arguments in every call (donate_argnums)",
    "constant": "pass the value as an argument: what a function closes over is compiled into it",
    "flag": "set flags and compiler options once, alike for all processes that share a cache",
    "program": "a value of the host language decided what was traced (a static argument, a branch, a loop's "
    "length): keep it, or make it an array",
    "header": "compile it with the same settings",
    "result": "keep the layouts of results, or leave their choice to the compiler",
    "frontend": "pass scalars as arrays of one type: the frontend traced two programs that are the same HLO, "
    "such as for a number of the host language and an array of one element",
    "values": "dump again with --xla_dump_hlo_as_proto, which keeps the values, and compare those",
    "metadata": "source lines and names change no program: JAX's cache on disk leaves them out, its cache in "
    "memory goes by the function object, so make that once, not in a loop or a call",
}
"""What to do about each kind of reason; reasons are listed in this order."""

_WEIGHTS: Final = {kind: weight for weight, kind in enumerate(REMEDIES)}
_FAR: Final = 32
"""How many users are searched for a line of the user's program."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that differs.

    kind        a key of ``REMEDIES``
    subject     what it is about: an argument (``params['w']``), ``%constant.3``, a flag, ``program``
    line        ``file:line`` of the user's program, of a parameter where it is first read; empty if not known
    old, new    what either compilation has, as text; empty where it has nothing
    note        what helps to read the two: the dimensions that differ, how many elements
    may_follow  whether another reason, about parameters, may be the cause of this one
    """

    kind: str
    subject: str
    old: str = ""
    new: str = ""
    line: str = ""
    note: str = ""
    may_follow: bool = False

    def to_json(self) -> dict[str, Any]:
        """JSON values; ``remedy`` is what to do about it."""
        return {
            "reason": self.kind,
            "what": self.subject,
            "before": self.old or None,
            "after": self.new or None,
            "line": self.line or None,
            "note": self.note or None,
            "may_follow": self.may_follow,
            "remedy": REMEDIES[self.kind],
        }


def by_weight(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """The reasons by what matters, those that may follow from others last."""
    return tuple(sorted(reasons, key=lambda one: (one.may_follow, _WEIGHTS[one.kind])))


def argument_name(parameter: Instruction) -> str:
    """What the user calls a parameter of the entry: ``params['w']`` from its ``op_name``, else ``%name``."""
    fields = parameter.metadata.fields if parameter.metadata is not None else {}
    return str(fields.get("op_name") or f"%{parameter.name}")


def user_line_near(entry: Instruction) -> str:
    """The user's line of an instruction, or of the nearest that reads it; empty where no near one has any."""
    module = entry.computation.module if entry.computation is not None else None
    if module is None:
        return ""
    waiting, at = [entry], 0
    known = {entry}
    while at < len(waiting) and at < _FAR:
        found = module.user_line(waiting[at].metadata)
        if found:
            return found
        fresh = [user for user in islice(waiting[at].users, _FAR) if user not in known]
        known.update(fresh)
        waiting += fresh
        at += 1
    return ""
