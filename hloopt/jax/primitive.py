"""A call that hloopt lowers, as a primitive of JAX: what makes it one under ``jit``, ``grad`` and ``vmap``.

Its parameters are a closed jaxpr, the ``Backend`` that lowers it, and for each operand whether it is donated;
an empty tuple is none.  Derivatives are such calls, too: the linear part of a function becomes a jaxpr whose
inputs are residuals and tangents, and its transpose another.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
from jax._src.config import _check_vma
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from hloopt.errors import UnsupportedError
from hloopt.ir import Module

__all__ = ["Backend", "bind", "calls_in", "inner_calls_are_parts"]

# Elements from which on an array that a function refers to is an input of its module: what is known is folded,
# but the text of a module should not grow with weights.
_MOST_KNOWN = 1024

_is_part: ContextVar[bool] = ContextVar("is_part", default=False)

call_p = Primitive("hloopt_call")
call_p.multiple_results = True


class Backend(ABC):
    """What lowers calls of the function of a name; two are equal only if they are one."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def made_of(self, module: Module) -> Module:
        """The module that runs in place of JAX's."""

    @abstractmethod
    def lower(
        self, ctx: Any, operands: Sequence[Any], jaxpr: Any, donated: Sequence[bool]
    ) -> Sequence[Any]:
        """The values of the outputs of a closed jaxpr, in the MLIR that ``ctx`` lowers.

        Results may take the memory of what is ``donated``: XLA copies it first where it is needed elsewhere.
        """


def bind(
    backend: Backend,
    fun: Callable[..., Sequence[Any]],
    operands: Sequence[Any],
    donated: Sequence[bool] = (),
) -> list[Any]:
    """The results of ``fun`` of arrays, a flat list, by a call that ``backend`` lowers.

    Raises ``UnsupportedError`` where ``fun`` exchanges something with other devices of a mesh around it.
    """
    jaxpr, known = _trace(fun, *operands)
    if axes := sorted(str(one.name) for one in jaxpr.effects if hasattr(one, "name")):
        raise UnsupportedError(
            f"it exchanges data over {', '.join(axes)}: hloopt's part is that of one device; call psum and the "
            "like outside of it",
            name=backend.name,
        )
    given_up = (*(False for _ in known), *donated) if any(donated) else ()
    return _bind(backend, jaxpr, *known, *operands, donated=given_up)


def _bind(
    backend: Backend, jaxpr: Any, *operands: Any, donated: tuple[bool, ...] = ()
) -> list[Any]:
    # Within shard_map the call is one for all operands: one that is the same on all devices is spread, as JAX
    # does before each op, so that its slopes are added up over the devices.
    kinds = [jax.typeof(one).mat.varying for one in operands]
    axes: frozenset[str] = frozenset().union(*kinds)
    spread = [
        jax.lax.pcast(one, tuple(sorted(axes - own)), to="varying") if axes - own else one
        for one, own in zip(operands, kinds, strict=True)
    ]
    outputs: list[Any] = call_p.bind(*spread, jaxpr=jaxpr, backend=backend, donated=donated)
    return outputs


def _trace(fun: Callable[..., Sequence[Any]], *operands: Any) -> tuple[Any, list[Any]]:
    """A closed jaxpr of ``fun``, and the values of its first inputs: the arrays that it refers to.

    Small ones whose values are known stay within.
    """
    avals, made = _traced(fun, [jax.typeof(one) for one in operands])
    given = [
        one for one in made.consts if isinstance(one, jax.core.Tracer) or one.size > _MOST_KNOWN
    ]
    if not given:
        return made, []
    places = {id(one): number for number, one in enumerate(given)}

    def opened(*values: Any) -> list[Any]:
        consts = [values[places[id(one)]] if id(one) in places else one for one in made.consts]
        results: list[Any] = jax.core.eval_jaxpr(made.jaxpr, consts, *values[len(given) :])
        return results

    _, made = _traced(opened, [*map(jax.typeof, given), *avals])
    return made, given


def _traced(fun: Callable[..., Any], avals: Sequence[Any]) -> tuple[Sequence[Any], Any]:
    """A closed jaxpr, and the types that its inputs have there.

    Within shard_map, each device runs a call by itself: nothing in it knows of the mesh.
    """
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return avals, jax.make_jaxpr(fun)(*avals)
    avals = [jax.core.ShapedArray(one.shape, one.dtype, one.weak_type) for one in avals]
    nowhere = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with nowhere, _check_vma(False):
        return avals, jax.make_jaxpr(fun)(*avals)


@contextmanager
def inner_calls_are_parts() -> Iterator[None]:
    """What is lowered in it has in place of calls what they compute: the outermost call is one module."""
    before = _is_part.set(True)
    try:
        yield
    finally:
        _is_part.reset(before)


def calls_in(jaxpr: Any) -> list[Any]:
    """The equations of a closed jaxpr that are such calls."""
    return [one for one in jaxpr.jaxpr.eqns if one.primitive is call_p]


@lru_cache(maxsize=1024)
def _compiled(backend: Backend, jaxpr: Any) -> Callable[..., list[Any]]:
    called: Callable[..., list[Any]] = jax.jit(partial(_bind, backend, jaxpr))
    return called


def _run(*operands: Any, jaxpr: Any, backend: Backend, donated: Any) -> list[Any]:
    return _compiled(backend, jaxpr)(*operands)


def _shapes(*operands: Any, jaxpr: Any, backend: Backend, donated: Any) -> Sequence[Any]:
    found: Sequence[Any] = jaxpr.out_avals
    if not any(one.mat.varying for one in operands):
        return found
    mesh, varying = operands[0].sharding.mesh, operands[0].mat
    spread = [
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*(None for _ in one.shape)))
        for one in found
    ]
    return [
        one.update(sharding=where, manual_axis_type=varying)
        for one, where in zip(found, spread, strict=True)
    ]


def _lower(ctx: Any, *operands: Any, jaxpr: Any, backend: Backend, donated: Any) -> Sequence[Any]:
    if _is_part.get():
        found: Sequence[Any] = mlir.lower_fun(jaxpr_as_fun(jaxpr), multiple_results=True)(
            ctx, *operands
        )
        return found
    return backend.lower(ctx, operands, jaxpr, donated)


def _batch(
    operands: Sequence[Any],
    axes: Sequence[int | None],
    *,
    jaxpr: Any,
    backend: Backend,
    donated: Any,
) -> tuple[Sequence[Any], list[int]]:
    warnings.warn(
        f"vmap of {backend.name}: JAX runs it without hloopt; give hloopt the function that vmap returns",
        stacklevel=2,
    )
    outputs = jax.vmap(jaxpr_as_fun(jaxpr), in_axes=tuple(axes))(*operands)
    return outputs, [0] * len(outputs)


def _differentiate(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    jaxpr: Any,
    backend: Backend,
    donated: Any,
) -> tuple[list[Any], list[Any]]:
    moving = [not isinstance(one, ad.Zero) and _is_real(one) for one in tangents]
    smooth = [_is_real(aval) for aval in jaxpr.out_avals]
    count = len(smooth)
    if not any(moving) or not any(smooth):
        primal_outputs = _bind(backend, jaxpr, *primals)
        return primal_outputs, [
            ad.Zero(jax.typeof(one).to_tangent_aval()) for one in primal_outputs
        ]
    forward, linear = _linearized(jaxpr, tuple(moving), tuple(smooth))
    found = _bind(backend, forward, *primals)
    outputs, residuals = found[:count], found[count:]
    given = [one for one, moves in zip(tangents, moving, strict=True) if moves]
    slopes = iter(_bind(backend, linear, *residuals, *given))
    return outputs, [
        next(slopes) if is_smooth else ad.Zero(jax.typeof(one).to_tangent_aval())
        for one, is_smooth in zip(outputs, smooth, strict=True)
    ]


@lru_cache(maxsize=1024)
def _linearized(jaxpr: Any, moving: tuple[bool, ...], smooth: tuple[bool, ...]) -> tuple[Any, Any]:
    """Two closed jaxprs: the outputs and residuals; slopes of the real outputs from residuals and tangents."""
    fun = jaxpr_as_fun(jaxpr)
    lines: list[Any] = []

    def forward(*primals: Any) -> list[Any]:
        def of_moving(*some: Any) -> tuple[list[Any], list[Any]]:
            outputs = fun(*_merged(primals, some, moving))
            return [one for one, is_real in zip(outputs, smooth, strict=True) if is_real], outputs

        some = [one for one, moves in zip(primals, moving, strict=True) if moves]
        _, slope, outputs = jax.linearize(of_moving, *some, has_aux=True)
        line = jax.make_jaxpr(slope)(*some)
        lines.append(line.jaxpr)
        return [*outputs, *line.consts]

    _, made = _traced(forward, jaxpr.in_avals)
    residuals = made.out_avals[len(smooth) :]
    ((line),) = lines

    def linear(*given: Any) -> list[Any]:
        results: list[Any] = jax.core.eval_jaxpr(
            line, given[: len(residuals)], *given[len(residuals) :]
        )
        return results

    some = [aval for aval, moves in zip(jaxpr.in_avals, moving, strict=True) if moves]
    return made, _traced(linear, [*residuals, *some])[1]


def _transpose(
    slopes: Sequence[Any], *operands: Any, jaxpr: Any, backend: Backend, donated: Any
) -> list[Any]:
    linear = tuple(ad.is_undefined_primal(one) for one in operands)
    known = [one for one, is_linear in zip(operands, linear, strict=True) if not is_linear]
    results = iter(
        _bind(backend, _transposed(jaxpr, linear), *known, *map(ad.instantiate_zeros, slopes))
    )
    return [next(results) if is_linear else None for is_linear in linear]


@lru_cache(maxsize=1024)
def _transposed(jaxpr: Any, linear: tuple[bool, ...]) -> Any:
    """A closed jaxpr from the other inputs and slopes of the outputs to slopes of the linear inputs."""
    fun = jaxpr_as_fun(jaxpr)
    others = [aval for aval, one in zip(jaxpr.in_avals, linear, strict=True) if not one]
    some = [aval for aval, one in zip(jaxpr.in_avals, linear, strict=True) if one]

    def transposed(*given: Any) -> list[Any]:
        known, slopes = given[: len(others)], given[len(others) :]
        back = jax.linear_transpose(
            lambda *values: fun(*_merged(known, values, linear, whole=False)), *some
        )
        return list(back(list(slopes)))

    return _traced(transposed, [*others, *jaxpr.out_avals])[1]


def _merged(
    values: Sequence[Any], some: Sequence[Any], chosen: Sequence[bool], *, whole: bool = True
) -> list[Any]:
    """``some`` where it is ``chosen``, else ``values``: all of them, or unless ``whole`` only the others."""
    first, second = iter(values), iter(some)
    merged = []
    for is_chosen in chosen:
        other = next(first) if whole or not is_chosen else None
        merged.append(next(second) if is_chosen else other)
    return merged


def _is_real(value: Any) -> bool:
    """Whether derivatives of such a value are not zero by its type alone."""
    return bool(jax.dtypes.issubdtype(value.dtype, np.inexact))


call_p.def_impl(_run)
call_p.def_abstract_eval(_shapes)
mlir.register_lowering(call_p, _lower)
ad.primitive_jvps[call_p] = _differentiate
ad.primitive_transposes[call_p] = _transpose
batching.primitive_batchers[call_p] = _batch
