"""Matrix products as Triton kernels, with what is done to their operands and results."""

from __future__ import annotations

from typing import ClassVar

from hloopt.analysis.backend_config import TRITON_GEMM, written_kind
from hloopt.dataclass import dataclass
from hloopt.fusion import apply
from hloopt.fusion.decision import forbid
from hloopt.fusion.gemm.plan import GemmNode, GemmPlan, plan_gemm, refused_dot
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.recorder import FusionPass, FusionRecorder
from hloopt.fusion.strategies import fusible_computations
from hloopt.fusion.triton_support import unsupported_target
from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.rewrite.pass_ import PassLog
from hloopt.targets import Target, find_target

__all__ = ["GemmFusion"]


@dataclass(frozen=True)
class GemmFusion(FusionPass):
    """Make a Triton fusion of each dot, with elementwise ops and moves around it.

    Towards the operands join ops that read little more than they give, 4 inputs an operand at most;
    towards the users those whose other inputs are parameters or broadcasts of them.  Dimensions must run
    through memory in one piece.  As XLA does by default before its fusion passes: no fusion pass adds
    to such a kernel, and XLA's autotuner may take it apart again for cuBLAS.

    target      the device; one that Triton has no code for is left alone
    fuel        the most fusions to make in a module, negative for no limit
    """

    asks_advice: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = f32[64,32] parameter(0)
  w = f32[32,48] parameter(1)
  b = f32[48] parameter(2)
  d = f32[64,48] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  wide = f32[64,48] broadcast(b), dimensions={1}
  ROOT r = f32[64,48] add(d, wide)
}
"""

    target: str = "h200"
    fuel: int = -1

    def fuse(
        self, module: Module, log: PassLog | None = None, device: Target | None = None
    ) -> FusionPlan:
        """Fuse in place; return what was fused, and what was refused and why.

        ``device`` takes the place of ``target``.  Raises ``UsageError`` for an unknown target.
        """
        target = device or find_target(self.target)
        recorder = FusionRecorder(self, module, log, self.fuel)
        recorder.plan.target = target.name
        missing = unsupported_target(target)
        if missing:
            recorder.log.note(f"Triton kernels have no {missing}: no dots are looked for")
            return recorder.close()
        for computation in fusible_computations(module):
            for dot in [entry for entry in computation if entry.opcode == "dot"]:
                if not _visit(module, dot, target, recorder):
                    break
        return recorder.close()


def _visit(module: Module, dot: Instruction, target: Target, recorder: FusionRecorder) -> bool:
    """Decide about one dot; return whether others may follow."""
    spent = recorder.allows()
    if not spent:
        recorder.refused(dot, None, spent)
        return False
    words = refused_dot(dot, target)
    if words:
        recorder.refused(dot, None, forbid("triton-unsupported", words=words))
        return True
    plan = plan_gemm(dot, target)
    fusion = _fuse(module, plan, recorder)
    if plan.closed is not None:
        user, words = plan.closed
        recorder.refused(fusion, user, forbid("gemm-epilogue", words=words))
    return True


def _fuse(module: Module, plan: GemmPlan, recorder: FusionRecorder) -> Instruction:
    root = plan.root
    body = _Body(plan)
    called = edit.add_computation(module, body.computation)
    fusion = edit.insert_before(
        root,
        Instruction(
            f"gemm_fusion_{plan.dot.name}",
            "fusion",
            root.shape,
            tuple(body.parameters),
            {"kind": "kCustom", "calls": called},
            plan.dot.metadata,
            plan.dot.offset,
        ),
    )
    edit.set_attribute(fusion, "backend_config", written_kind(fusion, TRITON_GEMM))
    edit.replace_uses(root, fusion)
    joined = [node for node in reversed(body.taken) if node is not root] or [root]
    for place, node in enumerate(joined):
        # From the second on they join what the first has made.
        name = fusion.name if place else root.name
        recorder.fused(
            node,
            (name, root.opcode),
            fusion,
            duplicated=len(node.users) > 1,
            count=int(not place),
        )
    for node in reversed(body.taken):
        apply.remove_producer(node)
    return fusion


class _Body:
    """A copy of what a plan takes in, as a new computation.

    parameters  what it reads, by the numbers of its parameters
    taken       what was copied, operands first
    """

    def __init__(self, plan: GemmPlan) -> None:
        self.computation = Computation(f"gemm_fusion_{plan.dot.name}_computation")
        self.parameters: dict[Instruction, Instruction] = {}
        self.taken: dict[Instruction, None] = {}
        self._copies: dict[GemmNode, Instruction] = {}
        value = self._copy(plan.dot, [self._value(side) for side in plan.sides])
        for user, others in plan.behind:
            operands = [value if other is None else self._value(other) for other in others]
            value = self._copy(user, operands)
        self.computation.root = value

    def _value(self, node: GemmNode) -> Instruction:
        """The copy of a value, those of its operands first; chains may be long."""
        stack = [node]
        while stack:
            top = stack[-1]
            missing = [one for one in top.operands or () if one not in self._copies]
            if missing:
                stack += reversed(missing)
                continue
            stack.pop()
            if top not in self._copies:
                self._copies[top] = self._made(top)
        return self._copies[node]

    def _made(self, node: GemmNode) -> Instruction:
        if node.operands is None:
            return self._parameter(node.instruction)
        return self._copy(node.instruction, [self._copies[one] for one in node.operands])

    def _parameter(self, value: Instruction) -> Instruction:
        if value not in self.parameters:
            number = len(self.parameters)
            self.parameters[value] = edit.append(
                self.computation,
                Instruction(
                    f"param_{number}", "parameter", value.shape, (), {"parameter_number": number}
                ),
            )
        return self.parameters[value]

    def _copy(self, source: Instruction, operands: list[Instruction]) -> Instruction:
        self.taken[source] = None
        return edit.append(
            self.computation,
            Instruction(
                source.name,
                source.opcode,
                source.shape,
                tuple(operands),
                dict(source.attributes),
                source.metadata,
                source.offset,
            ),
        )
