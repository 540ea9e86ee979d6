"""Loops: small launches that could be one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.analysis.effects import Effects
from hloopt.analysis.trip_count import counted_iterations
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.fusion.advice import Advice
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.fusion.user_rules import rule_of
from hloopt.ir import Instruction, Module
from hloopt.ir.build import clone_module
from hloopt.passes.loops.unroll import WhileUnroll
from hloopt.rewrite.pass_ import PassLog
from hloopt.targets import Target

__all__ = ["kernels"]

_FEW: Final = 3
"""Iterations from which on a loop is looked at."""
_AT_ONCE: Final = 8
_UNROLLED: Final = 8
"""Loops of a module that are tried with several iterations in one."""
_BODY: Final = 150
"""Instructions of their bodies at most."""


def kernels(subject: Subject) -> Iterator[FindingCandidate]:
    """Loops whose iterations launch kernels: several iterations in one, or hloopt's kernel of the whole loop.

    The user's own change counts, unless hloopt's kernel gains more than twice as much.
    """
    target = subject.planner.predictor.target
    if not target.has_threads:
        return
    loops = [one for one in _loops(subject.module) if counted_iterations(one).count >= _FEW]
    if not loops:
        return
    fused = clone_module(subject.module)
    _fuse(fused, target, frozenset(one.name for one in loops))
    tried = 0
    for loop in loops:
        home = fused.computations.get(loop.home.name)
        is_kernel = home is not None and loop.name not in home.by_name
        whole = _whole(loop, target) if is_kernel else None
        tried += 1
        if tried > _UNROLLED or len(loop.body) > _BODY:
            if whole is not None:
                yield whole
            continue
        more = "; as one kernel loop-fusion runs all of it (hloopt optimize -O3)" if whole else ""
        yield FindingCandidate(
            (loop,),
            f"{_launches(loop)} With {_AT_ONCE} iterations in one, kernels of several are fused.",
            (
                FindingRemedy(
                    "model",
                    f"unroll={_AT_ONCE} of lax.scan or lax.fori_loop, or a Pallas kernel with the loop inside",
                ),
                FindingRemedy(
                    "hloopt",
                    f"while-unroll{{factor={_AT_ONCE},full_max=0}}, before other passes{more}",
                ),
            ),
            _eight_at_once,
            instead=whole,
        )


def _whole(loop: Instruction, target: Target) -> FindingCandidate:
    """The loop as one kernel, which hloopt makes of it."""
    return FindingCandidate(
        (loop,),
        f"{_launches(loop)} The whole loop fits one kernel.",
        (
            FindingRemedy(
                "hloopt",
                "loop-fusion makes one kernel of the loop (hloopt optimize -O3; hloopt.jax "
                "runs it within JAX)",
            ),
            FindingRemedy("model", "a Pallas or Triton kernel with the loop inside"),
        ),
        _Fused(target),
    )


def _launches(loop: Instruction) -> str:
    trips = counted_iterations(loop)
    return (
        f"%{loop.name} launches its kernels again in each of its {_trips(trips.count, trips.known)} "
        "iterations, and what it carries goes through memory each time."
    )


def _eight_at_once(module: Module, places: Sequence[Instruction]) -> bool:
    unroll, effects = WhileUnroll(factor=_AT_ONCE, full_max=0), Effects(module)
    made = [unroll.unroll(loop, effects, PassLog()) for loop in places]
    return any(made)


def _trips(count: int, known: str) -> str:
    return f"{count:,}" if known == "exact" else f"{known} {count:,}"


def _loops(module: Module) -> Iterator[Instruction]:
    for computation in module:
        for instruction in computation:
            if instruction.opcode == "while":
                yield instruction


class _Fused:
    """The change: one kernel of a loop, where loop fusion finds that faster."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def __call__(self, module: Module, places: Sequence[Instruction]) -> bool:
        """Whether a loop became a kernel."""
        return _fuse(module, self.target, frozenset(one.name for one in places))


def _fuse(module: Module, target: Target, names: frozenset[str]) -> bool:
    """Make kernels of the loops of these names, where loop fusion finds that faster."""

    def only(producer: Instruction, consumer: Instruction) -> bool | None:
        return None if producer.name in names else False

    log = PassLog(advice=Advice((rule_of(only),)))
    return bool(LoopFusion().fuse(module, log, target).steps)
