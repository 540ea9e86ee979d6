"""Remarks on the rewrites that passes made and missed: for people, for LLVM's tools, for editors.

A placed remark has its places: that of the instruction in the HLO text, and the user's source line that
the metadata and the module's stack tables name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.report.sarif import physical_location, sarif_log
from hloopt.rewrite import LoggedRemark, PipelineReport
from hloopt.types import Metadata

__all__ = ["PlacedRemark", "findings", "lines", "remarks_file"]


@dataclass(frozen=True, slots=True)
class PlacedRemark:
    """A rewrite that was ``passed`` or ``missed``.

    ``rule`` is its equation or step, ``instruction`` what it is about, ``run`` the first of the ``count`` runs
    that reported it.  ``line`` and ``column`` are places in the HLO text ``hlo``, 0 where a pass made it;
    the ``source_`` fields are those of the user's program, empty and 0 where nothing names it.
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

    @property
    def message(self) -> str:
        """What happened, without the places."""
        about = f": {self.reason}" if self.reason else ""
        home = f" in %{self.computation}" if self.computation else ""
        return f"%{self.instruction}{home}: {self.rule}{about}"

    @property
    def rule_id(self) -> str:
        """``pass/rule``."""
        return f"{self.pass_name}/{self.rule}"


def findings(
    report: PipelineReport, module: Module, name: str, kinds: str = "all"
) -> list[PlacedRemark]:
    """The remarks of a report over ``module``; ``name`` is its file's, ``kinds`` passed, missed or all."""
    return [
        _finding(logged, module, name)
        for logged in report.remarks()
        if kinds in ("all", logged.remark.kind)
    ]


def _finding(logged: LoggedRemark, module: Module, name: str) -> PlacedRemark:
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

    Of each rule the first ``most``, and how many more there are.
    """
    seen: Counter[tuple[str, str, str]] = Counter()
    for entry in found:
        key = (entry.kind, entry.pass_name, entry.rule)
        seen[key] += 1
        if seen[key] <= most:
            times = f" ({entry.count} runs)" if entry.count > 1 else ""
            yield f"{_place(entry)}: {entry.kind}: {entry.message} [{entry.pass_name}]{times}"
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
    rows = [{("pass" if key == "pass_name" else key): value for key, value in asdict(entry).items()}
            for entry in found]  # fmt: skip
    return json.dumps({"schema": schema, "remarks": rows}, indent=2) + "\n"


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
    if entry.reason:
        arguments += [("String", ": "), ("Reason", entry.reason)]
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
        "properties": {"pass": entry.pass_name, "opcode": entry.opcode, "run": entry.run},
    }
    if entry.source_file and text is not None:
        result["relatedLocations"] = [{"id": 1, "physicalLocation": text}]
    return result
