"""Collectives that need not be made so often: the same in every iteration of a loop, and two in a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.analysis.effects import Effects
from hloopt.analysis.trip_count import iteration_bounds
from hloopt.cost_models.collectives import collective_form, collective_opcode, result_bytes
from hloopt.findings.finding import FindingRemedy, LinkedCollectives
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.interpret.groups import DeviceGroup, groups_of
from hloopt.ir import Instruction, Module, edit
from hloopt.kernels.costs import KernelCost
from hloopt.numbers import byte_size
from hloopt.ops.traits import ASSOCIATIVE, COLLECTIVE, DONES, STARTS
from hloopt.passes.loops.carried import growth_obstacle
from hloopt.passes.loops.invariant_motion import InvariantSearch, WhileInvariantMotion
from hloopt.rewrite import PassLog
from hloopt.rewrite.regions import named_combiner
from hloopt.rewrite.site import Site, is_replaceable, sites
from hloopt.targets import Target

__all__ = ["in_a_row", "in_loops", "linked"]

_MOVED: Final = COLLECTIVE - STARTS - DONES - {"collective-broadcast", "ragged-all-to-all"}


class _Moving(Effects):
    """Collectives have no effect: what they give depends on their operands alone, if all devices make them."""

    def has(self, instruction: Instruction) -> bool:
        """Whether an instruction does anything besides computing its result."""
        return instruction.opcode not in _MOVED and super().has(instruction)


def _over(collective: Instruction, target: Target) -> str:
    form = collective_form(collective, target)
    return collective.opcode if form is None else f"{collective.opcode} over {form}"


def linked(subject: Subject) -> tuple[LinkedCollectives, ...]:
    """What collectives of the plan take by the table of links: those over the same link together, the longest
    first.
    """
    target, plan = subject.planner.predictor.target, subject.plan
    found: dict[tuple[str, str], list[KernelCost]] = {}
    for row in plan.rows:
        form = collective_form(row.instruction, target)
        if form is not None:
            found.setdefault((collective_opcode(row.instruction), str(form)), []).append(row)
    rows = (
        LinkedCollectives(
            opcode,
            over,
            tuple(row.instruction.name for row in same),
            max(same, key=lambda row: row.seconds).line,
            sum(row.counted for row in same),
            sum(result_bytes(row.instruction) * row.runs for row in same),
            sum(row.seconds for row in same),
            all(row.known for row in same),
        )
        for (opcode, over), same in found.items()
    )
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def in_loops(subject: Subject) -> Iterator[FindingCandidate]:
    """Collectives whose operands no iteration of a loop changes, which runs at least once."""
    target = subject.planner.predictor.target
    for loop in sites(subject.module, "while"):
        if not loop.is_tuple or len(loop.body.callers) != 1 or growth_obstacle(loop):
            continue
        if iteration_bounds(loop).least < 1:
            continue
        effects = _Moving(subject.module)
        search = InvariantSearch(WhileInvariantMotion(), loop, "body", effects, PassLog())
        for one in search.invariant:
            if one.opcode not in _MOVED:
                continue
            runs, _ = subject.runs(one)
            yield FindingCandidate(
                (one,),
                f"%{one.name} ({_over(one, target)}) is made in each of {runs:,} iterations of "
                f"%{loop.name}, which change none of its operands: once before the loop is enough. XLA "
                f"leaves it there: its {byte_size(one.shape.byte_size)} would be kept while the loop runs.",
                (
                    FindingRemedy(
                        "model",
                        "call jax.lax.all_gather, psum ... before jax.lax.scan or fori_loop, and close over "
                        "the result; where it comes from jax.lax.with_sharding_constraint, put that before "
                        "the loop",
                    ),
                ),
                _out_of_the_loop,
                (loop,),
            )


def _out_of_the_loop(module: Module, places: Sequence[Instruction]) -> bool:
    effects = _Moving(module)
    loops = {caller for place in places for caller in place.home.callers}
    return any(
        WhileInvariantMotion().hoist(loop, effects, PassLog())
        for loop in loops
        if loop.opcode == "while"
    )


def in_a_row(subject: Subject) -> Iterator[FindingCandidate]:
    """All-reduces of the result of another: one over both groups gives the same."""
    target = subject.planner.predictor.target
    if is_planned(subject.module):
        return
    for outer in sites(subject.module, "all-reduce"):
        groups = _both(outer)
        if groups is None:
            continue
        inner = outer.operands[0]
        yield FindingCandidate(
            (outer, inner),
            f"%{outer.name} ({_over(outer, target)}) reduces what %{inner.name} "
            f"({_over(inner, target)}) has reduced, and nothing else reads that: one all-reduce over "
            f"groups of {len(groups[0])} devices gives the same, and waits once.",
            (
                FindingRemedy(
                    "model",
                    'name both axes at once: jax.lax.psum(x, ("a", "b")) for psum(psum(x, "a"), "b")',
                ),
            ),
            _at_once,
            (inner,),
        )


def _both(outer: Instruction) -> tuple[DeviceGroup, ...] | None:
    """The groups of one all-reduce for two in a row; None where there is none."""
    inner = outer.operands[0]
    if len(outer.operands) != 1 or inner.opcode != "all-reduce" or len(inner.operands) != 1:
        return None
    if not is_replaceable(inner) or [*inner.users] != [outer] or inner.is_root:
        return None
    combiner = named_combiner(outer.to_apply)
    if combiner not in ASSOCIATIVE or named_combiner(inner.to_apply) != combiner:
        return None
    module = outer.module
    replicas, partitions = (
        int(module.attributes.get(name) or 1) for name in ("replica_count", "num_partitions")
    )
    try:
        first, second = (groups_of(one, replicas, partitions) for one in (inner, outer))
    except ValueError:
        return None
    home = {device: group for group in first for device in group}
    merged: dict[frozenset[int], None] = {}
    for group in second:
        parts = {home.get(device, ()) for device in group}
        together = frozenset(device for part in parts for device in part)
        if len(parts) != len(group) or sum(map(len, parts)) != len(together):
            return None  # something would be added twice
        merged[together] = None
    found = tuple(tuple(sorted(group)) for group in merged)
    is_partition = sum(map(len, found)) == len({device for group in found for device in group})
    return found if found and is_partition else None


def _at_once(module: Module, places: Sequence[Instruction]) -> bool:
    changed = False
    for outer in places:
        if outer.computation is None or outer.opcode != "all-reduce":
            continue
        groups = _both(outer)
        if groups is None:
            continue
        site, inner = Site(outer), outer.operands[0]
        attributes = {
            **outer.attributes,
            "replica_groups": groups,
            "use_global_device_ids": True,
            "channel_id": outer.attributes.get("channel_id", 1),
        }
        made = site.make("all-reduce", inner.operands[0], shape=outer.shape, **attributes)
        site.replace(made)
        edit.remove(inner)  # a collective is never dead
        changed = True
    return changed
