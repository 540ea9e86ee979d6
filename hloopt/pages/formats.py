"""The graph of a module for Graphviz and Model Explorer, and its predicted timeline for Perfetto."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from hloopt.analysis.trip_count import counted_iterations
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ir.instruction import brief
from hloopt.kernels.costs import KernelCost
from hloopt.ops.traits import CONTROL_FLOW
from hloopt.pages.unfolding import namespace, opened
from hloopt.report.picture import COLOURS, box_of, is_written, kind_of
from hloopt.rewrite.naming import op_name_of
from hloopt.rewrite.source_lines import kernel_lines

__all__ = ["dot_text", "model_explorer", "node_times", "timeline"]

_MICRO: Final = 1e6


def dot_text(module: Module) -> str:
    """The whole module in Graphviz' language: a cluster a computation, a fusion's body within its caller's."""
    lines = [
        "digraph {",
        "rankdir=TB; compound=true; node [shape=box, style=filled, fontname=monospace, fontsize=10];",
    ]
    homes = {computation: number for number, computation in enumerate(_shown(module))}
    ids: dict[Instruction, str] = {}
    for computation, number in homes.items():
        if not _is_body(computation):
            lines += _cluster(computation, number, homes, ids)
    for computation in homes:
        for one in computation:
            for operand in () if is_written(one) else one.operands:
                if operand in ids:
                    lines.append(f"{ids[operand]} -> {ids[one]};")
    return "\n".join([*lines, "}", ""])


def _is_body(computation: Computation) -> bool:
    return any(one.opcode == "fusion" for one in computation.callers)


def _cluster(
    outer: Computation, number: int, homes: Mapping[Computation, int], ids: dict[Instruction, str]
) -> Iterator[str]:
    pending: list[tuple[Computation, int] | None] = [(outer, number)]
    while pending:
        top = pending.pop()
        if top is None:
            yield "}"
            continue
        computation, number = top
        yield f'subgraph cluster_{number} {{ label={_quoted(computation.name)}; style="rounded,bold";'
        pending.append(None)
        for place, one in enumerate(computation):
            if is_written(one):
                continue
            ids[one] = f"n{number}_{place}"
            fill, stroke, letters = COLOURS[kind_of(one.opcode)]
            label = "\\n".join(map(_escaped, box_of(one).lines))
            width = ", penwidth=2.5" if one.is_root else ""
            yield (
                f'{ids[one]} [label="{label}", fillcolor="{fill}", color="{stroke}", '
                f'fontcolor="{letters}"{width}];'
            )
            if one.opcode == "fusion":
                pending.append((one.calls, homes[one.calls]))


def _escaped(text: str) -> str:
    """Within a quoted string of DOT, where a backslash begins an escape of labels."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _shown(module: Module) -> list[Computation]:
    """The computations that run, and the bodies of fusions; callers first."""
    found = dict.fromkeys([module.entry])
    pending = [module.entry]
    for computation in pending:
        for one in computation:
            for callee in opened(one):
                if callee not in found:
                    found[callee] = None
                    pending.append(callee)
    return [*found]


def model_explorer(module: Module) -> dict[str, Any]:
    """A collection of graphs, one a computation, as Model Explorer's JSON has them; namespaces are layers."""
    graphs = [
        {"id": computation.name, "nodes": [_node(module, one) for one in computation]}
        for computation in _shown(module)
    ]
    return {"label": module.name, "graphs": graphs}


def _node(module: Module, one: Instruction) -> dict[str, Any]:
    attributes = {
        "shape": str(one.shape),
        "op_name": op_name_of(one),
        "source": ", ".join(module.user_lines(one.metadata)),
    }
    edges = [
        {"sourceNodeId": operand.name, "sourceNodeOutputId": "0", "targetNodeInputId": str(number)}
        for number, operand in enumerate(one.operands)
    ]
    return {
        "id": one.name,
        "label": one.opcode,
        "namespace": "/".join(namespace(one)),
        "subgraphIds": [callee.name for callee in opened(one)],
        "attrs": [{"key": key, "value": value} for key, value in attributes.items() if value],
        "incomingEdges": edges,
        "outputsMetadata": [
            {"id": "0", "attrs": [{"key": "tensor_shape", "value": brief(one.shape)}]}
        ],
    }


def node_times(spent: Mapping[Instruction, float]) -> dict[str, Any]:
    """Model Explorer's node data: microseconds of each instruction in one run, by computation."""
    found: dict[str, Any] = {}
    for one, seconds in spent.items():
        if one.computation is None or not seconds:
            continue
        graph = found.setdefault(
            one.computation.name,
            {
                "name": "predicted time (us)",
                "results": {},
                "gradient": [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#ff8a80"}],
            },
        )
        graph["results"][one.name] = {"value": round(seconds * _MICRO, 3)}
    return found


def timeline(module: Module, rows: Iterable[KernelCost], title: str) -> dict[str, Any]:
    """One run as Chrome's trace events, for Perfetto: kernel after kernel, as predicted; microseconds.

    Of a loop the first iteration is shown, and the others as one slice; what several call is shown in the
    first of them.  Arguments have the names that XLA's own traces have.  Slices nest exactly: both ends of each
    are rounded to nanoseconds, since Perfetto cuts off a slice that ends after the one around it.
    """
    known = {row.instruction: row for row in rows if row.prediction is not None}
    times = {one: row.prediction.seconds * _MICRO for one, row in known.items() if row.prediction}
    once: dict[Computation, float] = {}
    for computation in reversed(walk.callers_first(module)):
        once[computation] = sum(_length(entry, times, once) for entry in computation)
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": title}},
        {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": module.name}},
    ]
    shown = {module.entry: 0.0}
    pending = [module.entry]
    for computation in pending:
        clock = shown[computation]
        for entry in computation:
            length = _length(entry, times, once)
            if not length:
                continue
            found = _event(entry.name, clock, clock + length)
            events.append({**found, "args": _arguments(module, entry, known.get(entry))})
            inner = clock
            for callee, runs in _runs_of(entry, once)[:1]:
                if callee not in shown:
                    shown[callee] = inner
                    pending.append(callee)
                    if runs > 1:
                        name, start = f"{runs - 1} more iterations", inner + once[callee]
                        events.append(_event(name, start, clock + length))
            clock += length
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _runs_of(
    entry: Instruction, once: Mapping[Computation, float]
) -> list[tuple[Computation, int]]:
    """What an instruction runs, and how often: of branches the one that takes longest."""
    if entry.opcode == "while":
        count = counted_iterations(entry).count
        return [(entry.body, count), (entry.condition, count + 1)]
    called = [one for one in walk.called_computations(entry) if one in once]
    if entry.opcode not in CONTROL_FLOW or not called:
        return []
    return [(max(called, key=once.__getitem__), 1)]


def _length(
    entry: Instruction, times: Mapping[Instruction, float], once: Mapping[Computation, float]
) -> float:
    """Microseconds of one run of an instruction with what it calls."""
    if entry.opcode not in CONTROL_FLOW:
        return times.get(entry, 0.0)
    return sum(count * once[callee] for callee, count in _runs_of(entry, once))


def _arguments(module: Module, entry: Instruction, row: KernelCost | None) -> dict[str, Any]:
    """What a click on a slice shows; bytes and flops are those of one run of a kernel."""
    arguments: dict[str, Any] = {
        "hlo_op": entry.name,
        "hlo_module": module.name,
        "computation": entry.home.name,
        "opcode": entry.opcode,
        "op_name": op_name_of(entry),
        "source": ", ".join(kernel_lines(module, entry)),
    }
    if row is not None and row.prediction is not None:
        arguments["bound by"] = row.prediction.bound
        arguments["bytes"] = row.cost.bytes_accessed
        arguments["flops"] = row.cost.flops
    return {key: value for key, value in arguments.items() if value}


def _event(name: str, start: float, end: float) -> dict[str, Any]:
    """A slice from ``start`` to ``end``, in microseconds."""
    ends = round(start, 3), round(end, 3)
    length = round(ends[1] - ends[0], 3)
    return {"ph": "X", "pid": 1, "tid": 1, "ts": ends[0], "dur": length, "name": name}
