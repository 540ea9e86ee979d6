"""Plans as people read them: steps with their kernels, launches, work and memory; the peak and its bound.

Memory is written as ``p0`` and ``c1`` for leaves of parameters and constants, ``r0`` for results that have
separate memory, ``+256`` for an offset in the arena, ``-`` for what has none: ``+512 = p0 c1`` is a step
that reads a parameter and a constant and writes the arena.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import Console

from hloopt.analysis.cost import instruction_cost
from hloopt.dataclass import dataclass
from hloopt.kernels.plan import (
    ConditionalStep,
    HostStep,
    KernelStep,
    Plan,
    PlanBuffer,
    PlanStep,
    WhileStep,
    function_name,
)
from hloopt.kernels.selection.requests import tile_text
from hloopt.kernels.spec import Dim3, Fill, KernelSpec, Launch
from hloopt.numbers import amount, byte_size
from hloopt.report.console import say, table
from hloopt.report.kernels import parts_text

if TYPE_CHECKING:
    from hloopt.backends.nvrtc.resources import Resources

__all__ = ["PlanRow", "memory_json", "memory_line", "plan_rows", "plan_text", "show_plan"]


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One line of a plan; ``depth`` is how many loops and branches are around it.

    ``kernel`` is empty for what only says which steps follow.  ``scratch`` and ``shared`` are bytes (of one
    block; None where it was not compiled), ``moved`` bytes of memory and ``flops`` those of one run.
    """

    depth: int
    what: str
    kernel: str = ""
    launch: str = ""
    scratch: int = 0
    shared: int | None = None
    moved: int = 0
    flops: int = 0
    memory: str = ""


def plan_rows(plan: Plan, resources: Mapping[str, Resources] | None = None) -> Iterator[PlanRow]:
    """The steps of a plan in order; ``resources`` are what the compiler says of functions, by name."""
    yield from _rows(plan.steps, 0, resources or {})


def _rows(
    steps: Iterable[PlanStep], depth: int, resources: Mapping[str, Resources]
) -> Iterator[PlanRow]:
    for step in steps:
        if isinstance(step, KernelStep):
            yield _kernel(step, depth, resources)
        elif isinstance(step, HostStep):
            memory = _memory(step.operands, step.results)
            yield PlanRow(depth, step.instruction.name, "host", memory=memory)
        elif isinstance(step, WhileStep):
            yield from _loop(step, depth, resources)
        else:
            yield from _conditional(step, depth, resources)


def _loop(step: WhileStep, depth: int, resources: Mapping[str, Resources]) -> Iterator[PlanRow]:
    if step.iterations is not None:
        times = f"{step.iterations:,} iteration{'s' if step.iterations != 1 else ''}"
        yield PlanRow(depth, f"{step.instruction.name}: {times}")
        yield from _rows(step.body, depth + 1, resources)
        return
    assert step.predicate is not None
    yield PlanRow(depth, f"{step.instruction.name}: while {_place(step.predicate)}")
    if step.condition:
        yield PlanRow(depth + 1, "condition")
        yield from _rows(step.condition, depth + 2, resources)
    yield PlanRow(depth + 1, "body")
    yield from _rows(step.body, depth + 2, resources)


def _conditional(
    step: ConditionalStep, depth: int, resources: Mapping[str, Resources]
) -> Iterator[PlanRow]:
    yield PlanRow(depth, f"{step.instruction.name}: by {_place(step.selector)}")
    truth = step.selector.shape.dtype.is_pred
    for number, branch in enumerate(step.branches):
        name = ("true", "false")[number] if truth else str(number)
        yield PlanRow(depth + 1, f"{name}{'' if branch else ': nothing'}")
        yield from _rows(branch, depth + 2, resources)


def _kernel(step: KernelStep, depth: int, resources: Mapping[str, Resources]) -> PlanRow:
    cost = instruction_cost(step.instruction)
    names = [function_name(step, part) for part in _launches(step.spec)]
    known = [resources[name].shared for name in names if name in resources]
    return PlanRow(
        depth,
        step.instruction.name,
        step.spec.kernel + tile_text(step.spec.tile),
        _launch_text(step),
        sum(buffer.byte_size for buffer in step.scratch),
        max(known) if known else None,
        cost.bytes_read + cost.bytes_written,
        cost.flops,
        _memory(step.operands, step.results),
    )


def _launches(spec: KernelSpec) -> list[Launch]:
    return [part for part in spec.steps if isinstance(part, Launch)]


def _launch_text(step: KernelStep) -> str:
    """``132 x 128``: blocks and threads of each launch; copies and fills, and the library's name."""
    parts = ["copy"] * len(step.before)
    if step.spec.library:
        parts.append(step.spec.library)
    for part in step.spec.steps:
        if isinstance(part, Launch):
            parts.append(f"{_size(part.grid)} x {_size(part.block)}")
        else:
            parts.append("fill" if isinstance(part, Fill) else "copy")
    parts += ["copy"] * len(step.after)
    return parts_text(parts)


def _size(sizes: Dim3) -> str:
    """``16``, or ``16,2`` where further dimensions count."""
    kept = list(sizes)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return ",".join(map(str, kept))


def _memory(operands: Iterable[PlanBuffer], results: Iterable[PlanBuffer]) -> str:
    made, read = (" ".join(map(_place, buffers)) for buffers in (results, operands))
    return f"{made} = {read}" if read else made


def _place(buffer: PlanBuffer) -> str:
    if not buffer.byte_size:
        return "-"
    if buffer.allocation.kind == "arena":
        return f"+{buffer.offset}"
    return f"{buffer.allocation.kind[0]}{buffer.allocation.number}"


def memory_json(plan: Plan) -> dict[str, int]:
    """Bytes by kind of allocation, at the peak, and the most that is live at once, as JSON values.

    Results are listed where they have separate memory.
    """
    sizes = {"parameter": 0, "constant": 0, "arena": 0}
    for allocation in plan.allocations:
        sizes[allocation.kind] = sizes.get(allocation.kind, 0) + allocation.byte_size
    return {**sizes, "peak": plan.peak, "live_bound": plan.live_bound}


def memory_line(plan: Plan) -> str:
    """The total of all memory; of the arena's temporaries, how many bytes are live at once."""
    sizes = memory_json(plan)
    apart = sizes.get("result", 0)
    bound = sizes["live_bound"] - sizes["parameter"] - sizes["constant"] - apart
    alive = f" for temporaries ({byte_size(bound)} alive at once)" if bound > 0 else ""
    alive += f", results {byte_size(apart)}" if apart else ""
    return (
        f"peak {byte_size(sizes['peak'])}: parameters {byte_size(sizes['parameter'])}, "
        f"constants {byte_size(sizes['constant'])}, arena {byte_size(sizes['arena'])}{alive}"
    )


def plan_text(plan: Plan) -> str:
    """A plan as plain lines: steps indented, then the memory.  The same wherever it is printed."""
    rows = list(plan_rows(plan))
    first = max((2 * row.depth + len(row.what) for row in rows), default=0)
    second = max((len(row.kernel) for row in rows), default=0)
    third = max((len(row.launch) for row in rows), default=0)
    lines = [
        f"{'  ' * row.depth + row.what:{first}}  {row.kernel:{second}}  {row.launch:{third}}  {row.memory}"
        for row in rows
    ]
    results = " ".join(map(_place, plan.results)) or "nothing"
    found = [*lines, f"results: {results}", memory_line(plan)]
    return "".join(f"{line.rstrip()}\n" for line in found)


def show_plan(
    plan: Plan, console: Console, resources: Mapping[str, Resources] | None = None
) -> None:
    """A row a step, loops and branches indented, then the memory."""
    compiled = bool(resources)
    shared = ("shared",) if compiled else ()
    names = ("step", "kernel", "blocks x threads", *shared, "scratch", "bytes", "flops", "memory")
    made = table(*names, left=3)
    made.columns[-1].justify = "left"
    for row in plan_rows(plan, resources):
        what = "  " * row.depth + row.what
        if not row.kernel:
            made.add_row(what)
            continue
        held = "" if row.shared is None else byte_size(row.shared)
        made.add_row(
            what,
            # Blanks are where a narrow column breaks the line.
            row.kernel.replace("{", " {").replace(",", ", "),
            row.launch,
            *((held,) if compiled else ()),
            byte_size(row.scratch) if row.scratch else "",
            byte_size(row.moved),
            amount(row.flops),
            row.memory,
        )
    console.print(made)
    say(console, memory_line(plan))
