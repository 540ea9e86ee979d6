"""Softmax and other normalisations as Triton kernels, where these are faster than several others."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from hloopt.cost_models.block_level import PricedTiling, Untiled
from hloopt.cost_models.model import Comparison, CostModel
from hloopt.cost_models.registry import DEFAULT, find_model, model_for
from hloopt.dataclass import dataclass
from hloopt.fusion import apply
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.diamonds import Diamond, find_diamonds
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.fusion.recorder import FusionPass, FusionRecorder
from hloopt.fusion.strategies import fusible_computations
from hloopt.fusion.triton import TritonFusions, block_level_of
from hloopt.fusion.triton_support import unsupported_target
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import called_computations
from hloopt.rewrite.pass_ import PassLog
from hloopt.targets import Target, find_target

__all__ = ["TritonSoftmaxRewriter"]

_NAME = "triton_softmax"


@dataclass(frozen=True)
class TritonSoftmaxRewriter(FusionPass):
    """Make Triton fusions of normalisation diamonds that a cost model finds no slower that way.

    A diamond is a value, the reduce of its last dimension, and the op that joins the two again
    (``p / broadcast(sum(p))``).  It is compared with what priority-fusion makes of it by itself; launches do
    not count.  As XLA does before its fusion passes; priority-fusion then lets others join.

    cost_model  the model that predicts kernel times
    target      the device; one that Triton has no code for is left alone
    fuel        the most fusions to make in a module, negative for no limit
    """

    asks_advice: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule example

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  p = f32[128,1024] parameter(0)
  zero = f32[] constant(0)
  r = f32[128] reduce(p, zero), dimensions={1}, to_apply=sum
  w = f32[128,1024] broadcast(r), dimensions={0}
  ROOT d = f32[128,1024] divide(p, w)
}
"""

    cost_model: str = DEFAULT
    target: str = "h200"
    fuel: int = -1

    def fuse(
        self, module: Module, log: PassLog | None = None, device: Target | None = None
    ) -> FusionPlan:
        """Fuse in place; return what was fused, and what was refused and why.

        ``device`` takes the place of ``target``.  Raises ``UsageError`` for an unknown model or target.
        """
        target = device or find_target(self.target)
        model = model_for(self.cost_model, target)
        recorder = FusionRecorder(self, module, log, self.fuel)
        recorder.plan.cost_model, recorder.plan.target = model.name, target.name
        missing = unsupported_target(target)
        if missing:
            recorder.log.note(f"Triton kernels have no {missing}: no diamonds are looked for")
            return recorder.close()
        rewriter = _Rewriter(model, recorder, PriorityFusion(cost_model=self.cost_model))
        for computation in fusible_computations(module):
            # Last ones first: the root of one may be the producer of the next.
            for diamond in reversed(find_diamonds(computation, target)):
                rewriter.visit(module, diamond)
        return recorder.close()


@dataclass(frozen=True)
class _Rewriter:
    """``alone`` is what a diamond would become otherwise."""

    model: CostModel
    recorder: FusionRecorder
    alone: PriorityFusion

    def visit(self, module: Module, diamond: Diamond) -> None:
        """Decide about one diamond, and fuse it."""
        if not (spent := self.recorder.allows()):
            self.recorder.refused(diamond.reduce, diamond.root, spent)
            return
        # The same computation by itself, to be tiled and to be fused in another way.
        apart = Module("diamond", module.source)
        regions = {
            called: edit.add_computation(apart, build.clone_computation(called))
            for node in diamond.body()
            for called in called_computations(node)
        }
        apart.entry = edit.add_computation(apart, _body(diamond, regions.__getitem__))
        tiling = self._tiling(diamond, apart.entry)
        decision, comparison = self._decide(diamond, tiling, apart)
        if isinstance(tiling, Untiled) or not decision:
            self.recorder.refused(diamond.reduce, diamond.root, decision)
            return
        self._fuse(module, diamond, tiling, comparison)

    def _tiling(self, diamond: Diamond, body: Computation) -> PricedTiling | Untiled:
        block_level = block_level_of(self.model)
        whole = Instruction(
            _NAME,
            "fusion",
            diamond.root.shape,
            _operands(diamond),
            {"kind": "kCustom", "calls": body},
        )
        found = block_level.best(whole)
        block_level.forget(whole)
        return found

    def _decide(
        self, diamond: Diamond, tiling: PricedTiling | Untiled, apart: Module
    ) -> tuple[Decision, Comparison | None]:
        advised = self.recorder.advice.decide(diamond.reduce, diamond.root)
        if not advised:
            return advised, None
        if isinstance(tiling, Untiled):
            return forbid("triton-not-tiled", words=tiling.words), None
        self.alone.fuse(apart, device=self.model.target)
        kernels = find_model(self.model.name)(self.model.target)
        unfused = sum(kernels.run_time(kernel).exec_ns for kernel in apart.entry)
        comparison = Comparison(unfused / 1000, tiling.run_time.exec_ns / 1000)
        if not advised.wanted and comparison.gain_us < 0:
            return forbid("triton-slower", comparison=comparison), comparison
        return advised, comparison

    def _fuse(
        self, module: Module, diamond: Diamond, tiling: PricedTiling, comparison: Comparison | None
    ) -> None:
        root = diamond.root
        body = edit.add_computation(module, _body(diamond, lambda called: called))
        fusion = edit.insert_before(
            root,
            Instruction(
                _NAME,
                "fusion",
                root.shape,
                _operands(diamond),
                {"kind": "kCustom", "calls": body},
                root.metadata,
                root.offset,
            ),
        )
        TritonFusions.write(fusion, tiling.parameters)
        edit.replace_uses(root, fusion)
        name, count = root.name, 1
        for node in reversed(diamond.body()):
            if node is not root:
                self.recorder.fused(
                    node,
                    (name, root.opcode),
                    fusion,
                    duplicated=len(node.users) > 1,
                    comparison=comparison,
                    count=count,
                )
                name, count = fusion.name, 0
            apply.remove_producer(node)


def _operands(diamond: Diamond) -> tuple[Instruction, ...]:
    """The producer, then the parameters of the computation that the body reads."""
    read = [
        operand
        for node in diamond.body()
        for operand in node.operands
        if operand.opcode == "parameter"
    ]
    return tuple(dict.fromkeys([diamond.producer, *read]))


def _body(diamond: Diamond, region: Callable[[Computation], Computation]) -> Computation:
    """A copy of a diamond as a new computation, which calls ``region`` of what the diamond calls."""
    body = Computation(f"{_NAME}_computation")
    copies: dict[Instruction, Instruction] = {}
    for number, operand in enumerate(_operands(diamond)):
        parameter = Instruction(
            f"param_{number}", "parameter", operand.shape, (), {"parameter_number": number}
        )
        copies[operand] = edit.append(body, parameter)
    for node in diamond.body():
        attributes = {
            name: region(value) if isinstance(value, Computation) else value
            for name, value in node.attributes.items()
        }
        copy = Instruction(
            node.name,
            node.opcode,
            node.shape,
            tuple(copies[operand] for operand in node.operands),
            attributes,
            node.metadata,
            node.offset,
        )
        copies[node] = edit.append(body, copy)
    body.root = copies[diamond.root]
    return body
