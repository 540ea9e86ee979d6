"""Products as calls of cuBLASLt, with what follows them in the epilogue, as XLA's GemmRewriter makes them.

XLA makes these calls where no Triton kernel is made of a product: with ``--xla_gpu_enable_triton_gemm=false``.
Its patterns (xla/service/gpu/transforms/gemm_rewriter.cc): a matrix that is added, a vector that is added along
the last dimension, ``max(x, 0)``, and GELU by tanh, whose argument is a second result where others read it
(``AUX``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.interpret import evaluate_module
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.rewrite.site import is_replaceable, row_major
from hloopt.simplify.predicates import scalar_value
from hloopt.types import DotDims, Text, TupleShape, Verbatim, array

__all__ = ["CalledProduct", "as_calls", "library_product"]

_TYPES: Final = frozenset({"f16", "bf16", "f32", "f64"})
_TINY: Final = 100
"""Rows and columns times depth below which XLA calls no library."""
_WORKSPACE: Final = 32 << 20
_SAMPLES: Final = (-4.0, -2.0, -1.0, -0.5, -0.1, 0.1, 0.5, 1.0, 2.0, 4.0)
_MOST: Final = 48
"""Ops that are looked through for an activation."""


@dataclass(frozen=True)
class CalledProduct:
    """A dot, and the ops after it that its call computes.

    vector, matrix  what is added
    argument        of the activation: the product with what is added
    activation      ``RELU``, ``GELU`` or none
    last            the op whose value the call gives
    keeps           whether ``argument`` is a result, too
    """

    dot: Instruction
    vector: Instruction | None
    matrix: Instruction | None
    argument: Instruction
    activation: str
    last: Instruction
    keeps: bool

    @property
    def epilogue(self) -> str:
        """As the call's configuration names it."""
        words = [
            *(["BIAS"] if self.vector is not None else []),
            *([self.activation] if self.activation else []),
            *(["AUX"] if self.keeps else []),
        ]
        return "_".join(words) or "DEFAULT"


def library_product(dot: Instruction) -> CalledProduct | None:
    """None for a dot that cuBLASLt does not take."""
    if not _is_taken(dot):
        return None
    found = CalledProduct(dot, None, None, dot, "", dot, keeps=False)
    while (user := _only_user(found.last)) is not None:
        larger = _with(found, user)
        if larger is None:
            break
        found = larger
    return found if found.activation else _with_gelu(found)


def as_calls(computation: Computation) -> bool:
    """Make calls of all dots of a computation that cuBLASLt takes; whether there is one."""
    made = False
    for dot in [one for one in computation if one.opcode == "dot"]:
        # Not before: what is added to one product may be the end of another.
        product = library_product(dot)
        if product is not None:
            _call(product)
            made = True
    return made


def _is_taken(dot: Instruction) -> bool:
    shapes = (dot.array, *(one.array for one in dot.operands[:2]))
    if len(dot.operands) != 2 or dot.has_control_edges or not is_replaceable(dot):
        return False
    if len({shape.dtype.name for shape in shapes}) > 1 or dot.array.dtype.name not in _TYPES:
        return False
    dims = DotDims.of(dot.attributes)
    if len(dims.lhs_contracting) != 1 or not all(
        shape.rank > len(dims.lhs_batch) + 1 for shape in shapes
    ):
        return False
    depth = shapes[1].dims[dims.lhs_contracting[0]]
    rows, columns = (prod(shape.dims) // depth for shape in shapes[1:])
    return (rows + columns) * depth >= _TINY


def _only_user(one: Instruction) -> Instruction | None:
    return next(iter(one.users)) if len(one.users) == 1 and not one.is_root else None


def _with(found: CalledProduct, user: Instruction) -> CalledProduct | None:
    """With the op that reads what was found so far; None where the call does not compute it."""
    last = found.last
    others = [one for one in user.operands if one is not last]
    if found.activation or len(others) != 1 or user.shape != last.shape:
        return None
    (other,) = others
    if user.opcode == "maximum":
        value = scalar_value(other)
        is_zero = value is not None and value == 0
        return replace(found, activation="RELU", last=user) if is_zero else None
    if user.opcode != "add":
        return None
    vector = _vector(other)
    if vector is not None:
        if found.vector is not None:
            return None
        return replace(found, vector=vector, argument=user, last=user)
    if found.matrix is not None or scalar_value(other) is not None:
        return None
    return replace(found, matrix=other, argument=user, last=user)


def _vector(other: Instruction) -> Instruction | None:
    """What is broadcast along the last dimension."""
    if other.opcode != "broadcast" or other.dimensions != (other.array.rank - 1,):
        return None
    return other.operands[0]


def _with_gelu(found: CalledProduct) -> CalledProduct:
    """With GELU by tanh, where that is what follows."""
    last = found.last
    for end, members in _regions(last):
        if _is_halved_by_tanh(last, end) and _is_gelu(last, end, members):
            keeps = last.is_root or any(user not in members for user in last.users)
            return replace(found, activation="GELU", last=end, keeps=keeps)
    return found


def _regions(start: Instruction) -> Iterator[tuple[Instruction, list[Instruction]]]:
    """Elementwise ops of ``start`` and constants alone, each with all on the way to it.

    Nothing else reads what is on the way.
    """
    made: dict[Instruction, None] = {}
    pending = list(start.users)
    while pending and len(made) < _MOST:
        one = pending.pop(0)
        if one in made or not _is_of(one, start, made):
            continue
        made[one] = None
        pending.extend(one.users)
    for end in made:
        if end.opcode != "multiply" or end.shape != start.shape:
            continue
        members, inner = {end}, [end]
        while inner:
            new = [one for one in inner.pop().operands if one in made and one not in members]
            members.update(new)
            inner += new
        if all(
            one is end or (not one.is_root and members.issuperset(one.users)) for one in members
        ):
            yield end, [one for one in start.home if one in members]


def _is_of(one: Instruction, start: Instruction, made: dict[Instruction, None]) -> bool:
    if not one.op.is_elementwise or not one.is_array or one.array.dims != start.array.dims:
        return False
    return all(
        other is start or other in made or scalar_value(other) is not None for other in one.operands
    )


def _is_halved_by_tanh(start: Instruction, end: Instruction) -> bool:
    """Whether a product is ``x * (0.5 * (1 + tanh(...)))``: XLA's pattern takes no other order."""
    halves = [one for one in end.operands if one is not start]
    if len(halves) != 1 or halves[0].opcode != "multiply":
        return False
    sums = [one for one in halves[0].operands if scalar_value(one) is None]
    if len(sums) != 1 or sums[0].opcode != "add":
        return False
    return any(one.opcode == "tanh" for one in sums[0].operands)


def _is_gelu(start: Instruction, end: Instruction, members: Sequence[Instruction]) -> bool:
    """Whether the ops give 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    sample = Module("sample")
    body = edit.add_computation(sample, Computation("sample"))
    sample.entry = body
    dims = (len(_SAMPLES),)
    made = {
        start: build.make(
            body, "parameter", (), {"parameter_number": 0}, shape=row_major(start.array, dims)
        )
    }
    for one in members:
        operands = []
        for operand in one.operands:
            if operand not in made:
                shape = row_major(operand.array, dims)
                made[operand] = build.splat(body, shape, scalar_value(operand))
            operands.append(made[operand])
        made[one] = build.make(
            body, one.opcode, tuple(operands), one.attributes, shape=row_major(one.array, dims)
        )
    edit.set_root(body, made[end])
    given = np.array(_SAMPLES).astype(start.array.dtype.numpy)
    (found,) = evaluate_module(sample, [given])
    x = given.astype(np.float64)
    wanted = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    coarse = 2e-2 if start.array.dtype.bits < 32 else 1e-4
    return bool(np.allclose(found.astype(np.float64), wanted, rtol=coarse, atol=coarse))


def _call(product: CalledProduct) -> None:
    dot, argument, last = product.dot, product.argument, product.last
    operands = (
        *dot.operands,
        *(one for one in (product.matrix, product.vector) if one is not None),
    )
    arrays = [row_major(last.array, last.array.dims)] * (1 + product.keeps)
    call = build.make(
        argument,
        "custom-call",
        operands,
        {
            "custom_call_target": Text("__cublas$lt$matmul"),
            "backend_config": Verbatim(json.dumps(_settings(product), separators=(",", ":"))),
        },
        shape=TupleShape((*arrays, array("s8", (_WORKSPACE,)))),
        name="cublas-lt-matmul",
        metadata=dot.metadata,
    )
    if product.keeps:
        edit.replace_uses(argument, build.element(argument, call, 1))
    edit.replace_instruction(last, build.element(last, call, 0))


def _settings(product: CalledProduct) -> dict[str, object]:
    dims = DotDims.of(product.dot.attributes)
    numbers = {
        "lhs_contracting_dimensions": dims.lhs_contracting,
        "rhs_contracting_dimensions": dims.rhs_contracting,
        "lhs_batch_dimensions": dims.lhs_batch,
        "rhs_batch_dimensions": dims.rhs_batch,
    }
    return {
        "gemm_backend_config": {
            "alpha_real": 1,
            "alpha_imag": 0,
            "beta": 1 if product.matrix is not None else 0,
            "dot_dimension_numbers": {
                name: [str(one) for one in found] for name, found in numbers.items()
            },
            "epilogue": product.epilogue,
        }
    }
