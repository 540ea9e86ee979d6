"""The pass ``linear-systems``: systems are solved for the columns that are asked for, not for inverses.

``chains.py`` reads a value as the solution of systems, step by step (``steps.py``); ``writing.py`` puts a
product of that value before the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Final

from ml_dtypes import finfo

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import open_computations
from hloopt.linear_algebra.prices import AlgebraPrices, gained_time
from hloopt.linear_algebra.systems.cancelling import cancelled
from hloopt.linear_algebra.systems.chains import SolveChain, read_chain
from hloopt.linear_algebra.systems.diagonals import diagonal_systems
from hloopt.linear_algebra.systems.factors import equal_factors, take_transposed
from hloopt.linear_algebra.systems.known_factors import known_factors
from hloopt.linear_algebra.systems.solved_factors import solved_factors
from hloopt.linear_algebra.systems.steps import Triangle
from hloopt.linear_algebra.systems.sums import summed_solutions
from hloopt.linear_algebra.systems.transposed_factors import transposed_factors
from hloopt.linear_algebra.systems.writing import ProductOfSolution, product_of_solution
from hloopt.rewrite import Pass, PassLog
from hloopt.rewrite.site import is_replaceable
from hloopt.targets import Target, find_target

__all__ = ["LinearSystems", "SolvedProducts", "solved_products"]

_ROUNDS: Final = 4
_LEAST: Final = 0.95
"""Of the time that is there, what a change may take at most."""
_FACTOR: Final = "cholesky(transpose(A), lower=false) => transpose(cholesky(A, lower=true))"
_INVERSE: Final = "dot(inverse(A), B) => solve(A, B)"
_FACTORED: Final = "solve(A, dot(U, W)) => dot(solve(A, U), W)"
_DIAGONAL: Final = "solve(diagonal, B) => divide(B, diagonal)"
_SUMMED: Final = "solve(A, B) + solve(A, C) => solve(A, B + C)"
_TRANSPOSED: Final = "getrf(transpose(A)) => getrf(A)"
_SOLUTION: Final = "dot(solve(A, R), B) => solve(A, dot(R, B))"


@dataclass(frozen=True)
class LinearSystems(Pass):
    """Multiply before solving: systems are solved for as few right sides as the results need.

        dot(solve(A, I), B)    =>  solve(A, B)
        dot(solve(A, R), B)    =>  solve(A, dot(R, B))
        solve(A, dot(U, W))    =>  dot(solve(A, U), W)
        solve(A, B) + solve(A, C)  =>  solve(A, B + C)
        dot(B, solve(A, R))    =>  dot(solve(transpose(A), transpose(B)), R), the other way round
        dot(A, solve(A, B))    =>  B, and solve(A, dot(A, B)), too
        solve(inverse(A), B)   =>  dot(A, B), and the inverse of an inverse is the matrix
        solve(diagonal, B)     =>  divide(B, diagonal)
        getrf(transpose(A))    =>  getrf(A), where only solutions and determinants read them
        getrf(A)               =>  potrf(A), or A itself, where A is positive definite or a triangle

    A solution is read through triangular systems (``triangular-solve``, LAPACK's ``trsm``), exchanged rows and
    signs, so that an inverse, which is solved for an identity, is one, whatever factors it comes from.  All
    products of a solution are changed together, where that takes less on the target: then nothing reads the
    inverse any more.  LU factors that solve systems or give a determinant, and are shown by nothing else, are
    made of the Cholesky factor where a matrix is positive definite by construction, which ``hloopt explain``
    says, and by ``getrf`` as before where it has none after all; those of triangles take no factorisation.

    Results round otherwise, mostly less; of a singular matrix, or where elements are not finite, infinities and
    NaN may stand elsewhere.  Both need ``fast_math`` or ``reassociate``.  Without either Cholesky factors of
    one matrix are shared, whose bits are the same:

        cholesky(transpose(A), lower=false)    =>  transpose(cholesky(A, lower=true))

    fast_math    whether to take floats, whose sums round otherwise then
    reassociate  the same, for this pass alone
    target       the device whose rates decide (``hloopt targets``)
    """

    name: ClassVar[str] = "linear-systems"
    example: ClassVar[str] = """HloModule two_factors

ENTRY main {
  a = f32[8,8] parameter(0)
  lower = f32[8,8] cholesky(a), lower=true
  turned = f32[8,8] transpose(a), dimensions={1,0}
  upper = f32[8,8] cholesky(turned), lower=false
  ROOT r = (f32[8,8], f32[8,8]) tuple(lower, upper)
}
"""

    fast_math: bool = False
    reassociate: bool = False
    target: str = "h200"

    def __post_init__(self) -> None:
        find_target(self.target)

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at the products of each computation, again where one became a solution itself."""
        changed = False
        for computation in open_computations(module):
            changed |= self.run_on(computation, log)
        return changed

    def run_on(self, computation: Computation, log: PassLog) -> bool:
        """Share the factors of one computation and change its products; whether any was."""
        shared = self._share(computation, log)
        shared |= self._cancel(computation, log)
        shared |= self._share_transposed(computation, log)
        shared |= self._take_known(computation, log)
        shared |= self._divide(computation, log)
        rounds = 0
        while rounds < _ROUNDS and self._all(computation, log):
            rounds += 1
        return shared or rounds > 0

    def _share(self, computation: Computation, log: PassLog) -> bool:
        changed = False
        for factor, first in equal_factors(computation):
            if not log.allows():
                break
            log.hit(_FACTOR, factor, f"{first.name} has the same elements")
            take_transposed(factor, first)
            changed = True
        return changed

    def _share_transposed(self, computation: Computation, log: PassLog) -> bool:
        """Take the LU factors of a matrix for its transpose."""
        changed = False
        for found in transposed_factors(computation):
            if not log.allows():
                break
            gain = f"{found.first.name} has the factors of the matrix itself"
            if not (self.fast_math or self.reassociate):
                kind = found.call.operands[0].array.dtype.name
                log.miss(_TRANSPOSED, found.call, f"{gain}: {kind} would round otherwise")
                continue
            log.hit(_TRANSPOSED, found.call, gain)
            found.write()
            changed = True
        return changed

    def _take_known(self, computation: Computation, log: PassLog) -> bool:
        """Factor what is known to be definite or a triangle in less time."""
        changed = False
        for found in known_factors(computation, find_target(self.target)):
            if not log.allows():
                break
            (before, after), matrix = found.seconds, found.call.operands[0].array
            gain = f"{gained_time(before, after)} predicted on {self.target}"
            if not (self.fast_math or self.reassociate):
                log.miss(
                    found.rule, found.call, f"{gain}: {matrix.dtype.name} would round otherwise"
                )
                continue
            step = float(finfo(matrix.dtype.numpy).eps) / 2  # type: ignore[no-untyped-call]
            error = (matrix.dims[-1] + 1) * step
            if error < 1 and found.kind == "definite":
                gain += f", off by at most {error / (1 - error):.2g} of |L| |L'|"
            log.hit(found.rule, found.call, gain)
            found.write()
            changed = True
        return changed

    def _divide(self, computation: Computation, log: PassLog) -> bool:
        """Divide where a triangle has nothing beside its diagonal."""
        changed = False
        for found in diagonal_systems(computation, find_target(self.target)):
            if not log.allows():
                break
            (before, after), solve = found.seconds, found.solve
            gain = f"{gained_time(before, after)} predicted on {self.target}"
            if not (self.fast_math or self.reassociate):
                kind = solve.array.dtype.name
                log.miss(_DIAGONAL, solve, f"{gain}: zeros of {kind} may meet what is not finite")
                continue
            log.hit(_DIAGONAL, solve, gain)
            found.write()
            changed = True
        return changed

    def _cancel(self, computation: Computation, log: PassLog) -> bool:
        """Leave out a matrix beside its own inverse."""
        changed = False
        for found in cancelled(computation):
            if not log.allows():
                break
            value = found.value
            gain = "neither the product nor the solution is computed for it"
            if not (self.fast_math or self.reassociate):
                kind = value.array.dtype.name
                log.miss(found.rule, value, f"{gain}: {kind} would round otherwise")
                continue
            log.hit(found.rule, value, f"{gain}, and neither error is made")
            found.write()
            changed = True
        return changed

    def _all(self, computation: Computation, log: PassLog) -> bool:
        changed = self._take_factors(computation, log)
        changed |= self._cancel(computation, log)
        changed |= self._sum(computation, log)
        for found in solved_products(computation, find_target(self.target)):
            if not log.allows():
                break
            # What was written before it may have taken one of the products.
            if any(one.dot.computation is None for one in found.products):
                continue
            first = found.products[0].dot
            if not (self.fast_math or self.reassociate):
                kind = first.array.dtype.name
                log.miss(found.rule, first, f"{found.gain}: {kind} would round otherwise")
                continue
            log.hit(found.rule, first, found.gain)
            for one in found.products[1:]:
                log.hit(found.rule, one.dot, found.gain, 0)
            for one in found.products:
                one.write()
            changed = True
        return changed

    def _sum(self, computation: Computation, log: PassLog) -> bool:
        """Add right sides up before their systems are solved."""
        changed = False
        for found in summed_solutions(computation):
            if not log.allows():
                break
            value, columns = found.value, found.columns
            gain = f"solved for {columns:,} right sides instead of {2 * columns:,}"
            if not (self.fast_math or self.reassociate):
                log.miss(_SUMMED, value, f"{gain}: {value.array.dtype.name} would round otherwise")
                continue
            log.hit(_SUMMED, value, gain)
            found.write()
            changed = True
        return changed

    def _take_factors(self, computation: Computation, log: PassLog) -> bool:
        target, changed = find_target(self.target), False
        for found, (before, after) in solved_factors(computation, target, _LEAST):
            if not log.allows():
                break
            gain = (
                f"{gained_time(before, after)} predicted on {self.target}, solved for "
                f"{found.columns[1]:,} right sides instead of {found.columns[0]:,}"
            )
            if not (self.fast_math or self.reassociate):
                kind = found.value.array.dtype.name
                log.miss(_FACTORED, found.value, f"{gain}: {kind} would round otherwise")
                continue
            log.hit(_FACTORED, found.value, gain)
            found.write()
            changed = True
        return changed


@dataclass(frozen=True)
class SolvedProducts:
    """Products of one solution, which take less where the product comes first.

    products  one for each dot
    seconds   before and after, on ``target``
    """

    products: tuple[ProductOfSolution, ...]
    seconds: tuple[float, float]
    target: Target

    @property
    def is_inverse(self) -> bool:
        """Whether all of them multiply by an inverse."""
        return all(one.chain.identity is not None for one in self.products)

    @property
    def rule(self) -> str:
        """The equation, for remarks."""
        return _INVERSE if self.is_inverse else _SOLUTION

    @property
    def columns(self) -> tuple[int, int]:
        """Right sides of the systems before and after."""
        return self.products[0].columns_before, sum(one.columns for one in self.products)

    @property
    def gain(self) -> str:
        """For remarks; the bound of the error is Higham's (Accuracy and Stability, 8.5)."""
        before, after = self.seconds
        first = self.products[0]
        rows = first.sizes[first.chain.acted]
        columns = self.columns
        step = float(finfo(first.dot.array.dtype.numpy).eps) / 2  # type: ignore[no-untyped-call]
        error = rows * step
        bound = "no bound of the error is known"
        if error < 1:
            bound = f"each solve off by at most {error / (1 - error):.2g} of |inverse(T)| |T| |x|"
        return (
            f"{gained_time(before, after)} predicted on {self.target.name}, systems of "
            f"{rows:,} rows solved for {columns[1]:,} right sides instead of {columns[0]:,}, {bound}"
        )


def solved_products(computation: Computation, target: Target) -> Iterator[SolvedProducts]:
    """The products of solutions in a computation that take less with the product first.

    Those of one system are together where that gains; one by one where only that does.
    """
    for group in _groups(computation):
        dot = group[0].dot
        prices = AlgebraPrices(target, dot.array.dtype, dot.attributes.get("algorithm", ""))
        seen: set[Instruction] = set()
        parts = [group] if len(group) == 1 else [group, *([one] for one in group)]
        for part in parts:
            if any(one.dot in seen for one in part):
                continue
            before, after = _seconds(part, prices)
            if after < before * _LEAST:
                seen |= {one.dot for one in part}
                yield SolvedProducts(tuple(part), (before, after), target)


def _groups(computation: Computation) -> list[list[ProductOfSolution]]:
    """Products by the system that is solved first; a dot comes once."""
    chains: dict[Instruction, SolveChain | None] = {}
    found: dict[Instruction, list[ProductOfSolution]] = {}
    for dot in computation:
        if dot.opcode != "dot" or not is_replaceable(dot) or not (dot.users or dot.is_root):
            continue
        for side in (0, 1):
            value = dot.operands[side]
            if value not in chains:
                chains[value] = read_chain(value)
            chain = chains[value]
            product = chain and product_of_solution(dot, side, chain)
            if chain and product:
                innermost = [at for step, at in chain.steps if isinstance(step, Triangle)][-1]
                found.setdefault(innermost, []).append(product)
                break
    return list(found.values())


def _seconds(products: Sequence[ProductOfSolution], prices: AlgebraPrices) -> tuple[float, float]:
    """Of the products and of what nothing else reads, and of what takes their place."""
    gone: set[Instruction] = {one.dot for one in products}
    before = 0.0
    for dot in gone:
        elements = sum(operand.array.elements for operand in dot.operands) + dot.array.elements
        before += prices.product(_multiply_adds(dot), elements)
    # Twice: another product may read what one is made of by a view of its own.
    for product in (*products, *products):
        for value in product.chain.path:
            if value in gone or not _is_read_by(value, gone):
                continue
            gone.add(value)
            if any(at is value and isinstance(step, Triangle) for step, at in product.chain.steps):
                *_, rows, columns = value.array.dims
                side = value.operands[0].array.dims[-1]
                batch = value.array.elements // (rows * columns)
                before += prices.solve(batch, side, rows * columns // side)
            else:
                before += prices.elementwise(value.array.elements)
    return before, sum(one.seconds(prices) for one in products)


def _is_read_by(value: Instruction, readers: Iterable[Instruction]) -> bool:
    return not value.is_root and set(value.users) <= set(readers)


def _multiply_adds(dot: Instruction) -> int:
    lhs = dot.operands[0].array
    summed = 1
    for dim in dot.attributes.get("lhs_contracting_dims", ()):
        summed *= lhs.dims[dim]
    return dot.array.elements * summed
