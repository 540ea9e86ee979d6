"""Functions of JAX whose modules hloopt makes: they behave as ``jax.jit`` of the function does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import update_wrapper, wraps
from types import MethodType
from typing import Any, Final

import jax

from hloopt.driver.explaining import ModuleExplained, explain
from hloopt.driver.kernels import stats
from hloopt.ir import Module
from hloopt.jax.modules import call_module, module_of, platform_of
from hloopt.jax.primitive import Backend, bind, calls_in
from hloopt.pipelines import Given, make_pipeline, optimize_module
from hloopt.prover.compare import ModulesCompared, compare_modules
from hloopt.report.stats import ModuleStats
from hloopt.spelling import missing

__all__ = ["Function", "Optimizing"]

_GIVE_UP: Final = ("donate_argnums", "donate_argnames")


class Optimizing(Backend):
    """JAX's module after a pipeline, back in JAX."""

    def __init__(self, name: str, pipeline: Given) -> None:
        super().__init__(name)
        self._pipeline = make_pipeline(pipeline)

    def made_of(self, module: Module) -> Module:
        """What the pipeline makes of a module."""
        return optimize_module(module, self._pipeline)

    def lower(
        self, ctx: Any, operands: Sequence[Any], jaxpr: Any, donated: Sequence[bool]
    ) -> Sequence[Any]:
        """A call of the optimised module."""
        module = module_of(jaxpr, self.name, platform_of(ctx), donated)
        return call_module(ctx, self.made_of(module), operands)


class Function:
    """A function of pytrees of arrays, compiled by ``jax.jit`` with the module that a back end makes.

    Attributes that it lacks (``lower``, ``trace``, ``eval_shape``, ``clear_cache`` ...) are those of
    ``jax.jit``'s.
    """

    def __init__(self, fun: Callable[..., Any], backend: Backend, options: dict[str, Any]) -> None:
        if not callable(fun):
            raise TypeError(f"hloopt.jax takes a function, not {fun!r}")
        known = [*inspect.signature(jax.jit).parameters, "pipeline"]
        for name in options:
            if name not in known:
                raise TypeError(missing(name, known, "hloopt.jax has no option"))
        update_wrapper(self, fun)
        self._backend = backend

        @wraps(fun)
        def called(*args: Any, **kwargs: Any) -> Any:
            flat, operands, tree = _flattened(fun, args, kwargs)
            donated = _donated(staged, args, kwargs) if gives_up else ()
            results = bind(backend, flat, operands, donated)
            return jax.tree.unflatten(tree(), results)

        @wraps(fun)
        def nothing(*args: Any, **kwargs: Any) -> None:
            """It has the signature by which JAX decides what is donated."""

        self._jitted = jax.jit(called, **options)
        staged = jax.jit(nothing, **options)
        gives_up = any(options.get(name) not in (None, ()) for name in _GIVE_UP)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results of the function."""
        return self._jitted(*args, **kwargs)

    def module(self, *args: Any, **kwargs: Any) -> Module:
        """The module that JAX makes for these arguments: arrays, or whatever has their shapes and types.

        Arrays that the function refers to, if large, are its first parameters.
        """
        (call,) = calls_in(self._jitted.trace(*args, **kwargs).jaxpr)
        jaxpr, donated = call.params["jaxpr"], call.params["donated"]
        return module_of(jaxpr, self._backend.name, jax.default_backend(), donated)

    def hlo(self, *args: Any, **kwargs: Any) -> Module:
        """The module that runs for these arguments."""
        return self._backend.made_of(self.module(*args, **kwargs))

    def stats(self, *args: Any, target: str | None = None, **kwargs: Any) -> ModuleStats:
        """What ``hloopt.stats`` says of the module that runs for these arguments; times on a ``target``."""
        return stats(self.hlo(*args, **kwargs), target)

    def explain(
        self, *args: Any, names: Sequence[str] = (), target: str | None = None, **kwargs: Any
    ) -> ModuleExplained:
        """What ``hloopt.explain`` says of the module that runs for these arguments, and of ``names`` in it.

        ``target`` names the device whose kernels these are.  Raises ``UsageError`` for a target and a name that
        are not known.
        """
        return explain(self.hlo(*args, **kwargs), *names, pipeline="", target=target)

    def compare(self, *args: Any, **kwargs: Any) -> ModulesCompared:
        """JAX's module and the one that runs on the same inputs, as ``hloopt.compare`` does."""
        before = self.module(*args, **kwargs)
        return compare_modules(before, self._backend.made_of(before))

    def __repr__(self) -> str:
        return f"<{type(self._backend).__name__}: {self._backend.name}>"

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        """A method, where the function is one of a class."""
        return self if owner is None else MethodType(self, owner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found: Any = getattr(self._jitted, name)
        return found


def _donated(jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[bool]:
    """Of each array among the arguments whether it is donated to a function that is staged as this one."""
    return [one.donated for one in jax.tree.leaves(jitted.trace(*args, **kwargs).args_info)]


def _flattened(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., list[Any]], list[Any], Callable[[], Any]]:
    """The function of arrays alone, these arrays, and what gives the tree of the results once it has run.

    Within ``jit`` all that is not static is a tracer.
    """
    leaves, tree = jax.tree.flatten((args, kwargs))
    places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]
    found: list[Any] = []

    def flat(*values: Any) -> list[Any]:
        filled = list(leaves)
        for at, value in zip(places, values, strict=True):
            filled[at] = value
        args, kwargs = jax.tree.unflatten(tree, filled)
        results: list[Any]
        results, structure = jax.tree.flatten(fun(*args, **kwargs))
        found[:] = [structure]
        return results

    return flat, [leaves[at] for at in places], lambda: found[0]
