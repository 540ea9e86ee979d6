"""Sums whose running value is rounded to a narrow float at each step: from some size on they stop growing.

A bf16 has 8 bits: 512 + 1 is 512.  XLA sums in f32 where it reduces, and rounds once.  Two other sums are
rounded at each step, on GPUs and CPUs: a scatter that adds, as in ``jax.ops.segment_sum``, ``x.at[i].add(y)``
and gradients of lookups; and a value that a loop carries and adds to, as gradients over microbatches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import ml_dtypes
import numpy as np

from hloopt.analysis.cost import module_cost
from hloopt.analysis.trip_count import trip_count
from hloopt.errors import HlooptError
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module, edit
from hloopt.ir.build import clone_module
from hloopt.passes.loops.carried import CarriedState, is_read_by_element, obstacle, reads
from hloopt.prover.executor import Executor
from hloopt.prover.trials import Trial, made
from hloopt.rewrite.regions import combiner_computation, named_combiner
from hloopt.rewrite.site import Site, sites
from hloopt.types import DTYPES, ArrayShape, DType

__all__ = ["narrow"]

_FLOPS: Final = 2e8
_LAUNCHES: Final = 50_000
"""The most that a module may compute, and launch, for its results to be counted."""
_OFF: Final = 0.03
"""By what part an element is to be off to be counted; by a unit in the last place, where that is more."""
_STEPS: Final = 16
"""Updates of a sum that are too few to matter."""
_WIDE: Final = "f32"
_EXACT: Final = "f64"
_SCATTER: Final = FindingRemedy(
    "model",
    f"add in {_WIDE} and round once: x.astype(jnp.float32).at[i].add(y).astype(x.dtype); "
    "jax.ops.segment_sum(y.astype(jnp.float32), ...)",
)
_LOOP: Final = FindingRemedy(
    "model",
    f"carry the sum in {_WIDE}, from jnp.zeros(shape, jnp.float32), and round it behind the loop",
)


def narrow(subject: Subject) -> Iterator[FindingCandidate]:
    """Scatters that add narrow floats, and loops that carry such sums."""
    found = _narrow_sums(subject.module) if subject.is_small else []
    if not found or module_cost(subject.module).flops > _FLOPS:
        return
    if subject.plan.totals.launches > _LAUNCHES:
        return
    for site in found:
        if site.opcode == "scatter":
            dtype = site.array.dtype
            what = f"adds {site.operands[2].array.elements:,} elements in {site.array.elements:,} places"
        else:
            parts = [site.elements[index] for index in _totals(site)]
            dtype = next(one.dtype for one in parts if isinstance(one, ArrayShape))
            what = f"carries {', '.join(map(str, parts[:3]))} and adds to it in each iteration"
        yield FindingCandidate(
            (site,),
            f"%{site.name} {what}, and each sum is rounded to {dtype.name} every time: from about "
            f"{round(2 / _epsilon(dtype)):,} times an update on it no longer grows. Counted are elements of "
            f"the results that are off by more than {_OFF:.0%} from those of sums in {_WIDE}, on "
            "random inputs.",
            (_SCATTER if site.opcode == "scatter" else _LOOP,),
            partial(_widened, kind=_WIDE),
            counted=_off,
            exact=partial(_widened, kind=_EXACT),
            exactly=f"compared with sums in {_EXACT}",
        )


def _narrow_sums(module: Module) -> list[Instruction]:
    scatters = [one for one in sites(module, "scatter") if _is_narrow(one)]
    return [*scatters, *(one for one in sites(module, "while") if _totals(one))]


def _is_narrow(scatter: Instruction) -> bool:
    """Whether a scatter adds up one array of narrow floats."""
    if len(scatter.operands) != 3 or not scatter.array.dtype.is_narrow_float:
        return False
    updates = scatter.operands[2].array.elements
    return named_combiner(scatter.to_apply) == "add" and updates >= _STEPS


def _totals(loop: Instruction) -> list[int]:
    """The elements of a loop's state that are narrow floats to which each iteration does nothing but add."""
    if not is_read_by_element(loop) or obstacle(loop) or (trip_count(loop) or _STEPS) < _STEPS:
        return []
    inside, tested = reads(loop.body.parameters[0]), reads(loop.condition.parameters[0])
    found = []
    for index, shape in enumerate(loop.elements):
        total = loop.body.root.operands[index]
        if (
            isinstance(shape, ArrayShape)
            and shape.dtype.is_narrow_float
            and total.opcode == "add"
            and len(total.users) == 1
            and sum(one in inside[index] for one in total.operands) == 1
            and all([*one.users] == [total] for one in inside[index])
            and not any(one.users for one in tested[index])
        ):
            found.append(index)
    return found


def _epsilon(dtype: DType) -> float:
    return float(ml_dtypes.finfo(dtype.numpy).eps)  # type: ignore[no-untyped-call]


def _widened(module: Module, places: Sequence[Instruction], kind: str) -> bool:
    """Add in a wider type, and round the result."""
    for site in places:
        if site.opcode == "scatter":
            _widen_scatter(module, site, kind)
        else:
            _widen_loop(site, kind)
    return bool(places)


def _widen_scatter(module: Module, scatter: Instruction, kind: str) -> None:
    site, (operand, indices, updates) = Site(scatter), scatter.operands
    start, given = (_converted(one, kind, scatter) for one in (operand, updates))
    region = combiner_computation(module, "add", kind)
    attributes = {**scatter.attributes, "to_apply": region}
    added = site.make("scatter", start, indices, given, shape=start.shape, **attributes)
    site.replace(site.make("convert", added, shape=scatter.shape))


def _converted(value: Instruction, kind: str, before: Instruction) -> Instruction:
    """A value in another type, made right before an instruction."""
    return Site(before).make("convert", value, shape=value.array.with_dtype(DTYPES[kind]))


def _widen_loop(loop: Instruction, kind: str) -> None:
    totals = _totals(loop)
    carried = CarriedState(loop)
    narrow_shapes = carried.shapes
    for index in totals:
        start = _converted(carried.init.operands[index], kind, carried.init)
        edit.set_operand(carried.init, index, start)
        inside = reads(carried.states[1])[index]
        total = carried.root.operands[index]
        for number, operand in enumerate(total.operands):
            if operand not in inside:
                edit.set_operand(total, number, _converted(operand, kind, total))
        edit.set_shape(total, start.shape)
    wide = {index: carried.init.operands[index].shape for index in totals}
    carried.reshape(lambda shapes: [wide.get(at, shape) for at, shape in enumerate(shapes)])
    for index in totals:
        for state in carried.states:
            for read in reads(state)[index]:
                edit.set_shape(read, wide[index])
        for read in reads(loop)[index]:
            whole = Site(read).make("get-tuple-element", loop, shape=wide[index], index=index)
            edit.replace_instruction(
                read, Site(read).make("convert", whole, shape=narrow_shapes[index])
            )


def _off(module: Module) -> float:
    """Elements of floating-point results that sums in f32 give otherwise, on random inputs.

    None of a module that cannot be run here: there is nothing to be told of it then.
    """
    wide = clone_module(module)
    if not _widened(wide, _narrow_sums(wide), _WIDE):
        return 0.0
    try:
        inputs = made(module, Trial(), 1, 1)
        with np.errstate(all="ignore"):
            runs = [Executor("cpu").run(one, inputs).results[0] for one in (module, wide)]
    except HlooptError:
        return 0.0
    count = 0
    for got, want in zip(*runs, strict=True):
        if want.dtype.kind in "biuc":
            continue
        allowed = max(_OFF, float(ml_dtypes.finfo(want.dtype).eps))  # type: ignore[no-untyped-call]
        old, new = (one.astype(np.float64) for one in (got, want))
        count += int((np.abs(old - new) > allowed * np.abs(new)).sum())
    return float(count)
