"""Makes the fusions of a lock file, before any strategy decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.fusion import apply
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.fusible import may_be_fused
from hloopt.fusion.history import FusionHistory, describe, root_opcode
from hloopt.fusion.in_place import decide_in_place
from hloopt.fusion.lock_adviser import digest, interface_of, loop_problem
from hloopt.fusion.lock_file import Decisions, LockedGroup, PairRow, read_decisions
from hloopt.fusion.merge import arrange_operands, arrange_results
from hloopt.fusion.recorder import FusionRecorder
from hloopt.fusion.strategies import fusible_computations
from hloopt.ir import Computation, Instruction, Module, edit, walk
from hloopt.rewrite.naming import name_number
from hloopt.rewrite.pass_ import Pass, PassLog
from hloopt.types import Verbatim

__all__ = ["LockedFusion"]


@dataclass(frozen=True)
class LockedFusion(Pass):
    """Make the fusions of a lock file, as far as the module is unchanged.

    lock     the file (``fusion/lock_file.py`` has its form)
    frozen   whether it is an error that the file does not suit the module

    What would make the module wrong is not made: a note says so.  ``--lock`` puts this pass before the first
    strategy and lets the file answer for all pairs that strategies ask about, too.
    """

    lock: str = ""
    frozen: bool = False

    def run(self, module: Module, log: PassLog) -> bool:
        if not self.lock:
            raise UsageError("locked-fusion has no lock file: locked-fusion{lock=FILE}")
        decisions = read_decisions(self.lock)
        recorder = FusionRecorder(self, module, log)
        homes = {computation.name: computation for computation in fusible_computations(module)}
        stale = [
            *_stale_pairs(decisions, module, homes.values()),
            *_stale_loops(decisions, module, homes),
        ]
        mine = [group for group in decisions.groups if group.module == module.name]
        known = mine or any(row.module == module.name for row in decisions.loops)
        if decisions.groups and not known:
            stale.append(f"it has no fusion of {module.name}")
        made: list[tuple[LockedGroup, Instruction]] = []
        ranks: dict[Computation, dict[Instruction, int]] = {}
        # Before the first of them is made, for a fusion takes names away that others read.
        reasons = {group: _suits(group, homes.get(group.computation)) for group in mine}
        stale += filter(None, reasons.values())
        for group in _in_order([group for group in mine if not reasons[group]]):
            home = homes[group.computation]
            rank = ranks.get(home)
            if rank is None:
                rank = ranks[home] = {
                    entry: number for number, entry in enumerate(walk.post_order(home))
                }
            maker = _Maker(group, home, rank, recorder)
            stale += maker.make()
            if maker.made is not None:
                made.append((group, maker.made))
        for group, fusion in made:
            _arrange(group, fusion, recorder.history)
        _number(made)
        if stale:
            more = f" (and {len(stale) - 1} more)" if len(stale) > 1 else ""
            message = f"{decisions.name} does not suit this module: {stale[0]}{more}"
            if self.frozen:
                raise UsageError(message)
            log.note(message)
        plan = recorder.close()
        if plan.steps:
            module.attributes.pop("is_scheduled", None)
        return bool(plan.steps)


def _in_order(groups: Sequence[LockedGroup]) -> list[LockedGroup]:
    """Consumers first; and before a fusion takes an instruction for its result, all that copy it."""
    results = {(group.computation, name) for group in groups for name in group.outputs[:-1]}

    def copies(group: LockedGroup) -> bool:
        return any(
            (group.computation, name) in results and name not in group.outputs
            for name in group.instructions
        )

    backwards = list(groups)
    backwards.reverse()
    return sorted(backwards, key=lambda group: not copies(group))


def _number(made: Sequence[tuple[LockedGroup, Instruction]]) -> None:
    """Number the computations of fusions in the order of the file's: names by heroes go by that order."""
    ordered = sorted(made, key=lambda row: name_number(row[0].calls or row[0].name))
    bodies: list[Computation] = [fusion.calls for _, fusion in ordered]
    for stem in ("locked_computation", "fused_computation"):  # a name is free once nothing has it
        for body in bodies:
            edit.rename_computation(body, stem)


def _suits(group: LockedGroup, home: Computation | None) -> str:
    """Why a fusion of the file cannot be made of what there is now; empty where it can."""
    if home is None:
        return f"{group.name}: the module has no computation {group.computation}"
    gone = [name for name in group.instructions if name not in home.by_name]
    if gone:
        return f"{group.name}: {home.name} has no %{gone[0]}"
    members = [home.by_name[name] for name in group.instructions]
    if group.signature and group.signature != digest(map(describe, members)):
        return f"{group.name}: its instructions have changed"
    for member in members:
        if not may_be_fused(member):
            return f"{group.name}: %{member.name} ({member.opcode}) cannot be part of a fusion"
    return ""


class _Maker:
    """One fusion of the file."""

    def __init__(
        self,
        group: LockedGroup,
        home: Computation,
        rank: dict[Instruction, int],
        recorder: FusionRecorder,
    ) -> None:
        self.group = group
        self.home = home
        self.rank = rank
        self.recorder = recorder
        self.made: Instruction | None = None

    def make(self) -> list[str]:
        """Make it; return a message for each member that has to stay apart."""
        rows = self.home.by_name
        gone = [name for name in self.group.instructions if name not in rows]
        if gone:
            return [f"{self.group.name}: %{gone[0]} is a result of another fusion"]
        return list(self._fuse([rows[name] for name in self.group.instructions]))

    def _fuse(self, members: list[Instruction]) -> Iterable[str]:
        # Users come before what they use: a member joins once all that read it within the fusion are there.
        members.sort(key=self.rank.__getitem__)
        results = {self.home.by_name[name] for name in self.group.outputs}
        last = max(results, key=self.rank.__getitem__)
        fusion, joined = last, False
        for member in reversed(members):
            if member is last:
                continue
            decision, fusion = self._join(member, fusion, is_result=member in results)
            if not decision:
                self.recorder.refused(member, fusion, decision)
                yield f"{self.group.name}: %{member.name} stays apart: {decision.reason}"
            joined = joined or bool(decision)
        if joined:
            self.made = fusion
            fusion.attributes["kind"] = self.group.kind
            if self.group.backend_config:
                config = Verbatim(self.group.backend_config)
                edit.set_attribute(fusion, "backend_config", config)

    def _join(
        self, member: Instruction, fusion: Instruction, *, is_result: bool
    ) -> tuple[Decision, Instruction]:
        decision = self._may_join(member, fusion, is_result=is_result)
        if not decision:
            return decision, fusion
        consumer, kind = (fusion.name, root_opcode(fusion)), self.group.kind
        is_new = fusion.opcode != "fusion"
        if is_result:
            make = apply.fuse_multi_output if member in fusion.operands else _merge
            try:
                fusion = make(member, fusion, kind)
            except ValueError:
                return forbid("would-cycle"), fusion
            duplicated = False
        else:
            fusion = apply.fuse(member, fusion, kind)
            duplicated = not apply.remove_producer(member)
        if is_new:
            edit.rename(fusion, self.group.name)
        self.recorder.fused(member, consumer, fusion, duplicated=duplicated, multi_output=is_result)
        return Decision(True), fusion

    def _may_join(self, member: Instruction, fusion: Instruction, *, is_result: bool) -> Decision:
        if not (spent := self.recorder.allows()):
            return spent
        is_read = member in fusion.operands
        if not is_result and not is_read:
            return forbid("no-users")
        advised = self.recorder.advice.decide(member, fusion)
        if not advised:
            return advised
        # Equal signatures: the strategy has seen the same instructions.
        known = bool(self.group.signature)
        return decide_in_place(member, fusion) if is_read and not known else Decision(True)


def _arrange(group: LockedGroup, fusion: Instruction, history: FusionHistory) -> None:
    """Give a fusion the order of operands and results that it had, where it has the same."""
    operands, results = interface_of(fusion, history)
    if order := _order(results, group.outputs):
        arrange_results(fusion, order)
    if order := _order(operands, group.operands):
        arrange_operands(fusion, order)
    apply.number_parameter_names((fusion.calls,))


def _order(now: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where the wanted ones are now; empty where they differ, or are in order."""
    if now == wanted or sorted(now) != sorted(wanted) or len(set(now)) < len(now):
        return []
    return [now.index(name) for name in wanted]


def _merge(member: Instruction, fusion: Instruction, kind: str) -> Instruction:
    return apply.merge_siblings(fusion, member, kind)


def _stale_loops(
    decisions: Decisions, module: Module, homes: Mapping[str, Computation]
) -> Iterable[str]:
    """The loops of a file that the module does not have, or has otherwise."""
    for row in decisions.loops:
        if row.module != module.name:
            continue
        home = homes.get(row.computation)
        loop = home.by_name.get(row.name) if home is not None else None
        if loop is None or loop.opcode != "while":
            yield f"{row.computation} has no while named %{row.name}"
        elif problem := loop_problem(row, loop):
            yield f"%{row.name}: {problem}"


def _stale_pairs(
    decisions: Decisions, module: Module, homes: Iterable[Computation]
) -> Iterable[str]:
    """The pairs of a file that match nothing in a module."""
    homes = list(homes)
    for row in decisions.pairs:
        if row.module not in ("", module.name):
            continue
        searched = [home for home in homes if row.computation in ("", home.name)]
        reason = _nothing_for(row, searched)
        if reason:
            yield f"{row.title.removeprefix(f'{decisions.name}: ')}: {reason}"


def _nothing_for(row: PairRow, homes: list[Computation]) -> str:
    """Why a row is about no two instructions; empty where it is."""
    for pattern in (row.producer, row.consumer):
        if not any(pattern.matches(entry) for home in homes for entry in home):
            return f"nothing is called '{pattern}'"
    made = {entry for home in homes for entry in home if row.producer.matches(entry)}
    read = {operand for entry in made for operand in entry.operands}
    for entry in (entry for home in homes for entry in home if row.consumer.matches(entry)):
        if entry.opcode == "while" and entry in made:
            return ""
        beside = {near for operand in entry.operands for near in (operand, *_through(operand))}
        if not beside.isdisjoint(made) or (entry not in made and not beside.isdisjoint(read)):
            return ""
    return f"no '{row.consumer}' reads a '{row.producer}', nor do both read the same"


def _through(operand: Instruction) -> tuple[Instruction, ...]:
    return operand.operands if operand.opcode == "get-tuple-element" else ()
