"""The tables of ``hloopt run``: what ran, how fast, how far apart results are; of several modules a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from os.path import commonpath
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.text import Text

from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.numbers import byte_size, error, seconds
from hloopt.report.console import say, table
from hloopt.report.profile import profile_json, show_profile
from hloopt.runtime.comparison import OutputComparison
from hloopt.runtime.timing import Timing

if TYPE_CHECKING:
    from hloopt.backends.cuda.profile import Profile
    from hloopt.report.kernel_times import KernelTimes

__all__ = ["RunReport", "RunRow", "show_summary"]

_TIMES = ("kernels", "launches", "time", "least", "speed-up", "memory", "liveness")
_ERRORS = ("against", "verdict", "of allowed", "max abs", "max rel", "max ULP", "where")
_VERDICTS: Final = {"ok": "green", "differs": "red", "failed": "red"}
_WORDS = {
    "nothing verified": "nothing verified",
    "equal": "equal",
    "within tolerance": "right",
    "not verified": "not verified",
    "differ": "differs",
}
"""The table's words for verdicts, the decisive one last."""
_LEAST_MEMORY = 1 << 20  # bytes
_ONE_TABLE = 148  # columns that the whole table may need
_OPTIONAL = ("max ULP", "max rel", "launches", "liveness", "of allowed", "against")


@dataclass(frozen=True)
class RunRow:
    """One program of the module on one executor; ``comparisons`` are of its results against ``against``.

    Those of participant 0 come first, then those of participant 1, as many of each.  ``written`` are
    the comparisons of what went to the host, by name.  ``memory`` is the most bytes that were resident while
    it ran, inputs included, None where that is unknown; ``alive`` the most bytes that are alive at once.
    """

    name: str
    kernels: int | None = None
    launches: int | None = None
    timing: Timing | None = None
    against: str = ""
    comparisons: tuple[OutputComparison, ...] = ()
    written: tuple[tuple[str, OutputComparison], ...] = ()
    memory: int | None = None
    alive: int | None = None


@dataclass
class RunReport(Displayed):
    """All rows of one module; speed-ups are relative to ``baseline``, the row of that name.

    ``skipped`` says why there is no interpreter's result; ``invented`` is how many constants have values that
    the text leaves out.

    ``pipeline`` is the text of the passes that ran; it is shown where no row has its name.  ``profile`` has
    the kernels of the optimised program on a GPU, ``kernel_times`` those on a CPU, where they were timed.
    ``outputs`` are the results of the optimised program, the arrays of each participant; ``warnings`` are
    about files of host streams, each after its file.
    """

    module: str
    precision: str
    inputs: str
    baseline: str
    rows: list[RunRow] = field(default_factory=list)
    pipeline: str = ""
    replicas: int = 1
    partitions: int = 1
    notes: list[str] = field(default_factory=list)
    profile: Profile | None = None
    kernel_times: KernelTimes | None = None
    skipped: str = ""
    invented: int = 0
    warnings: list[tuple[str, str]] = field(default_factory=list)
    outputs: list[list[Any]] = field(default_factory=list, repr=False)

    @property
    def participants(self) -> int:
        """How many run the program."""
        return self.replicas * self.partitions

    @property
    def passed(self) -> bool:
        """Whether something was compared, and all of it is right."""
        return self.verdict == "ok"

    @property
    def verdict(self) -> str:
        """``ok``; ``differs``; ``nothing verified`` where no result has a finite number; ``not verified`` where
        the interpreter was left out, or ran out of time; ``invented values``; ``partly verified`` where a
        result has elements and none of them is a finite number.
        """
        compared = [(row, entry) for row in self.rows for _, entry in self.compared(row)]
        verdicts = {entry.verdict for _, entry in compared}
        if "differ" in verdicts:
            return "differs"
        if not self.skipped and not any(entry.finite for _, entry in compared):
            return "nothing verified"
        programs = {row.name for row in self.rows if row.timing is not None}
        elsewhere = any(row.against not in programs and entry.finite for row, entry in compared)
        if "not verified" in verdicts or (self.skipped and not elsewhere):
            return "not verified"
        if self.invented:
            return "invented values"
        return "partly verified" if self.unverified else "ok"

    @property
    def unverified(self) -> list[str]:
        """The results of programs that have elements, and no finite number among those they should have."""
        return list(dict.fromkeys(name for name, entry in self._programs() if _says_nothing(entry)))

    def _programs(self) -> list[tuple[str, OutputComparison]]:
        """What was compared of every row but the interpreter's."""
        rows = [row for row in self.rows if row.name != "interpreter"]
        return [pair for row in rows for pair in self.compared(row)]

    def show(self, console: Console) -> None:
        """Print the table (as two, one below the other, on a narrow terminal) and what differs."""
        about = f"  inputs: {self.inputs}  {self.precision}"
        if not any(row.name.startswith(f"{self.pipeline},") for row in self.rows):
            about += f"  passes: {self.pipeline or 'none'}"
        if self.participants > 1:
            about += f"  participants: {self.replicas} x {self.partitions}"
        say(console, (self.module, "bold"), about)
        if console.width >= _ONE_TABLE:
            made = table("run", *_TIMES, *_ERRORS)
            for row in self.rows:
                made.add_row(row.name, *self._times(row), *self._errors(row))
            console.print(made)
        else:
            for columns, cells in ((_TIMES, self._times), (_ERRORS, self._errors)):
                made = table("run", *columns, optional=_OPTIONAL)
                for row in self.rows:
                    found = cells(row)
                    if any(found):
                        made.add_row(row.name, *found)
                console.print(made)
        if self.profile is not None:
            show_profile(self.profile, console)
        if self.kernel_times is not None:
            self.kernel_times.show(console)
        for note in [*self.notes, *self._unsteady()]:
            say(console, ("note", "yellow"), f" {note}")
        for row in self.rows:
            for name, entry in self.compared(row):
                if not entry.passed:
                    what = difference(row, name, entry)
                    word = ("note", "yellow") if entry.undecided else ("differs", "red")
                    say(console, word, f" {what}")
        if self.verdict != "differs":
            colour = "green" if self.passed else "yellow"
            what = self._conclusion()
            say(console, (self.verdict, colour), what)

    def _unsteady(self) -> list[str]:
        """A note where times are not to be trusted."""
        timed = [row for row in self.rows if row.timing is not None and row.timing.is_unsteady]
        if not timed:
            return []
        shown = ", ".join(dict.fromkeys(row.name for row in timed))
        why = "other work competes, or runs are too short"
        return [f"times of {shown} vary by more than a fifth: {why}; least is the shortest run"]

    def _conclusion(self) -> str:
        """What was compared, and what shows nothing."""
        best = self._programs()
        empty = {name: entry.reason for name, entry in best if not entry.finite}
        shown = "; ".join(f"{name} {reason}" for name, reason in list(empty.items())[:3])
        if len(empty) > 3:
            shown += f"; and {len(empty) - 3} more"
        if self.verdict == "nothing verified":
            return f": {shown or 'the module has no results'}"
        count = max((len(row.comparisons) for row in self.rows), default=0) // self.participants
        what = f" {count} result{'s' * (count != 1)}"
        if self.participants > 1:
            what += " of each participant"
        sent = max((len(row.written) for row in self.rows), default=0)
        if sent:
            what += f", and {sent} array{'s' * (sent != 1)} written to the host"
        if self.skipped:
            what = (
                f" ({self.skipped}):{what} of {self.rows[-1].name} against {self.rows[-1].against}"
            )
        share = max((entry.share for _, entry in best), default=0.0)
        ours = not any(entry.tolerance.is_given for _, entry in best)
        allowed = "what rounding allows" if ours else "the tolerance given"
        what += f": worst error {share:.2g} of {allowed}" if share else ": equal"
        return f"{what}; nothing verified: {shown}" if shown else what

    def _times(self, row: RunRow) -> list[str]:
        cells = [_count(row.kernels), _count(row.launches)]
        if row.timing is None:
            return [*cells, "", "", "", "", ""]
        time = seconds(row.timing.median)
        if len(row.timing.seconds) > 1:
            time += f" ± {seconds(row.timing.spread)}"
        base = next((entry.timing for entry in self.rows if entry.name == self.baseline), None)
        least = seconds(row.timing.least)
        sizes = [_resident(row.memory), "" if row.alive is None else byte_size(row.alive)]
        return [*cells, time, least, _speed_up(base, row.timing), *sizes]

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values; infinities are strings."""
        return {
            "module": self.module,
            "precision": self.precision,
            "inputs": self.inputs,
            "baseline": self.baseline,
            "pipeline": self.pipeline,
            "passed": self.passed,
            "verdict": self.verdict,
            "not_verified": self.skipped or None,
            "unverified": self.unverified,
            "invented_constants": self.invented,
            "replicas": self.replicas,
            "partitions": self.partitions,
            "notes": [*self.notes, *self._unsteady()],
            "rows": [self._row_json(row) for row in self.rows],
            **({"profile": profile_json(self.profile)} if self.profile is not None else {}),
            **({"timed": self.kernel_times.to_json()} if self.kernel_times is not None else {}),
        }

    def _output(self, row: RunRow, number: int) -> tuple[int, int]:
        """The participant and the output that a row's comparison is of."""
        return divmod(number, max(1, len(row.comparisons) // self.participants))

    def place(self, row: RunRow, number: int) -> str:
        """``out_0``; of several participants ``out_0.3``, as in files of expected results."""
        participant, output = self._output(row, number)
        return f"out_{output}.{participant}" if self.participants > 1 else f"out_{output}"

    def compared(self, row: RunRow) -> list[tuple[str, OutputComparison]]:
        """All comparisons of a row, each with the name of its array."""
        results = [(self.place(row, at), entry) for at, entry in enumerate(row.comparisons)]
        return [*results, *row.written]

    def _errors(self, row: RunRow) -> list[str]:
        compared = self.compared(row)
        if not compared:
            return [""] * len(_ERRORS)
        entries = [entry for _, entry in compared]
        name, worst = max(compared, key=lambda pair: (pair[1].share, pair[1].absolute))
        place = ",".join(map(str, worst.where))
        return [
            row.against,
            _WORDS[max((entry.verdict for entry in entries), key=list(_WORDS).index)],
            f"{worst.share:.2g}",
            error(max(entry.absolute for entry in entries)),
            error(max(entry.relative for entry in entries)),
            str(max(entry.ulp for entry in entries)),
            f"{name}[{place}]" if worst.share else "",
        ]

    def _row_json(self, row: RunRow) -> dict[str, Any]:
        return {
            "name": row.name,
            "kernels": row.kernels,
            "launches": row.launches,
            "seconds": list(row.timing.seconds) if row.timing else None,
            "median": row.timing.median if row.timing else None,
            "min": row.timing.least if row.timing else None,
            "spread": row.timing.spread if row.timing else None,
            "peak_memory": row.memory,
            "bytes_alive": row.alive,
            "against": row.against,
            "comparisons": [
                {
                    **dict(zip(("participant", "output"), self._output(row, number), strict=True)),
                    **entry.to_json(),
                }
                for number, entry in enumerate(row.comparisons)
            ],
            "written": [{"name": name, **entry.to_json()} for name, entry in row.written],
        }


def _says_nothing(entry: OutputComparison) -> bool:
    return bool(entry.elements) and entry.verdict == "nothing verified"


def difference(row: RunRow, output: str, entry: OutputComparison) -> str:
    """A sentence about one output that does not pass; participants' are called ``out_0.3``."""
    return f"{row.name}: {output} against {row.against}: {entry.reason}"


def _resident(size: int | None) -> str:
    """Memory is resident in pages, of which a small run finds enough that are there already."""
    if size is None:
        return ""
    return byte_size(size) if size >= _LEAST_MEMORY else f"< {byte_size(_LEAST_MEMORY)}"


def _speed_up(base: Timing | None, own: Timing) -> str:
    """The ratio of medians; ``~`` where the two may well be the same."""
    if base is None or not own.median:
        return ""
    if base is not own and not base.is_apart(own):
        return "~"
    return f"{base.median / own.median:.2f}x"


def _count(value: int | None) -> str:
    return "" if value is None else str(value)


def show_summary(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """A row for each module, from the JSON values of its report or its error, and the counts of all."""
    names = _short([str(row["file"]) for row in rows])
    verdicts = [str(row.get("verdict", "failed")) for row in rows]
    made = table("module", "verdict", "of allowed", "speed-up", left=2)
    for name, verdict, row in zip(names, verdicts, rows, strict=True):
        word = Text(verdict, _VERDICTS.get(verdict, "yellow"))
        made.add_row(name, word, _share(row), _ratio(row))
    console.print()
    console.print(made)
    counts = Counter(verdicts)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    console.print(f"{len(rows)} modules: {counted}")


def _short(names: Sequence[str]) -> list[str]:
    """The names without the folders that all have."""
    folders = [PurePath(name).parent for name in names]
    if len({folder.is_absolute() for folder in folders}) > 1:
        return list(names)
    shared = commonpath([str(folder) for folder in folders])
    return [str(PurePath(name).relative_to(shared)) if shared else name for name in names]


def _share(row: Mapping[str, Any]) -> str:
    shares = [float(one["share"]) for line in row.get("rows", ()) for one in line["comparisons"]]
    return f"{max(shares):.2g}" if shares else ""


def _ratio(row: Mapping[str, Any]) -> str:
    """Of the last program that was timed over the baseline."""
    medians = {line["name"]: line["median"] for line in row.get("rows", ()) if line["median"]}
    base = medians.get(row.get("baseline"))
    return f"{base / list(medians.values())[-1]:.2f}x" if base and len(medians) > 1 else ""
