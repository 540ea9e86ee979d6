"""Remarks on the rewrites that passes made and missed: for people, for LLVM's tools, for editors.

A placed remark has its places: that of the instruction in the HLO text, and the user's source line that
the metadata and the module's stack tables name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from hloopt.dataclass import dataclass
from hloopt.fusion.explained import Missed, MissedKey
from hloopt.ir import Module
from hloopt.report.sarif import physical_location, sarif_log
from hloopt.rewrite import LoggedRemark, PipelineReport
from hloopt.spelling import first_of
from hloopt.types import Metadata

__all__ = ["PlacedRemark", "findings", "lines", "remark_json", "remarks_file"]

_LEAST_LOSS = 0.005
"""Microseconds that are shown: two digits after the point."""
_MOST_INTO = 3


@dataclass(frozen=True, slots=True)
class PlacedRemark:
    """A rewrite that was ``passed`` or ``missed``.

    ``rule`` is its equation or step, ``instruction`` what it is about, ``run`` the first of the ``count`` runs
    that reported it.  ``line`` and ``column`` are places in the HLO text ``hlo``, 0 where a pass made it;
    the ``source_`` fields are those of the user's program, empty and 0 where nothing names it.

    into     the name of the instruction that it was, or would have been, joined with
    made     whether passes made the instruction: it is not in the text that was given
    kernels  those of both in the output
    lost_us  what missing it costs, in microseconds, predicted; None where nothing prices it
    """

    kind: str
    pass_name: str
    rule: str
    reason: str
    instruction: str
    opcode: str
    computation: str
    module: str
    hlo: str
    line: int
    column: int
    source_file: str
    source_line: int
    source_column: int
    source_function: str
    op_name: str
    run: int
    count: int
    into: str = ""
    made: bool = False
    kernels: tuple[str, ...] = ()
    lost_us: float | None = None

    @property
    def message(self) -> str:
        """What happened, without the places."""
        return self._message(f" %{self.into}" if self.into else "")

    def _message(self, into: str) -> str:
        about = f": {self.reason}" if self.reason else ""
        home = f" in %{self.computation}" if self.computation else ""
        made = " (made by passes)" if self.made else ""
        lost = f"; {self.lost_us:.2f} us lost, predicted" if self.is_loss else ""
        is_known = {self.instruction, self.into}.issuperset(self.kernels)
        names = "" if is_known else " and ".join(f"%{name}" for name in self.kernels)
        printed = f"; in the output {names}" if names else ""
        return f"%{self.instruction}{made}{home}: {self.rule}{into}{about}{lost}{printed}"

    @property
    def is_loss(self) -> bool:
        """Whether the rewrite that was missed would have saved time, where that is priced."""
        return self.kind == "missed" and (self.lost_us or 0) >= _LEAST_LOSS

    @property
    def rule_id(self) -> str:
        """``pass/rule``."""
        return f"{self.pass_name}/{self.rule}"


def findings(
    report: PipelineReport,
    module: Module,
    name: str,
    kinds: str = "all",
    missed: Mapping[MissedKey, Missed] | None = None,
) -> list[PlacedRemark]:
    """The remarks of a report over ``module``; ``name`` is its file's, ``kinds`` passed, missed or all.

    ``missed`` has what refusals of fusions cost, and leaves out those of what was fused in the end.  The
    rewrites that were missed come last, those that cost most first.
    """
    found = []
    for logged in report.remarks():
        remark = logged.remark
        key = logged.run, remark.computation, *remark.pair
        known = (missed or {}).get(key) if remark.pair[0] else None
        if kinds in ("all", remark.kind) and not (known is not None and known.was_fused):
            found.append(_finding(logged, known, module, name))
    return sorted(found, key=_rank)


def _rank(entry: PlacedRemark) -> tuple[bool, bool, float]:
    """What was made; what was missed and cost time; what nothing prices; what would have cost more."""
    lost = entry.lost_us or 0.0
    return entry.kind == "missed", lost < -_LEAST_LOSS, -max(0.0, lost)


def _finding(logged: LoggedRemark, known: Missed | None, module: Module, name: str) -> PlacedRemark:
    remark = logged.remark
    line, column = 0, 0
    if module.source is not None and remark.offset >= 0:
        line, column = module.source.line_column(remark.offset)
    fields = remark.metadata.fields if remark.metadata is not None else {}
    return PlacedRemark(
        remark.kind,
        logged.pass_name,
        remark.rule,
        remark.reason,
        remark.instruction,
        remark.opcode,
        remark.computation,
        module.name,
        name,
        line,
        column,
        *_source(module, remark.metadata),
        str(fields.get("op_name", "")),
        logged.run,
        logged.count,
        remark.into,
        module.source is not None and remark.offset < 0,
        () if known is None else tuple(filter(None, known.kernels)),
        remark.lost_us if known is None else known.lost_us,
    )


def _source(module: Module, metadata: Metadata | None) -> tuple[str, int, int, str]:
    """File, line, column and function of the program: the innermost frame, or the first line there is."""
    if metadata is None:
        return "", 0, 0, ""
    fields, tables = metadata.fields, module.stack_tables
    frame = tables.frames.get(int(fields.get("stack_frame_id", 0)), {})
    location = tables.locations.get(frame.get("file_location_id", 0))
    if location is not None:
        return (
            tables.file_names.get(location.get("file_name_id", 0), ""),
            location.get("line", 0),
            location.get("column", 0),
            tables.function_names.get(location.get("function_name_id", 0), ""),
        )
    file, _, line = module.user_line(metadata).rpartition(":")
    return file, int(line or 0), 0, ""


def lines(found: Sequence[PlacedRemark], most: int = 10) -> Iterator[str]:
    """One line each: ``train.py:12: missed: %add.3 in %main: fold add: 4096 elements, limit 1024 [pass]``.

    Of each rule the first ``most``, and how many more there are; what was missed with several for one reason
    is one line.
    """
    seen: Counter[tuple[str, str, str]] = Counter()
    groups: dict[object, list[PlacedRemark]] = {}
    for number, entry in enumerate(found):
        same = (entry.pass_name, entry.rule, entry.computation, entry.instruction, entry.reason)
        folds = entry.kind == "missed" and entry.into
        groups.setdefault(same if folds else number, []).append(entry)
    for entry, *others in groups.values():
        key = (entry.kind, entry.pass_name, entry.rule)
        seen[key] += 1
        if seen[key] <= most:
            into = first_of((f"%{one.into}" for one in (entry, *others)), _MOST_INTO)
            message = entry._message(f" {into}") if others else entry.message
            times = f" ({entry.count} runs)" if entry.count > 1 else ""
            yield f"{_place(entry)}: {entry.kind}: {message} [{entry.pass_name}]{times}"
    for (kind, name, rule), count in seen.items():
        if count > most:
            yield f"{kind}: {rule}: {count - most} more [{name}] (--remarks-out FILE has all)"


def _place(entry: PlacedRemark) -> str:
    if entry.source_file:
        return (
            f"{entry.source_file}:{entry.source_line}" if entry.source_line else entry.source_file
        )
    return f"{entry.hlo}:{entry.line}:{entry.column}" if entry.line else entry.hlo


def remarks_file(found: Sequence[PlacedRemark], suffix: str, version: str, schema: int) -> str:
    """A file's text, by the end of its name: ``.yaml``, ``.json`` or ``.sarif``; ``version`` is hloopt's."""
    if suffix == ".yaml":
        return "".join(map(_document, found))
    if suffix == ".sarif":
        return json.dumps(_sarif(found, version), indent=2) + "\n"
    return json.dumps({"schema": schema, "remarks": [*map(remark_json, found)]}, indent=2) + "\n"


def remark_json(entry: PlacedRemark) -> dict[str, object]:
    """Every field, as JSON values."""
    return {("pass" if key == "pass_name" else key): value for key, value in asdict(entry).items()}


def _document(entry: PlacedRemark) -> str:
    """A YAML document as LLVM writes its optimisation records: readers join the values of ``Args``."""
    rows = [f"--- !{entry.kind.capitalize()}", f"Pass:            {_scalar(entry.pass_name)}"]
    rows.append(f"Name:            {_scalar(entry.rule)}")
    if entry.source_file:
        place = f"Line: {entry.source_line}, Column: {entry.source_column}"
        rows.append(f"DebugLoc:        {{ File: {_scalar(entry.source_file)}, {place} }}")
    rows.append(f"Function:        {_scalar(entry.computation)}")
    rows.append("Args:")
    arguments = [("Instruction", f"%{entry.instruction}"), ("String", ": "), ("Rule", entry.rule)]
    if entry.into:
        arguments += [("String", " "), ("Into", f"%{entry.into}")]
    if entry.reason:
        arguments += [("String", ": "), ("Reason", entry.reason)]
    if entry.is_loss:
        arguments += [("String", "; us lost, predicted: "), ("LostUs", f"{entry.lost_us:.3f}")]
    rows += [f"  - {key}: {_scalar(value)}" for key, value in arguments]
    extra: list[tuple[str, str | int]] = [
        ("Opcode", entry.opcode), ("OpName", entry.op_name), ("Module", entry.module),
        ("HloFile", entry.hlo), ("HloLine", entry.line), ("Run", entry.run), ("Count", entry.count),
    ]  # fmt: skip
    rows += [f"{key + ':':16} {_scalar(value)}" for key, value in extra if value]
    return "\n".join([*rows, "...", ""])


def _scalar(value: str | int) -> str:
    """A YAML scalar: JSON's strings are YAML's, but for what YAML does not let stand for itself."""
    if isinstance(value, int):
        return str(value)
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if _may_stand(ord(c)) else _escape(ord(c)) for c in text)


_PRINTABLE = ((0x20, 0x7F), (0xA0, 0x2028), (0x202A, 0xD800), (0xE000, 0xFEFF), (0xFF00, 0xFFFE),
              (0x10000, 0x110000))  # fmt: skip


def _may_stand(code: int) -> bool:
    return any(first <= code < end for first, end in _PRINTABLE)


def _escape(code: int) -> str:
    if 0xD800 <= code < 0xE000:  # half a character: a name that is not Unicode
        code = 0xFFFD
    return f"\\u{code:04X}"


def _sarif(found: Sequence[PlacedRemark], version: str) -> dict[str, object]:
    """What was missed is a note, what was done is information."""
    ids = list(dict.fromkeys(entry.rule_id for entry in found))
    index = {rule: number for number, rule in enumerate(ids)}
    rules = [{"id": rule, "shortDescription": {"text": rule}} for rule in ids]
    return sarif_log(version, rules, [_result(entry, index[entry.rule_id]) for entry in found])


def _result(entry: PlacedRemark, rule_index: int) -> dict[str, object]:
    missed = entry.kind == "missed"
    location: dict[str, object] = {
        "logicalLocations": [
            {
                "name": entry.instruction,
                "fullyQualifiedName": f"{entry.module}/{entry.computation}/{entry.instruction}",
                "kind": "member",
            }
        ]
    }
    text = physical_location(entry.hlo, entry.line, entry.column) if entry.line else None
    source = physical_location(entry.source_file, entry.source_line, entry.source_column)
    if entry.source_file:
        location["physicalLocation"] = source
    elif text is not None:
        location["physicalLocation"] = text
    result: dict[str, object] = {
        "ruleId": entry.rule_id,
        "ruleIndex": rule_index,
        "kind": "fail" if missed else "informational",
        "level": "note" if missed else "none",
        "message": {"text": f"{entry.kind}: {entry.message}"},
        "locations": [location],
        "occurrenceCount": entry.count,
        "properties": {
            "pass": entry.pass_name,
            "opcode": entry.opcode,
            "run": entry.run,
            "lost_us": entry.lost_us,
        },
    }
    if entry.source_file and text is not None:
        result["relatedLocations"] = [{"id": 1, "physicalLocation": text}]
    return result
