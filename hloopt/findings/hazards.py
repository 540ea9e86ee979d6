"""Expressions that are right for real numbers, and give NaN, infinity or few digits in floats.

Each form has its stable one, which gives the same on usual inputs: that is compared.  What it gains is counted
on inputs on which the form goes wrong: elements that are not finite, or off from those of the stable form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from hloopt.analysis.cost import module_cost
from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError
from hloopt.findings import stable
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.ir.build import clone_module
from hloopt.ir.walk import open_computations
from hloopt.prover.executor import Executor
from hloopt.prover.trials import Trial, TrialInputs, made
from hloopt.rewrite.site import is_replaceable
from hloopt.types import Array
from hloopt.types.dtype import of_numpy

__all__ = ["few_digits", "not_finite"]

_FLOPS: Final = 5e8
"""The most that a module may compute for its results to be counted."""
_OFF: Final = 0.01
"""By what part an element is to be off to be counted."""

_Inputs: TypeAlias = Callable[[Array], Array]


def _zeros(array: Array) -> Array:
    return np.zeros_like(array)


def _half_zeros(array: Array) -> Array:
    found = array.copy()
    found.reshape(-1)[::2] = 0
    return found


def _large(array: Array) -> Array:
    return np.multiply(array, 100, dtype=array.dtype)


def _tiny(array: Array) -> Array:
    return np.multiply(array, 1e-6, dtype=array.dtype)


def _far(array: Array) -> Array:
    return np.add(array, 1000, dtype=array.dtype)


_NAMES: Final[dict[_Inputs, str]] = {
    _zeros: "inputs of zeros",
    _half_zeros: "inputs of which every second element is 0",
    _large: "inputs 100 times as large as usual",
    _tiny: "inputs a million times as small as usual",
    _far: "inputs with 1,000 added",
}


@dataclass(frozen=True)
class _Form:
    """A form, its stable one, and inputs on which they differ.

    parts   the instructions of the form, given its last; None for anything else
    change  puts the stable form there
    why     of the last one, ``{name}``, and its ``{first}`` operand
    """

    parts: Callable[[Instruction], tuple[Instruction, ...] | None]
    change: Callable[[Instruction], None]
    why: str
    remedy: str
    inputs: tuple[_Inputs, ...]


_NOT_FINITE: Final = (
    _Form(
        stable.self_quotient,
        stable.one_where_zero,
        "%{name} divides %{first} by itself{merged}: 1, and NaN where that is 0.",
        "jnp.where(d == 0, 1.0, n / d), or add an epsilon to the divisor",
        (_zeros, _half_zeros),
    ),
    _Form(
        stable.masked_product,
        stable.masked_after,
        "%{name} has a factor that is 0 under a mask, where another may be infinite: 0 times infinity, and 0 "
        "by 0, are NaN.",
        "jnp.where(mask, f(x), 0) for mask * f(x); a gradient of jnp.where(ok, f(x), 0) differentiates f "
        "everywhere: write jnp.where(ok, f(jnp.where(ok, x, 1)), 0)",
        (_half_zeros, _zeros),
    ),
    _Form(
        stable.plain_softmax,
        stable.shifted_softmax,
        "%{name} divides exponentials by their sum, both infinite where an element is above 88 (f32): NaN.",
        "jax.nn.softmax, which takes the maximum off first",
        (_large,),
    ),
    _Form(
        stable.log_of_one_more,
        stable.softplus,
        "%{name} is the logarithm of 1 + exp(x), which is infinite from x = 89 on (f32); the result is near x.",
        "jax.nn.softplus(x), or jnp.logaddexp(x, 0)",
        (_large,),
    ),
    _Form(
        stable.log_of_sigmoid,
        stable.log_sigmoid,
        "%{name} is the logarithm of a sigmoid, or of 1 less a sigmoid. In f32 a sigmoid is 1 from x = 17 on "
        "and 0 below x = -89, and the logarithm of 0 is minus infinity; the result is near x or -x there.",
        "jax.nn.log_sigmoid(x) for log(sigmoid(x)), jax.nn.log_sigmoid(-x) for log(1 - sigmoid(x))",
        (_large,),
    ),
)
_FEW_DIGITS: Final = (
    _Form(
        stable.square_minus_square,
        stable.squared_distance,
        "%{name} is the mean of squares less the square of the mean. Where the mean is large beside the "
        "spread they are nearly equal: their difference has few digits, and may be negative.",
        "jnp.var(x), or ((x - x.mean()) ** 2).mean(): the mean is taken off before it is squared",
        (_far,),
    ),
    _Form(
        stable.log_near_one,
        stable.log_plus_one,
        "%{name} is the logarithm of 1 + x, whose sum drops the digits of a small x.",
        "jnp.log1p(x)",
        (_tiny,),
    ),
    _Form(
        stable.exponential_less_one,
        stable.exponential_minus_one,
        "%{name} is exp(x) - 1, whose difference drops the digits of a small x.",
        "jnp.expm1(x)",
        (_tiny,),
    ),
)


def not_finite(subject: Subject) -> Iterator[FindingCandidate]:
    """Forms that give NaN or infinity where their stable form gives a number."""
    yield from _candidates(subject, _NOT_FINITE, "not finite", _count_not_finite)


def few_digits(subject: Subject) -> Iterator[FindingCandidate]:
    """Forms that subtract what is nearly equal."""
    how = f"off by more than {_OFF:.0%} from those of the stable form"
    yield from _candidates(subject, _FEW_DIGITS, how, _count_off)


def _candidates(
    subject: Subject,
    forms: Sequence[_Form],
    how: str,
    count: Callable[..., float],
) -> Iterator[FindingCandidate]:
    if not subject.is_small or module_cost(subject.module).flops > _FLOPS:
        return
    for form in forms:
        for last in _found(subject.module, form):
            parts = form.parts(last)
            assert parts is not None, "it was found"
            first = last.operands[0]
            why = form.why.format(name=last.name, first=first.name, merged=_merged(subject, last))
            shown = " and ".join(_NAMES[one] for one in form.inputs)
            yield FindingCandidate(
                parts,
                f"{why} Counted are elements of the results that are {how}, on {shown}.",
                (FindingRemedy("model", form.remedy),),
                partial(_made_stable, form=form),
                (first,),
                counted=partial(count, form=form),
            )


def _found(module: Module, form: _Form) -> list[Instruction]:
    return [
        one
        for computation in open_computations(module)
        for one in computation
        if one.is_array and one.array.dtype.is_float and is_replaceable(one) and form.parts(one)
    ]


def _merged(subject: Subject, last: Instruction) -> str:
    """What was two instructions in the text as given, and is one since they compute the same."""
    given = subject.given
    home = None if given is None else given.computations.get(last.home.name)
    before = None if home is None else home.by_name.get(last.name)
    if before is None or len({*before.operands}) < 2:
        return ""
    names = " and ".join(f"%{one.name}" for one in before.operands)
    return (
        f" once {names}, which compute the same, are merged (by cse, as every compiler does under jit; run "
        "one by one, each is rounded on its own, and their quotient is some number instead of NaN)"
    )


def _made_stable(module: Module, places: Sequence[Instruction], form: _Form) -> bool:
    changed = False
    for place in places:
        if place.computation is not None and form.parts(place):
            form.change(place)
            changed = True
    return changed


def _runs(modules: Sequence[Module], change: _Inputs) -> list[list[Array]]:
    """The results of modules on random inputs whose floats are changed; empty where they cannot be run."""
    plain = made(modules[0], Trial(), 1, 1)
    arrays = [change(one) if of_numpy(one.dtype).is_float else one for one in plain.arrays[0]]
    with np.errstate(all="ignore"):
        try:
            return [Executor("cpu").run(one, TrialInputs([arrays])).results[0] for one in modules]
        except HlooptError:
            return []


def _count_not_finite(module: Module, form: _Form) -> float:
    """The most elements of results that are not finite, on one of the inputs."""
    counts = [0]
    for change in form.inputs:
        counts += [
            sum(int((~np.isfinite(one)).sum()) for one in results if of_numpy(one.dtype).is_float)
            for results in _runs([module], change)
        ]
    return float(max(counts))


def _count_off(module: Module, form: _Form) -> float:
    """Elements of results that the stable form gives otherwise."""
    stable_form = clone_module(module)
    if not _made_stable(stable_form, _found(stable_form, form), form):
        return 0.0
    count = 0
    for change in form.inputs:
        found = _runs([module, stable_form], change)
        for got, want in zip(*found, strict=True) if found else ():
            if of_numpy(want.dtype).is_float:
                count += int((~np.isclose(got, want, rtol=_OFF, atol=0, equal_nan=True)).sum())
    return float(count)
