"""Loops: small launches that could be one kernel, and products that need no value of the iteration before."""

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
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ir.build import clone_module
from hloopt.passes.loops.unroll import WhileUnroll
from hloopt.rewrite.pass_ import PassLog
from hloopt.rewrite.site import is_replaceable
from hloopt.targets import Target
from hloopt.types import ArrayShape, DotDims, TupleShape

__all__ = ["kernels", "products"]

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


def products(subject: Subject) -> Iterator[FindingCandidate]:
    """Dots in a loop's body of a row of an array with something that stays the same: one product before it."""
    for loop in _loops(subject.module):
        if counted_iterations(loop).count < _FEW:
            continue
        for dot in loop.body:
            found = _sliced(dot, loop)
            if found is None:
                continue
            rows, matrix = found
            yield FindingCandidate(
                (loop,),
                f"%{dot.name} multiplies one row of {_element(loop, rows)} by {_element(loop, matrix)} in each "
                f"iteration. Neither depends on what the loop carries, so one product of all rows before the "
                "loop does the same with a full matrix unit and one launch.",
                (
                    FindingRemedy(
                        "model",
                        "compute xs @ w for all steps before lax.scan, and scan over the products",
                    ),
                ),
                _Hoisted(dot.name),
                (dot,),
            )


def _element(loop: Instruction, index: int) -> str:
    state = loop.operands[0]
    if state.opcode == "tuple":
        return f"%{state.operands[index].name}"
    return f"element {index} of %{state.name}"


def _sliced(dot: Instruction, loop: Instruction) -> tuple[int, int] | None:
    """Elements of the loop's state: the array of which a dot reads one row, and the matrix, if both stay.

    The row is the first operand: a dynamic-slice of one index along dimension 0, its dimension taken off.
    """
    if dot.opcode != "dot" or not is_replaceable(dot):
        return None
    dims, (lhs, rhs) = DotDims.of(dot.attributes), dot.operands
    if dims.lhs_batch or lhs.opcode != "reshape" or lhs.operands[0].opcode != "dynamic-slice":
        return None
    cut = lhs.operands[0]
    rows = cut.operands[0]
    sizes = cut.attributes["dynamic_slice_sizes"]
    whole = rows.array.dims
    if sizes[0] != 1 or tuple(sizes[1:]) != whole[1:] or lhs.array.dims != whole[1:]:
        return None
    found = []
    for source in (rows, rhs):
        if source.opcode != "get-tuple-element" or not _stays(source, loop):
            return None
        found.append(source.tuple_index)
    return found[0], found[1]


def _stays(source: Instruction, loop: Instruction) -> bool:
    root = loop.body.root
    return (
        source.operands[0] is loop.body.parameters[0]
        and root.opcode == "tuple"
        and root.operands[source.tuple_index].opcode == "get-tuple-element"
        and root.operands[source.tuple_index].tuple_index == source.tuple_index
        and root.operands[source.tuple_index].operands[0] is loop.body.parameters[0]
    )


class _Hoisted:
    """The change: the product of all rows before the loop, of which each iteration reads its row."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: Module, places: Sequence[Instruction]) -> bool:
        """Whether it was made in the first loop."""
        loop = places[0]
        body, state = loop.body, loop.operands[0]
        dot = body.by_name.get(self.name)
        found = None if dot is None else _sliced(dot, loop)
        if (
            dot is None
            or found is None
            or len(body.callers) != 1
            or len(loop.condition.callers) != 1
        ):
            return False
        rows, matrix = (build.element(loop, state, index, dot.metadata) for index in found)
        dims = DotDims.of(dot.attributes)
        shape = ArrayShape(dot.array.dtype, (rows.array.dims[0], *dot.array.dims))
        attributes = {
            **dot.attributes,
            "lhs_contracting_dims": tuple(dim + 1 for dim in dims.lhs_contracting),
        }
        product = build.make(
            loop, "dot", (rows, matrix), attributes, shape=shape, metadata=dot.metadata
        )
        parameter = _carry(loop, product)
        cut = dot.operands[0].operands[0]
        row = build.element(dot, parameter, len(parameter.elements) - 1)
        zero = next(one for one in cut.operands[2:]) if len(cut.operands) > 2 else cut.operands[1]
        starts = (cut.operands[1], *(zero for _ in dot.array.dims))
        sizes = (1, *dot.array.dims)
        part = build.make(
            dot,
            "dynamic-slice",
            (row, *starts),
            {"dynamic_slice_sizes": sizes},
            shape=ArrayShape(dot.array.dtype, sizes),
            metadata=dot.metadata,
        )
        value = build.make(dot, "reshape", (part,), {}, shape=dot.shape, metadata=dot.metadata)
        edit.replace_instruction(dot, value)
        return True


def _carry(loop: Instruction, value: Instruction) -> Instruction:
    """Let a loop carry one more array, which stays as it is; the parameter of its body."""
    state = loop.operands[0]
    shape = TupleShape((*loop.elements, value.shape))
    given = (*build.elements(loop, state), value)
    edit.set_operand(loop, 0, build.make(loop, "tuple", given, {}, shape=shape))
    for computation in (loop.body, loop.condition):
        edit.set_shape(computation.parameters[0], shape)
    body, number = loop.body, len(shape.elements) - 1
    parameter, root = body.parameters[0], body.root
    results = build.elements(root, root) if root.opcode == "tuple" else ()
    kept = build.element(root, parameter, number)
    edit.set_root(body, build.make(body, "tuple", (*results, kept), {}, shape=shape))
    edit.remove(root)
    edit.set_shape(loop, shape)
    return parameter
