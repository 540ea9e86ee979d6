"""Computing values again instead of keeping them.

    x = f(a); ... much memory ...; g(x)        =>        x = f(a); ... less memory ...; x' = f(a); g(x')

The order of the module is swept once.  Where more bytes are alive than allowed, the value that gives back most
bytes for what it costs to compute (flops, ten for a transcendental function, and bytes moved; see
``analysis/cost.py``) and that is not needed right there is let go, and computed again right before its next
user, if

1. it is one array, computed by one instruction without side effects, random numbers or collectives;
2. what that instruction reads is still there then, or is kept for fewer bytes than are given back;
3. no tuple, view or update in place has it.

If the limit cannot be kept, less ambitious ones are tried; the plan with the lowest peak is carried out, and
the same is done again until nothing gets better.  Loops, calls and branches come first, with what their caller
leaves them.

Left out: storing values elsewhere, other orders (run ``schedule`` before).
"""

from __future__ import annotations

from typing import ClassVar

from hloopt.analysis.cost import instruction_cost
from hloopt.analysis.effects import Effects
from hloopt.analysis.liveness import Known, called_bytes, peak
from hloopt.analysis.memory import MemoryModel, memory_model
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import called_computations
from hloopt.ops.traits import ALIASES, SEQUENTIAL
from hloopt.passes.rematerialize.plan import RepeatPlan, plan_again
from hloopt.rewrite import Pass, PassLog

__all__ = ["Peaks", "Rematerialize"]


_FAMILIES = ("elementwise", "movement", "indexing", "reduction", "window", "linear", "sort")
_ALSO = ("iota", "fusion")
_HOLDERS = ALIASES | {"while"}
_STEPS = 5


@dataclass(frozen=True)
class Rematerialize(Pass):
    """Compute cheap values again instead of keeping them, until the peak of memory is low enough.

    Works on the order in which the module stands; a note says what was reached where that is more than
    ``bytes``.  Results keep every bit.

    bytes   the peak of ENTRY, parameters and results included, that is low enough; 0: as little as
            possible
    """

    keeps_schedule: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule again

add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

ENTRY main {
  p = f32[] parameter(0)
  zero = f32[] constant(0)
  a = f32[1024]{0} broadcast(p), dimensions={}
  s = f32[] reduce(a, zero), dimensions={0}, to_apply=add
  b = f32[1024]{0} broadcast(s), dimensions={}
  c = f32[1024]{0} exponential(b)
  t = f32[] reduce(c, zero), dimensions={0}, to_apply=add
  ROOT r = f32[] reduce(a, t), dimensions={0}, to_apply=add
}
"""

    bytes: int = 0

    def __post_init__(self) -> None:
        if self.bytes < 0:
            raise UsageError(f"{self.name}: bytes={self.bytes} is negative")

    def run(self, module: Module, log: PassLog) -> bool:
        peaks = Peaks()
        before = peaks.of(module.entry)
        if before <= self.bytes:
            return False
        worker = _Worker(Effects(module), log, peaks)
        changed = worker.lower(module.entry, self.bytes)
        reached = peak(module.entry)
        if changed:
            log.note(f"peak memory of the entry: {before} bytes before, {reached.byte_size} after")
        if self.bytes and reached.byte_size > self.bytes and reached.instruction is not None:
            log.note(
                f"{reached.byte_size} bytes are alive at {reached.instruction.name}, more than the "
                f"{self.bytes} asked for: nothing else can be computed again for less memory"
            )
        return changed


class _Worker:
    def __init__(self, effects: Effects, log: PassLog, peaks: Peaks) -> None:
        self.effects = effects
        self.log = log
        self.peaks = peaks
        self.plans = 0

    def lower(self, computation: Computation, limit: int) -> bool:
        """Bring the peak of a computation, callees included, down to ``limit``, or as far as it goes."""
        if self.peaks.is_settled(computation, limit):
            return False
        plans = self.plans
        changed = self.lower_callees(computation, limit)
        module = computation.module
        is_ordered = module is not None and bool(module.attributes.get("is_scheduled"))
        before = 0
        while self.log.allows():
            model = memory_model(computation)
            called = self.peaks.called(model)
            now = model.peak_of(range(len(called)), called)
            # A plan may come to less than it foresaw: its rounds end where one gained nothing.
            if now <= limit or 0 < before <= now:
                break
            before = now
            plan = self.best_plan(model, called, limit, now)
            if plan is None:
                break
            size = len(computation)
            self.carry_out(model, plan)
            self.plans += 1
            self.peaks.forget(computation)
            # What is dead where it was has only moved: nothing, in a module without an order.
            changed |= is_ordered or len(computation) > size
        if plans == self.plans:
            self.peaks.settle(computation, limit)
        return changed

    def lower_callees(self, computation: Computation, limit: int) -> bool:
        model = memory_model(computation)
        called = self.peaks.called(model)
        changed = False
        moments = model.moments(range(len(called)), called)
        for instruction, moment, inner in zip(model.instructions, moments, called, strict=True):
            if moment.peak <= limit or instruction.opcode not in SEQUENTIAL:
                continue
            for callee in called_computations(instruction):
                passed = sum(shape.byte_size for shape in callee.parameter_shapes)
                left = max(0, limit - (moment.peak - inner)) + passed
                if self.peaks.of(callee) > left:
                    changed |= self.lower(callee, left)
        return changed

    def best_plan(
        self, model: MemoryModel, called: list[int], limit: int, now: int
    ) -> RepeatPlan | None:
        """The plan with the lowest peak, and of those the cheapest; None where none gains enough.

        Enough is a fiftieth of what there is to gain, so that the rounds are few.
        """
        costs = self.costs(model)
        best: RepeatPlan | None = None
        for step in range(_STEPS):
            aim = limit + (now - limit) * step // _STEPS
            plan = plan_again(model, called, costs, aim)
            enough = plan.peak <= limit or (now - plan.peak) * 50 > now - limit
            if enough and (best is None or (plan.peak, plan.cost) < (best.peak, best.cost)):
                best = plan
            if plan.peak <= limit:
                break
        return best

    def costs(self, model: MemoryModel) -> dict[int, float]:
        shared = {buffer for pairs in model.taken for pair in pairs for buffer in pair}
        held = {model.owners[buffer][0] for buffer in (*shared, *model.results)}
        found: dict[int, float] = {}
        for number, instruction in enumerate(model.instructions):
            if number not in held and self.may_repeat(instruction):
                cost = instruction_cost(instruction)
                found[number] = float(cost.flops + 10 * cost.transcendentals + cost.bytes_accessed)
        return found

    def may_repeat(self, instruction: Instruction) -> bool:
        opcode = instruction.opcode
        return (
            instruction.is_array
            and (instruction.op.family in _FAMILIES or opcode in _ALSO)
            and opcode not in _HOLDERS
            and not instruction.has_control_edges
            and not instruction.shape.is_dynamic
            and not self.effects.has(instruction)
            and not any(user.opcode in _HOLDERS for user in instruction.users)
            and not _draws(instruction)
        )

    def carry_out(self, model: MemoryModel, plan: RepeatPlan) -> None:
        """Make the second computations; users from there on read them."""
        before: dict[int, list[int]] = {}
        for number, user in plan.again:
            before.setdefault(user, []).append(number)
        current: dict[Instruction, Instruction] = {}
        for number, instruction in enumerate(model.instructions):
            for again in before.get(number, ()):
                self.repeat(model.instructions[again], instruction, current)
            operands = tuple(current.get(operand, operand) for operand in instruction.operands)
            if operands != instruction.operands:
                edit.set_operands(instruction, operands)
        for instruction, copy in reversed(current.items()):  # users before what they use
            if not instruction.is_used:
                name = instruction.name
                edit.remove(instruction)
                edit.rename(copy, name)
                _hand_over_body(instruction, copy)

    def repeat(
        self,
        instruction: Instruction,
        position: Instruction,
        current: dict[Instruction, Instruction],
    ) -> None:
        if not self.log.allows():
            return
        operands = tuple(current.get(operand, operand) for operand in instruction.operands)
        copy = build.clone(instruction, position, operands)
        copy.offset = -1
        if instruction.opcode == "fusion" and instruction.computation is not None:
            module = instruction.module
            body = build.clone_computation(instruction.calls)
            edit.set_attribute(copy, "calls", edit.add_computation(module, body))
        current[instruction] = copy
        self.log.hit("compute again", instruction, f"for {position.name}, to keep less alive")


def _hand_over_body(gone: Instruction, copy: Instruction) -> None:
    """The body of a fusion that has only moved replaces the one that is no longer called."""
    if gone.opcode != "fusion":
        return
    body = gone.calls
    if not body.callers:
        name = body.name
        edit.remove_computation(body)
        edit.rename_computation(copy.calls, name)


def _draws(instruction: Instruction) -> bool:
    """Whether a fusion draws random numbers."""
    return instruction.opcode == "fusion" and any(
        inner.op.family == "random" for inner in instruction.calls
    )


class Peaks:
    """The memory computations need; after a change of one ``forget`` must be called."""

    def __init__(self) -> None:
        self._known: Known = {}
        self._peaks: dict[Computation, int] = {}
        self._settled: dict[Computation, set[int]] = {}

    def of(self, computation: Computation) -> int:
        """The bytes of the peak, parameters, results and what is called included."""
        found = self._peaks.get(computation)
        if found is None:
            found = self._peaks[computation] = peak(computation, self._known).byte_size
        return found

    def called(self, model: MemoryModel) -> list[int]:
        """The bytes that each instruction of a computation needs for what it calls."""
        return [called_bytes(instruction, self._known) for instruction in model.instructions]

    def settle(self, computation: Computation, limit: int) -> None:
        """Nothing can be done to bring a computation's peak down to ``limit``."""
        self._settled.setdefault(computation, set()).add(limit)

    def is_settled(self, computation: Computation, limit: int) -> bool:
        """Whether that is known, and nothing has changed since."""
        return limit in self._settled.get(computation, ())

    def forget(self, changed: Computation) -> None:
        """A computation has changed; where nothing is known of one, nothing is known of its callers."""
        pending = [changed]
        while pending:
            computation = pending.pop()
            gone = [
                self._known.pop((computation, False), None),
                self._known.pop((computation, True), None),
                self._peaks.pop(computation, None),
                self._settled.pop(computation, None),
            ]
            if any(entry is not None for entry in gone):
                callers = (caller.computation for caller in computation.callers)
                pending += (caller for caller in callers if caller is not None)
