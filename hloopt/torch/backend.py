"""A back end of ``torch.compile``: graphs run as hloopt compiles them, forward and backward."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import hloopt
from hloopt.errors import UsageError
from hloopt.torch.converting import lowering
from hloopt.torch.tensors import array_of, tensor_of

__all__ = ["backend"]

_TENSOR: Final = object()
_OPTIONS: Final = {"device": "native", "pipeline": "O2"}


def backend(
    graph: Any, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph of ``torch.compile(model, backend="hloopt", options=...)``.

    ``options`` are ``device`` (native; cpu) and ``pipeline`` (O2), as ``hloopt.compile`` and
    ``hloopt.optimize`` take them.  A graph with open sizes is left to torch, with a warning:
    ``torch.compile(..., dynamic=False)`` gives one for each size.

    Raises ``UsageError`` for other options, ``DeviceError`` where torch-mlir, jaxlib or the compiler is
    missing, ``UnsupportedError`` for what cannot be converted.
    """
    given = {**_OPTIONS, **(options or {})}
    unknown = sorted(given.keys() - _OPTIONS.keys())
    if unknown:
        known = ", ".join(_OPTIONS)
        raise UsageError(f"the back end has no option '{unknown[0]}' (known: {known})")

    def compiled(part: Any, examples: Sequence[Any]) -> Callable[..., Any]:
        return _compiled(part, examples, given["device"], given["pipeline"])

    made = lowering().aot_autograd(fw_compiler=compiled, decompositions=lowering().decompositions())
    # The attention that torch fuses for its own CPU has a gradient that nothing decomposes.
    with sdpa_kernel(SDPBackend.MATH):
        run: Callable[..., Any] = made(graph, inputs)
    return run


def _compiled(
    graph: Any, examples: Sequence[Any], device: str, pipeline: str
) -> Callable[..., list[Any]]:
    """The function of a graph of ATen ops, whose results are a list."""
    if not all(_is_fixed(one) for one in examples):
        warnings.warn(
            "a graph with open sizes is run by torch itself; torch.compile(..., dynamic=False) compiles "
            "one for each size",
            stacklevel=2,
        )
        return _boxed(graph.forward)
    kept, given = _without_others(graph)
    text = lowering().of_graph(kept)
    module = hloopt.optimize(hloopt.read(text, name="<torch.compile>"), pipeline)
    program = hloopt.compile(module, device)

    def run(*tensors: Any) -> list[Any]:
        found = iter(program.run([array_of(one) for one in tensors]))
        return [tensor_of(next(found)) if one is _TENSOR else one for one in given]

    return _boxed(run)


def _boxed(function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """As torch calls it: with a list, from which arguments are taken so that they may be freed."""

    def call(arguments: list[Any]) -> list[Any]:
        given = arguments.copy()
        arguments.clear()
        return function(*given)

    made: Any = call
    made._boxed_call = True
    return call


def _without_others(graph: Any) -> tuple[Any, list[Any]]:
    """A graph that returns tensors alone; and its results, ``_TENSOR`` in the place of each tensor."""
    kept = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    (output,) = [node for node in kept.graph.nodes if node.op == "output"]
    results = list(output.args[0])
    nodes = [one for one in results if isinstance(one, torch.fx.Node)]
    output.args = (tuple(nodes),)
    kept.recompile()
    return kept, [_TENSOR if isinstance(one, torch.fx.Node) else one for one in results]


def _is_fixed(example: Any) -> bool:
    return isinstance(example, torch.Tensor) and all(isinstance(n, int) for n in example.shape)
