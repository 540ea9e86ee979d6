"""Greedy fusion of single producers into their consumers, last consumers first.

The strategy of XLA's InstructionFusion with the rules of XLA:GPU.  It fuses loops around each consumer
until no producer is left that may join; merging fusions with each other, several outputs and siblings
are the work of other strategies.
"""

from __future__ import annotations

from typing import ClassVar, Final

from hloopt.analysis.reachability import Reachability
from hloopt.dataclass import dataclass
from hloopt.fusion import apply
from hloopt.fusion.barriers import note_barriers
from hloopt.fusion.candidates import Candidates
from hloopt.fusion.decision import REASONS, Decision, forbid
from hloopt.fusion.duplication import RealUsers
from hloopt.fusion.fusible import UNCOMPUTED
from hloopt.fusion.history import FusionPlan, root_opcode
from hloopt.fusion.in_place import updated_in_place
from hloopt.fusion.limits import FusionLimits
from hloopt.fusion.recorder import FusionPass, FusionRecorder
from hloopt.fusion.rules import decide_consumer, decide_pair, decide_producer
from hloopt.fusion.state import ConsumerState
from hloopt.fusion.strategies import fusible_computations
from hloopt.fusion.unfusible import globally_unfusible
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ops.traits import UPDATING
from hloopt.rewrite.pass_ import PassLog

__all__ = ["InstructionFusion"]

_IN_PLACE: Final = tuple(code for code in REASONS if code.startswith("in-place-"))
_MAKE_TARGETS: Final = UPDATING | {"bitcast", "opt-barrier"}
"""Ops by which a fusion may come to update another operand in place."""


@dataclass(frozen=True)
class InstructionFusion(FusionLimits, FusionPass):
    """Fuse cheap producers into their consumers, into one kernel each.

    may_duplicate   whether a cheap producer may be computed in several kernels
    max_paths       instructions between a producer and a user from which on the producer is not duplicated
                    because the paths are not examined
    fuel            the most fusions to make in a module, negative for no limit
    """

    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = f32[1024] parameter(0)
  y = f32[1024] parameter(1)
  a = f32[1024] multiply(x, y)
  b = f32[1024] add(a, x)
  ROOT r = f32[1024] negate(b)
}
"""

    may_duplicate: bool = True
    max_paths: int = 512
    fuel: int = -1

    def fuse(self, module: Module, log: PassLog | None = None) -> FusionPlan:
        """Fuse in place; return what was fused, and what was refused and why."""
        recorder = FusionRecorder(self, module, log, self.fuel)
        computations = fusible_computations(module)
        for computation in computations:
            if recorder.log.allows():
                _Fuser(self, computation, recorder).run()
        note_barriers(recorder, computations)
        if recorder.plan.steps:
            module.attributes.pop("is_scheduled", None)
        return recorder.close()

    def limits(self) -> FusionLimits:
        """The limits alone."""
        return FusionLimits.of(self)


class _Fuser:
    """The fusion of one computation."""

    def __init__(
        self, options: InstructionFusion, computation: Computation, recorder: FusionRecorder
    ) -> None:
        self.options = options
        self.limits = options.limits()
        self.computation = computation
        self.recorder = recorder
        self.order = walk.post_order(computation)
        self.rank = {instruction: at for at, instruction in enumerate(self.order)}
        self.states: dict[Instruction, ConsumerState] = {}
        self.shut: dict[Instruction, Decision] = {}
        self.real_users = RealUsers()
        self.bodies: dict[Computation, None] = {}
        self.kept: set[Instruction] = set()

    def run(self) -> None:
        if self.options.may_duplicate:
            self.kept = globally_unfusible(
                self.order,
                Reachability(self.computation),
                self._may_join_unfused,
                self.options.max_paths,
            )
            self.states.clear()
        for consumer in reversed(self.order):
            if consumer.computation is self.computation and consumer.opcode not in UNCOMPUTED:
                self.states.pop(self._fuse_into(consumer), None)
        apply.number_parameter_names(self.bodies)

    def _fuse_into(self, consumer: Instruction) -> Instruction:
        """Fuse operands one by one, the last in order first, until none may join; the consumer then."""
        candidates = self._candidates(consumer)
        verdict: Decision | None = None
        while (producer := candidates.next()) is not None:
            if verdict is None:
                verdict = decide_consumer(self._state(consumer))
            decision = verdict and self._decide(producer, consumer)
            if not decision:
                self.recorder.refused(producer, consumer, decision)
                candidates.refuse(producer, decision, len(consumer.operands))
                continue
            reads = tuple(dict.fromkeys(producer.operands))
            opened = self._opened(producer, consumer, candidates)
            fusion = self._fuse(producer, consumer)
            if fusion is not consumer:
                consumer, verdict, candidates = fusion, None, self._candidates(fusion)
            else:
                candidates.joined(producer, reads, len(fusion.operands))
                for operand in reads:
                    self._meet(operand, fusion, candidates)
                candidates.ask_again(opened)
                if self.recorder.advice:
                    candidates.ask_all()
        return consumer

    def _candidates(self, consumer: Instruction) -> Candidates:
        candidates = Candidates(self.rank)
        for operand in consumer.operands:
            self._meet(operand, consumer, candidates)
        return candidates

    def _meet(self, operand: Instruction, consumer: Instruction, candidates: Candidates) -> None:
        if not candidates.meet(operand):
            return
        if self._decide_producer(operand):
            candidates.ask(operand)
        else:
            self._note_shut(operand, consumer)

    def _opened(
        self, producer: Instruction, consumer: Instruction, candidates: Candidates
    ) -> tuple[str, ...]:
        """Reasons that may no longer hold once a producer has joined: other operands are updated then."""
        if not candidates.holds(_IN_PLACE):
            return ()
        pairs = updated_in_place(consumer)
        is_target = any(consumer.operands[pair.index] is producer for pair in pairs)
        return _IN_PLACE if is_target or producer.opcode in _MAKE_TARGETS else ()

    def _note_shut(self, operand: Instruction, consumer: Instruction) -> None:
        """For one result of several, the refused producer is the instruction that makes them all."""
        while operand.opcode == "get-tuple-element":
            operand = operand.operands[0]
        if operand.opcode not in UNCOMPUTED:
            self.recorder.refused(operand, consumer, self._decide_producer(operand))

    def _decide_producer(self, producer: Instruction) -> Decision:
        known = self.shut.get(producer)
        if known is None:
            known = self.shut[producer] = decide_producer(producer)
        return known

    def _state(self, consumer: Instruction) -> ConsumerState:
        state = self.states.get(consumer)
        if state is None:
            state = self.states[consumer] = ConsumerState(consumer, self.limits, self.real_users)
        return state

    def _may_join_unfused(self, producer: Instruction, consumer: Instruction) -> bool:
        if not self._decide_producer(producer):
            return False
        advice = self.recorder.advice.decide(producer, consumer)
        if not advice:
            return False
        state = self._state(consumer)
        return bool(
            decide_consumer(state)
            and decide_pair(producer, state, may_duplicate=True, advised=advice.wanted)
        )

    def _decide(self, producer: Instruction, consumer: Instruction) -> Decision:
        advice = self.recorder.advice.decide(producer, consumer)
        if not advice:
            return advice
        decision = decide_pair(
            producer,
            self._state(consumer),
            may_duplicate=self.options.may_duplicate,
            advised=advice.wanted,
        )
        if decision and not advice.wanted and producer in self.kept:
            return forbid("would-read-more")
        return decision and self.recorder.allows()

    def _fuse(self, producer: Instruction, consumer: Instruction) -> Instruction:
        state = self._state(consumer)
        before = consumer.name, root_opcode(consumer)
        fusion = consumer if state.body is not None else self._wrap(producer, consumer, state)
        body = fusion.calls
        self.bodies[body] = None
        parameter = body.parameters[fusion.operands.index(producer)]
        reads, inside = dict.fromkeys(producer.operands), len(parameter.users)
        fused = apply.fuse_producer(fusion, producer)
        state.joined(producer, parameter, fused)
        fusion.attributes["kind"] = "kInput" if state.is_input_fusible else "kLoop"
        duplicated = not apply.remove_producer(producer)
        self.real_users.joined(producer, reads, inside, is_gone=not duplicated)
        self.recorder.fused(producer, before, fusion, duplicated=duplicated)
        return fusion

    def _wrap(
        self, producer: Instruction, consumer: Instruction, state: ConsumerState
    ) -> Instruction:
        name = consumer.name
        fusion = apply.wrap(consumer, "kLoop", f"{producer.opcode}_{consumer.opcode}_fusion")
        self.recorder.renamed(self.computation, name, fusion.name)
        self.rank[fusion] = self.rank.pop(consumer)
        del self.states[consumer]
        self.states[fusion] = state
        state.became(fusion)
        return fusion
