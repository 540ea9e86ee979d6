"""Fusion as XLA does it, what is asked of one program: parts of the scoreboard by what XLA left beside it.

of its log, each time in it (fusion_times.py)

priced      steps that price a producer with its users
exact       ... whose two times are ours, as far as the log's digits tell
within_2    ... or within 2 %; within_10: or within 10 %

of its log, each verdict in it (fusion_beside.py)

refused     producers that XLA refuses, and we do
reason      ... for the same reason
allowed     producers that XLA prices, and we do

of its module before fusion, and the one after

fused       priority and multi-output fusion run on it
same        ... and leave XLA's kernels, each of them
kernels     ... and as many at most; in sum ours and theirs
common      kernels that both have

of what the user has, and XLA's final module (pipeline_beside.py)

preset      xla-gpu-2026 with fast_math runs on it
as_many     ... and makes as many kernels as XLA; in sum ours and theirs

An answer that counts is ``ok: 7 of 9``: the scoreboard has the sums.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from hloopt.errors import HlooptError
from hloopt.fusion.xla_log import XlaLog, read_log
from hloopt.source import Source
from tests.corpus.fusion_beside import BOTH, Verdicts, compare, verdicts
from tests.corpus.fusion_times import Agreement, pricings
from tests.corpus.pipeline_beside import BEFORE, FINAL, compare_kernels

__all__ = [
    "FUSED",
    "LOG",
    "PARTITION_STAGES",
    "PIPELINE_STAGES",
    "PREFUSION",
    "REFUSED_STAGES",
    "TIMES_STAGES",
    "examine_fusion",
    "rises",
    "sums",
]

LOG, PREFUSION, FUSED = ".fusion_log.txt", ".prefusion.hlo", ".fused.hlo"
TIMES_STAGES = ("priced", "exact", "within_2", "within_10")
REFUSED_STAGES = ("refused", "reason", "allowed")
PARTITION_STAGES = ("fused", "same", "kernels", "common")
PIPELINE_STAGES = ("preset", "as_many")

_OF = re.compile(r"(?:ok|failed): (\d+) of (\d+)")
_TOLD = re.compile(r"told: (\d+)")
_BESIDE = re.compile(r"(?:ok|failed): ours (\d+), theirs (\d+)")

Outcome: TypeAlias = dict[str, str]


def examine_fusion(path: Path, stages: tuple[str, ...]) -> Outcome:
    """Stage -> ``ok``, ``ok: 7 of 9``, ``ok: ours 7, theirs 7`` or ``failed: message``."""
    ways: dict[tuple[str, ...], Callable[[Path], Outcome]] = {
        TIMES_STAGES: _times,
        REFUSED_STAGES: _refusals,
        PARTITION_STAGES: _partition,
        PIPELINE_STAGES: _pipeline,
    }
    try:
        return ways[stages](path)
    except HlooptError as error:
        return {stages[0]: f"failed: {str(error).splitlines()[0]}"}
    except Exception as error:  # noqa: BLE001 - a crash is what this tier looks for
        return {stages[0]: f"failed: {type(error).__name__}: {str(error)[:200]}"}


def sums(answers: Iterable[str]) -> dict[str, int]:
    """What the answers of a stage come to: ``ok`` and ``of``, ``ours`` and ``theirs``, or ``loops``; nothing without counts."""
    found: dict[str, int] = {}
    for answer in answers:
        for pattern, names in (
            (_OF, ("ok", "of")),
            (_BESIDE, ("ours", "theirs")),
            (_TOLD, ("loops",)),
        ):
            counted = pattern.fullmatch(answer)
            for name, number in zip(names, counted.groups() if counted else (), strict=False):
                found[name] = found.get(name, 0) + int(number)
    return found


def rises(old: dict[str, int], new: dict[str, int]) -> bool:
    """Whether ours are more, beside theirs, than they were."""
    if "ours" not in old or "ours" not in new:
        return False
    return new["ours"] * old["theirs"] > old["ours"] * new["theirs"]


def _times(path: Path) -> Outcome:
    found = Agreement()
    for pricing in pricings(_log(path)):
        found.take(pricing)
    counts = (found.priced, found.exact, found.near, found.close)
    return {
        stage: _of(count, found.priced) for stage, count in zip(TIMES_STAGES, counts, strict=True)
    }


def _refusals(path: Path) -> Outcome:
    found = Verdicts()
    verdicts(_neighbour(path, LOG, PREFUSION).read_text(), _log(path), found)
    return {
        "refused": _of(found.refused_too, found.refused),
        "reason": _of(found.same_reason, found.refused),
        "allowed": _of(found.allowed_too, found.allowed),
    }


def _partition(path: Path) -> Outcome:
    after = _neighbour(path, PREFUSION, FUSED)
    found, _ = compare(path.read_text(), after.read_text(), BOTH)
    word = "ok" if found.ours <= found.theirs else "failed"
    apart = f"failed: ours {found.ours}, theirs {found.theirs}, the same {found.common}"
    return {
        "fused": "ok",
        "same": "ok" if found.same else apart,
        "kernels": f"{word}: ours {found.ours}, theirs {found.theirs}",
        "common": _of(found.common, found.theirs),
    }


def _pipeline(path: Path) -> Outcome:
    after = _neighbour(path, BEFORE, FINAL)
    found = compare_kernels(path.read_text(), after.read_text())
    word = "ok" if found.same else "failed"
    return {
        "preset": "ok",
        "as_many": f"{word}: ours {len(found.ours)}, theirs {len(found.theirs)}",
    }


def _log(path: Path) -> XlaLog:
    return read_log(Source(path.read_text(), path.name))


def _neighbour(path: Path, end: str, other: str) -> Path:
    return path.with_name(path.name.removesuffix(end) + other)


def _of(count: int, whole: int) -> str:
    return f"ok: {count} of {whole}"
