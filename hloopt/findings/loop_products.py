"""Products in loops that could be one product of all iterations, before the loop or after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hloopt.analysis.trip_count import counted_iterations
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.linear_algebra.output_sinking import WhileOutputSinking
from hloopt.linear_algebra.product_hoisting import WhileProductHoisting
from hloopt.linear_algebra.product_sinking import WhileProductSinking
from hloopt.rewrite.pass_ import PassLog

__all__ = ["products"]

_FEW: Final = 3
"""Iterations from which on a loop is looked at."""


def products(subject: Subject) -> Iterator[FindingCandidate]:
    """Dots in a loop's body of which one for all iterations could stand outside."""
    target = subject.planner.predictor.target.name
    hoisting = WhileProductHoisting(target=target)
    outputs = WhileOutputSinking(target=target)
    sums = WhileProductSinking(reassociate=True, target=target)
    for loop in subject.module.instructions():
        if loop.opcode != "while" or not loop.is_tuple or counted_iterations(loop).count < _FEW:
            continue
        rows = [one.dot for one, _ in hoisting.found(loop, PassLog())]
        if rows:
            yield _candidate(
                loop,
                rows,
                "takes its factors from arrays that the loop only reads, another row in each iteration. "
                "One product of all rows before the loop does the same with a full matrix unit and one launch.",
                "compute xs @ w for all steps before lax.scan, and scan over the products",
                "while-product-hoisting, in O2 and O3",
                hoisting.hoist,
            )
        collected = [one.dot for one in outputs.found(loop, PassLog())]
        if collected:
            yield _candidate(
                loop,
                collected,
                "is only collected, a row in each iteration. One product of what it is made of, after the "
                "loop, does the same with a full matrix unit and one launch.",
                "return h from the step of lax.scan, and compute hs @ w for all steps after it",
                "while-output-sinking, in O2 and O3",
                outputs.sink,
            )
        added = [one.dot for one in sums.found(loop, PassLog())]
        if added:
            yield _candidate(
                loop,
                added,
                "is only added up. One product that sums over the iterations, too, after the loop, reads and "
                "writes the sum once; the order of the sum is another one.",
                "return both factors from the step of lax.scan, and contract steps and rows after it "
                "(einsum 'tbi,tbj->ij'); where it is a gradient, by jax.custom_vjp",
                "while-product-sinking{reassociate=true}, in O2 and O3 with fast_math",
                sums.sink,
            )


def _candidate(
    loop: Instruction,
    dots: Sequence[Instruction],
    why: str,
    model: str,
    name: str,
    move: Callable[[Instruction, PassLog], bool],
) -> FindingCandidate:
    first, *others = dots
    more = f" (and {len(others)} more)" if others else ""

    def change(_: Module, places: Sequence[Instruction]) -> bool:
        return move(places[0], PassLog())

    return FindingCandidate(
        (loop,),
        f"%{first.name}{more} {why}",
        (FindingRemedy("model", model), FindingRemedy("hloopt", name)),
        change,
        tuple(dots),
    )
