"""The table of ``hloopt kernels``: which kernel runs which instruction, its launch, and an estimate."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hloopt.kernels.costs import KernelCost, KernelCosts
from hloopt.kernels.estimate import Estimate
from hloopt.kernels.kernel import Kernel
from hloopt.kernels.selection import Choice
from hloopt.kernels.selection.requests import tile_text
from hloopt.kernels.spec import Copy, Fill, KernelPart, KernelSpec, Launch, Tile
from hloopt.numbers import amount, byte_size, seconds
from hloopt.report.console import say, table
from hloopt.report.prediction import iteration_notes, sum_word
from hloopt.rewrite.source_lines import lines_text

if TYPE_CHECKING:
    from hloopt.backends.nvrtc import Resources

__all__ = [
    "Functions",
    "choice_json",
    "estimate_json",
    "kernel_list",
    "launch_text",
    "parts_text",
    "show_choices",
    "show_list",
]


Functions: TypeAlias = "Mapping[str, Resources]"
"""What each function of an instruction takes, by its name."""


def choice_json(
    choice: Choice, cost: KernelCost | None, functions: Functions | None = None
) -> dict[str, Any]:
    """A choice as JSON values; ``kernel`` is null where nothing fits.

    ``predicted`` is the time of all reports; ``estimate`` compares the kernels of one instruction.
    """
    taken = {name: dataclasses.asdict(found) for name, found in (functions or {}).items()}
    return {
        "instruction": choice.instruction,
        "computation": choice.computation,
        "opcode": choice.opcode,
        "shape": choice.shape,
        "kernel": choice.kernel or None,
        "tile": dict(choice.tile),
        "by": choice.source,
        "reason": choice.reason,
        **(_spec_json(choice.spec) if choice.spec is not None else {}),
        "predicted": _predicted_json(cost) if cost is not None else None,
        "estimate": estimate_json(choice.estimate),
        "place": choice.place,
        "line": choice.line,
        "lines": list(choice.lines),
        **({"functions": taken} if taken else {}),
    }


def _predicted_json(cost: KernelCost) -> dict[str, Any]:
    found = cost.prediction
    assert found is not None, "costs of choices are predicted"
    return {
        "seconds": found.seconds,
        "total_seconds": cost.seconds,
        "launches": cost.launches,
        "launches_counted": cost.counted,
        "launches_known": cost.known,
        "launches_bounded": cost.bounded,
        "by": found.by,
        "bound": found.bound,
    }


def estimate_json(estimate: Estimate | None) -> dict[str, Any] | None:
    """An estimate as JSON values."""
    if estimate is None:
        return None
    return {
        "bytes_read": estimate.bytes_read,
        "bytes_written": estimate.bytes_written,
        "flops": estimate.flops,
        "seconds": estimate.seconds,
        "note": estimate.note,
        **({"parts": dict(estimate.parts)} if estimate.parts else {}),
    }


def _spec_json(spec: KernelSpec) -> dict[str, Any]:
    return {
        "steps": [_step_json(step) for step in spec.steps],
        "library": spec.library or None,
        "is_atomic": spec.is_atomic,
        "in_place": [list(pair) for pair in spec.in_place],
        "scratch": [[entry.dtype, entry.elements] for entry in spec.scratch],
    }


def _step_json(step: KernelPart) -> dict[str, Any]:
    if isinstance(step, Launch):
        return {"launch": step.function, "grid": list(step.grid), "block": list(step.block)}
    if isinstance(step, Copy):
        return {
            "copy": [step.source.kind, step.source.number, step.target.kind, step.target.number]
        }
    return {"fill": [step.target.kind, step.target.number], "value": step.value}


def show_choices(
    choices: Sequence[Choice],
    costs: KernelCosts,
    model: str,
    console: Console,
    functions: Mapping[tuple[str, str], Functions] | None = None,
) -> None:
    """A row an instruction, in the order in which they stand, and what they come to.

    ``costs`` were predicted by ``model``; ``functions`` are those of each instruction, by computation and name,
    where they were compiled.
    """
    made = _choice_table(choices, costs, functions)
    if _width(made, console) > console.width:
        made = _choice_table(choices, costs, functions, breakable=True)
    console.print(made)
    say(console, _total(choices, costs, model))
    for note in iteration_notes(list(costs.values())):
        say(console, note)


def _width(made: Table, console: Console) -> int:
    """Columns that a table takes where nothing is broken."""
    return console.measure(made, options=console.options.update(width=1 << 20)).maximum


def _choice_table(
    choices: Sequence[Choice],
    costs: KernelCosts,
    functions: Mapping[tuple[str, str], Functions] | None,
    breakable: bool = False,
) -> Table:
    """``breakable``: with blanks in tiles, where a narrow column breaks the line."""
    more = ("registers",) if functions else ()
    looped = any(cost.launches != 1 for cost in costs.values())
    more = ("runs", *more) if looped else more
    made = table(
        *("instruction", "kernel", "launch", *more, "bytes", "flops", "time", "line"),
        left=3,
        optional=("bytes", "flops", "launch", "line"),
    )
    made.columns[-1].justify = "left"
    several = len({choice.computation for choice in choices}) > 1
    for choice in choices:
        where = f"{choice.computation}/" if several else ""
        name = f"{where}{choice.instruction}"
        if choice.spec is None or choice.estimate is None:
            blank = [""] * (4 + len(more))
            made.add_row(name, Text("none fits", style="red"), *blank, lines_text(choice.lines))
            continue
        place = choice.computation, choice.instruction
        found, cost = (functions or {}).get(place, {}), costs.get(place)
        made.add_row(
            name,
            kernel_text(choice.kernel, choice.tile, breakable=breakable),
            launch_text(choice.spec),
            *([cost.launches_text if cost is not None else ""] if looped else []),
            *([_registers(found)] if functions else []),
            *_cost_cells(cost),
            lines_text(choice.lines),
        )
    return made


def _cost_cells(cost: KernelCost | None) -> tuple[str, str, str]:
    """Bytes, flops and time of one launch; blank where the module runs none."""
    if cost is None or cost.prediction is None:
        return "", "", ""
    moved = byte_size(cost.cost.bytes_accessed)
    return moved, amount(cost.cost.flops), seconds(cost.prediction.seconds)


def kernel_text(kernel: str, tile: Tile, *, breakable: bool = False) -> str:
    """``loop{threads=128,unroll=1}``, as ``--kernel`` takes it; ``breakable`` puts blanks into it."""
    text = kernel + tile_text(tile)
    return text.replace("{", " {").replace(",", ", ") if breakable else text


def _registers(functions: Functions) -> str:
    """The most a thread of any function takes, and what does not fit into them."""
    if not functions:
        return ""
    stack = max(found.stack for found in functions.values())
    spills = sum(found.spill_stores + found.spill_loads for found in functions.values())
    cell = str(max(found.registers for found in functions.values()))
    cell += f", {stack} B stack" if stack else ""
    return cell + (f", {spills} B spilled" if spills else "")


def _total(choices: Sequence[Choice], costs: KernelCosts, model: str) -> str:
    """``3 kernels, 12 KiB, 1.2 k flops, 3.1 us predicted by xla-2026``: launches in loops counted."""
    able = [choice for choice in choices if choice.estimate is not None]
    rows = list(costs.values())
    moved = sum(row.runs * row.cost.bytes_accessed for row in rows)
    flops = sum(row.runs * row.cost.flops for row in rows)
    lost = len(choices) - len(able)
    without = f", {lost} without a kernel (hloopt explain says why)" if lost else ""
    return (
        f"{len(able)} kernel{'s' if len(able) != 1 else ''}, {byte_size(moved)}, {amount(flops)} flops, "
        f"{sum_word(rows)}{seconds(sum(row.seconds for row in rows))} predicted by {model}{without}"
    )


_MOST_PARTS: Final = 4


def launch_text(spec: KernelSpec) -> str:
    """``132 x 128``: blocks and threads of each launch; the library, copies and fills by name."""
    if spec.library:
        return spec.library
    return parts_text([_step_text(step) for step in spec.steps])


def parts_text(parts: Sequence[str]) -> str:
    """The parts of a kernel with ``+`` between them: of many, as a sort of a million has, the first few."""
    if len(parts) <= _MOST_PARTS:
        return " + ".join(parts) or "nothing"
    return " + ".join((*parts[: _MOST_PARTS - 1], f"{len(parts) - _MOST_PARTS + 1} more"))


def _step_text(step: KernelPart) -> str:
    if isinstance(step, Launch):
        return f"{prod(step.grid)} x {prod(step.block)}"
    return "fill" if isinstance(step, Fill) else "copy"


def kernel_list(kernels: Sequence[Kernel]) -> list[dict[str, Any]]:
    """All kernels in order of preference, as JSON values."""
    return [
        {
            "kernel": kernel.name,
            "device": kernel.device,
            "summary": kernel.summary,
            "owner": kernel.owner or None,
        }
        for kernel in kernels
    ]


def show_list(kernels: Sequence[Kernel], console: Console) -> None:
    """A row a kernel, in order of preference."""
    made = table("kernel", "device", "what it does", left=3)
    made.columns[0].no_wrap = True
    for kernel in kernels:
        whose = f" ({kernel.owner})" if kernel.owner else ""
        made.add_row(kernel.name, kernel.device, kernel.summary + whose)
    console.print(made)
