"""Control flow: call, fusion, while, conditional, and the ops that only order others."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.ops.attributes import OUTPUT_ALIASING, TO_APPLY
from hloopt.ops.opdef import MANY, InferArgs, Kind, Signature, family
from hloopt.ops.shapes import PRED, TOKEN, array_operand, error, like, scalar_of, signature
from hloopt.types import ArrayShape, Shape, TupleShape, compatible

__all__ = ["ROWS"]


def _check_call(args: InferArgs, name: str, called: Signature, operands: Sequence[Shape]) -> None:
    """The computation takes exactly these operands."""
    if len(called.parameters) != len(operands):
        raise error(
            args,
            f"{name}= takes {len(called.parameters)} parameters, {len(operands)} are passed",
        )
    for index, (wanted, given) in enumerate(zip(called.parameters, operands, strict=True)):
        if not compatible(wanted, given):
            raise error(args, f"{name}=: parameter {index} has shape {wanted}, {given} is passed")


def _calling(name: str, args: InferArgs) -> Shape:
    called = signature(args, name)
    _check_call(args, name, called, args.operands)
    return like(args, called.result)


def _call(args: InferArgs) -> Shape:
    """The computation's result shape."""
    return _calling("to_apply", args)


def _fusion(args: InferArgs) -> Shape:
    """The computation's result shape."""
    return _calling("calls", args)


def _while(args: InferArgs) -> Shape:
    """The state's shape: what condition and body take and the body returns."""
    state = args.operands[0]
    condition, body = signature(args, "condition"), signature(args, "body")
    _check_call(args, "condition", condition, args.operands)
    _check_call(args, "body", body, args.operands)
    if not compatible(condition.result, scalar_of(PRED)):
        raise error(args, f"condition= returns {condition.result}, not pred[]")
    if not compatible(body.result, state):
        raise error(args, f"body= returns {body.result}, the state is {state}")
    return like(args, state)


def _branches(args: InferArgs) -> tuple[Signature, ...]:
    selector = array_operand(args, 0)
    if selector.rank or selector.dtype.name not in ("pred", "s32"):
        raise error(args, f"operand 0 has shape {selector}, not pred[] or s32[]")
    branches = args.calls.get("branch_computations", ())
    if selector.dtype.is_pred:
        if branches:
            raise error(args, "a pred operand takes true_computation= and false_computation=")
        return signature(args, "true_computation"), signature(args, "false_computation")
    if not branches or "true_computation" in args.calls or "false_computation" in args.calls:
        raise error(args, "an s32 operand takes branch_computations=")
    return branches


def _conditional(args: InferArgs) -> Shape:
    """The branches' common result shape; branch ``i`` takes operand ``i + 1``."""
    branches = _branches(args)
    if len(args.operands) != len(branches) + 1:
        raise error(
            args, f"{len(branches)} branches need as many operands, not {len(args.operands) - 1}"
        )
    for index, branch in enumerate(branches):
        _check_call(args, f"branch {index}", branch, (args.operands[index + 1],))
        if not compatible(branch.result, branches[0].result):
            raise error(
                args,
                f"branch {index} returns {branch.result}, branch 0 returns {branches[0].result}",
            )
    return like(args, _dynamic_in_any([branch.result for branch in branches]))


def _dynamic_in_any(shapes: Sequence[Shape]) -> Shape:
    """The common shape; a dimension is dynamic where any of the shapes has it so."""
    first = shapes[0]
    if isinstance(first, TupleShape):
        parts = zip(*(one.elements for one in shapes if isinstance(one, TupleShape)), strict=True)
        return TupleShape(tuple(_dynamic_in_any(part) for part in parts))
    marked = [one.dynamic for one in shapes if isinstance(one, ArrayShape) and one.dynamic]
    if not isinstance(first, ArrayShape) or not marked:
        return first
    marks = tuple(map(any, zip(*marked, strict=True)))
    return ArrayShape(first.dtype, first.dims, first.layout, marks)


def _first_operand(args: InferArgs) -> Shape:
    """The shape of operand 0."""
    return like(args, args.operands[0])


def _is_token(shape: Shape) -> bool:
    return compatible(shape, TOKEN)


def _add_dependency(args: InferArgs) -> Shape:
    """The shape of operand 0; operand 1 is a token."""
    if not _is_token(args.operands[1]):
        raise error(args, f"operand 1 has shape {args.operands[1]}, not token[]")
    return like(args, args.operands[0])


def _after_all(args: InferArgs) -> Shape:
    """A token after the operands, whatever they are."""
    return like(args, TOKEN)


_row = family("control")

ROWS = (
    _row(
        "add-dependency",
        2,
        _add_dependency,
        aliases=True,
        constrains=True,
        elemental=True,
        doc="operand 0, after the token of operand 1",
    ),
    _row("after-all", (0, MANY), _after_all, constrains=True, doc="a token after all given tokens"),
    _row(
        "call",
        (0, MANY),
        _call,
        TO_APPLY,
        Kind.BOOL("is_composite"),
        OUTPUT_ALIASING,
        calls="sequence",
        elemental=True,
        doc="run a computation",
    ),
    _row(
        "conditional",
        (2, MANY),
        _conditional,
        Kind.COMPUTATION("true_computation"),
        Kind.COMPUTATION("false_computation"),
        Kind.COMPUTATIONS("branch_computations"),
        calls="sequence",
        elemental=True,
        doc="run one of several computations; an index out of range takes the last",
    ),
    _row(
        "domain",
        1,
        _first_operand,
        Kind.VERBATIM("domain", required=True),
        aliases=True,
        constrains=True,
        doc="a border between shardings; the value is the operand's",
    ),
    _row(
        "fusion",
        (0, MANY),
        _fusion,
        Kind.WORD("kind", required=True, words=("kLoop", "kInput", "kOutput", "kCustom")),
        OUTPUT_ALIASING,
        Kind.COMPUTATION("calls", required=True),
        inferable=False,
        calls="fused",
        elemental=True,
        doc="a computation that becomes one kernel",
    ),
    _row(
        "opt-barrier",
        1,
        _first_operand,
        aliases=True,
        constrains=True,
        cheap="always",
        elemental=True,
        doc="the operand; nothing is moved or merged across",
    ),
    _row(
        "while",
        1,
        _while,
        Kind.COMPUTATION("condition", required=True),
        Kind.COMPUTATION("body", required=True),
        calls="sequence",
        doc="run the body on the state while the condition holds",
    ),
)
