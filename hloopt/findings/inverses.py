"""Inverses that are made to be multiplied, and systems solved for more right sides than results need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from hloopt.findings.finding import FindingRemedy
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.ir.walk import open_computations
from hloopt.linear_algebra.systems import SolvedProducts, solved_products
from hloopt.targets import Target

__all__ = ["multiplied"]


def multiplied(subject: Subject) -> Iterator[FindingCandidate]:
    """Those that the pass ``linear-systems`` puts products before."""
    target = subject.planner.predictor.target
    for computation in open_computations(subject.module):
        for found in solved_products(computation, target):
            sites = tuple(one.dot for one in found.products)
            yield FindingCandidate(
                sites,
                _why(found),
                (
                    FindingRemedy("model", _advice(found)),
                    FindingRemedy(
                        "hloopt", "linear-systems{reassociate=true}, before other passes"
                    ),
                ),
                partial(_multiplied_first, target=target),
                (found.products[0].chain.value,),
            )


def _why(found: SolvedProducts) -> str:
    first = found.products[0]
    value, rows = first.chain.value.name, first.sizes[first.chain.acted]
    before, after = found.columns
    many = len(found.products)
    products, need = (
        (f"{many} products alone read", "need")
        if many > 1
        else ("one product alone reads", "needs")
    )
    if found.is_inverse:
        return (
            f"%{value} is the inverse of a matrix of {rows:,} rows, for which {before:,} right sides are "
            f"solved; {products} it, and {need} {after:,}."
        )
    return (
        f"%{value} are the solutions of systems of {rows:,} rows for {before:,} right sides; {products} "
        f"them, and {need} {after:,} if they are multiplied first."
    )


def _advice(found: SolvedProducts) -> str:
    turned = any(one.is_turned for one in found.products)
    if not found.is_inverse:
        if turned:
            return "multiply first: solve(A.T, b) @ C for b @ solve(A, C)"
        return "multiply first: solve(A, B @ x) for solve(A, B) @ x"
    text = "solve for the product: jnp.linalg.solve(A, b) for jnp.linalg.inv(A) @ b"
    if turned:
        text += ", jnp.linalg.solve(A.T, b) for b @ jnp.linalg.inv(A)"
    if len(found.products) > 1:
        text += (
            "; of several right sides lu = jax.scipy.linalg.lu_factor(A) once, and lu_solve(lu, b)"
        )
    return text


def _multiplied_first(module: Module, places: Sequence[Instruction], target: Target) -> bool:
    wanted = set(places)
    for found in solved_products(places[0].home, target):
        if {one.dot for one in found.products} == wanted:
            for one in found.products:
                one.write()
            return True
    return False
