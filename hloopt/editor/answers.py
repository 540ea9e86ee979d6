"""What an editor shows about a module: texts at a name, predicted times, and arrays that no fusion removes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from threading import Lock
from typing import Final

from hloopt.cost_models.predictor import Predictor
from hloopt.dataclass import dataclass
from hloopt.driver.explaining import ModuleExplained, PlannedModule, plan_to_explain
from hloopt.editor.document import Named
from hloopt.ir import Computation, Instruction, Module
from hloopt.kernels.costs import KernelPrices
from hloopt.numbers import amount, byte_size, seconds
from hloopt.report.console import capturing
from hloopt.spelling import first_of
from hloopt.types import TupleShape

__all__ = ["DocumentAnswers", "UnfusedArray"]

_MOST_NAMES: Final = 6
_WIDTH: Final = 100


@dataclass(frozen=True, slots=True)
class UnfusedArray:
    """An instruction whose result is written to memory for others to read: its bytes, and why."""

    instruction: Instruction
    byte_size: int
    readers: tuple[str, ...]
    codes: tuple[str, ...]

    @property
    def title(self) -> str:
        """One line."""
        why = ", ".join(self.codes) or "no strategy considers it"
        return f"{byte_size(self.byte_size)} in memory for {first_of(self.readers)}: {why}"


class DocumentAnswers:
    """About one valid module; times are predicted by ``predictor`` for the module as it stands."""

    def __init__(self, module: Module, predictor: Predictor) -> None:
        self.module = module
        self.predictor = predictor
        self._planning = Lock()
        self._planned: PlannedModule | None = None

    @cached_property
    def prices(self) -> KernelPrices:
        """Of the kernels of the module as it stands."""
        return KernelPrices(self.module, self.predictor)

    def time(self, instruction: Instruction) -> str:
        """``1.2 us``, ``30 x 1.2 us`` in a loop; empty where no kernel starts."""
        row = self.prices.of(instruction)
        if row is None or row.prediction is None:
            return ""
        time = seconds(row.prediction.seconds)
        return f"{row.launches_text} x {time}" if row.launches != 1 or not row.known else time

    def hover(self, named: Named) -> str:
        """Markdown about an instruction or a computation."""
        if isinstance(named, Computation):
            return "\n\n".join(self._computation(named))
        return "\n\n".join(self._instruction(named))

    def _computation(self, named: Computation) -> Iterator[str]:
        kind = "entry computation" if named is self.module.entry else "computation"
        shapes = ", ".join(map(str, named.parameter_shapes))
        yield f"**{_code(named.name)}**: {kind} of {len(named)} instructions"
        yield _code(f"({shapes}) -> {named.result_shape}")
        callers = [one.name for one in named.callers]
        if callers:
            yield f"called by {_names(callers)}"

    def _instruction(self, named: Instruction) -> Iterator[str]:
        about = f", {named.custom_call_target}" if named.custom_call_target else ""
        yield f"**{_code(named.name)}**: {_code(named.opcode + about)}"
        size = byte_size(named.shape.byte_size)
        parts = len(named.elements) if isinstance(named.shape, TupleShape) else 0
        yield f"{_code(str(named.shape))}, {size}" + (f" in {parts} elements" if parts else "")
        row = self.prices.of(named)
        if row is not None and row.prediction is not None:
            cost, target = row.cost, self.predictor.target.name
            yield (
                f"kernel: reads {byte_size(round(cost.bytes_read))}, writes "
                f"{byte_size(round(cost.bytes_written))}, {amount(round(cost.flops))} flops"
            )
            yield (
                f"predicted: {self.time(named)} on {target} by {row.prediction.by}, bound by "
                f"{row.prediction.bound}"
            )
        if named.users:
            yield f"used by {_names([one.name for one in named.users])}"
        elif named.is_root:
            yield "the root"
        metadata = named.metadata
        lines = self.module.user_lines(metadata)
        op_name = "" if metadata is None else str(metadata.fields.get("op_name", ""))
        origin = [_code(text) for text in (*lines[:1], op_name) if text]
        if origin:
            yield ", ".join(origin)

    def unfused(self) -> list[UnfusedArray]:
        """The arrays between kernels that instructions of the text write, as ``hloopt explain`` lists them.

        Raises as ``explained``.
        """
        found: dict[Instruction, UnfusedArray] = {}
        explained = self.explained()
        rows = [] if explained.fusion is None else explained.fusion.json.get("arrays", [])
        for row in rows:
            home = self.module.computations.get(row["computation"])
            writer = None if home is None else home.by_name.get(row["array"])
            if writer is None or writer.offset < 0:
                continue
            codes = dict.fromkeys(f"{one['pass']}: {one['code']}" for one in row["not_fused"])
            known = found.get(writer)
            if known is not None:
                codes = dict.fromkeys([*known.codes, *codes])
            readers = dict.fromkeys([*(known.readers if known else ()), row["reader"]])
            found[writer] = UnfusedArray(writer, row["bytes"], tuple(readers), tuple(codes))
        return list(found.values())

    def explained(self, *names: str) -> ModuleExplained:
        """What ``hloopt explain`` says on the target; raises as it does.

        The module is planned once, whatever threads ask: an editor asks at each look.
        """
        with self._planning:
            if self._planned is None:
                self._planned = plan_to_explain(self.module, target=self.predictor.target.name)
            return self._planned.about(names)

    def explanation(self, name: str) -> str:
        """The text of ``explained``."""
        console = capturing(_WIDTH)
        self.explained(name).show(console)
        return console.export_text().rstrip()


def _names(names: list[str]) -> str:
    return first_of([_code(f"%{name}") for name in names], _MOST_NAMES)


def _code(text: str) -> str:
    """A module's words as code in Markdown, with a fence longer than any in them."""
    ticks = max((len(run) for run in re.findall("`+", text)), default=0) + 1
    pad = " " if ticks > 1 else ""
    plain = text.replace("\n", " ")
    return f"{'`' * ticks}{pad}{plain}{pad}{'`' * ticks}"
