"""A PyTorch module as StableHLO whose weights are parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError, UnsupportedError
from hloopt.ir import Module
from hloopt.reading import read
from hloopt.stablehlo.conversion import portable_artifact
from hloopt.stablehlo.model_directory import ModelInput, write_model_directory
from hloopt.torch.tensors import array_of
from hloopt.types import Array

__all__ = ["TorchModel", "convert", "lowering"]


@dataclass(frozen=True)
class TorchOutput:
    """An output of a model: a ``result``, or the new value of the ``buffer`` of that name.

    ``array`` is what torch computes, None where two runs give two results.
    """

    name: str
    kind: str
    array: Array | None


class TorchModel:
    """A PyTorch module as StableHLO.

    text      with the names of inputs and the lines of the Python program
    inputs    in the order of its parameters: the module's own parameters and buffers, then the tensors among
              the arguments, with the values that it was converted with
    outputs   new values of buffers and of arguments that the module changes in place, then the tensors of its
              result; their values are what torch computes, None where two runs give two results
    """

    def __init__(
        self, text: str, inputs: Sequence[ModelInput], outputs: Sequence[TorchOutput]
    ) -> None:
        self.text = text
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._module: Module | None = None

    @property
    def module(self) -> Module:
        """The HLO of it, which jaxlib makes when it is first asked for.  Raises what ``hloopt.read`` does."""
        if self._module is None:
            self._module = read(self.text, name="model.mlir")
        return self._module

    @property
    def arrays(self) -> list[Array]:
        """The values of all inputs, as ``hloopt.run`` takes them."""
        return [one.array for one in self.inputs if one.array is not None]

    @property
    def expected(self) -> list[Array] | None:
        """The values of all outputs; None where torch computes others each time."""
        found = [one.array for one in self.outputs if one.array is not None]
        return found if len(found) == len(self.outputs) else None

    def write(self, folder: str | Path) -> None:
        """Write a folder that ``hloopt run`` and all other commands read (``stablehlo.model_directory``).

        Raises ``UsageError`` where that cannot be written, ``DeviceError`` where no jaxlib is known.
        """
        artifact = portable_artifact(self.text, "model.mlir")
        write_model_directory(
            folder, self.text, self.inputs, self.expected or (), bytecode=artifact
        )

    def __repr__(self) -> str:
        kinds = [one.kind for one in self.inputs]
        counts = (f"{kinds.count(kind)} {kind}s" for kind in dict.fromkeys(kinds))
        return f"<TorchModel: {', '.join(counts)}, {len(self.outputs)} outputs>"


def convert(
    module: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> TorchModel:
    """A ``torch.nn.Module`` or ``torch.export.ExportedProgram`` as StableHLO, traced with example arguments.

    Parameters and buffers become parameters, by ``torch.func.functional_call``; tensors among the arguments,
    however nested, too; other arguments are constants of the program.  Sizes are those of the example.  The
    module is left as it is, in the mode (training or evaluation) that it has.  An exported program without
    ``args`` takes its own example, and has to have arguments where its sizes are open (``dynamic_shapes``).

    Raises ``DeviceError`` where torch-mlir is not installed, ``UnsupportedError`` for what it cannot convert
    and for open sizes that nothing fixes, and what ``torch.export`` raises.
    """
    if isinstance(module, torch.export.ExportedProgram):
        if not args and not kwargs and module.example_inputs is not None:
            _refuse_open_sizes(module)
            args, kwargs = module.example_inputs
        module = module.module()
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    parameters = {name for name, _ in module.named_parameters()}
    called, spec = pytree.tree_flatten((tuple(args), dict(kwargs or {})))
    places = [n for n, one in enumerate(called) if isinstance(one, torch.Tensor)]
    names = _argument_names(module, args, kwargs or {})
    functional = _Functional(module, called, spec, places)
    tensors = [called[place] for place in places]
    program = torch.export.export(functional, (state, tensors))
    program = program.run_decompositions(lowering().decompositions())
    inputs = [
        ModelInput(name, kind, array_of(tensor.detach().clone()))
        for name, kind, tensor in (
            *((name, _kind(name, parameters), one) for name, one in state.items()),
            *((names[place], "input", called[place]) for place in places),
        )
    ]
    text = lowering().of_program(program, [one.name for one in inputs])
    outputs = _outputs(program, functional, state, tensors, [one.name for one in inputs])
    return TorchModel(text, inputs, outputs)


def _refuse_open_sizes(program: Any) -> None:
    """An example would fix them without a word: the module would be another than the one exported."""
    for node in program.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        if not isinstance(value, torch.Tensor):
            continue
        for dimension, size in enumerate(value.shape):
            if not isinstance(size, int):
                raise UnsupportedError(
                    f"dimension {dimension} of argument '{node.name}' is open ({size}): give arguments of the "
                    "size that it is to have",
                    name="<torch>",
                )


def _kind(name: str, parameters: set[str]) -> str:
    return "weight" if name in parameters else "buffer"


class _Functional(torch.nn.Module):
    """A module whose parameters, buffers and tensors among the arguments are arguments."""

    def __init__(self, inner: Any, called: list[Any], spec: Any, places: Sequence[int]) -> None:
        super().__init__()
        # Past torch's own ``__setattr__``, which would make its parameters those of this module.
        self.__dict__.update(inner=inner, called=called, spec=spec, places=places)

    def forward(self, state: Mapping[str, Any], tensors: Sequence[Any]) -> list[Any]:
        return [one for _, one in self.results(state, tensors)]

    def results(self, state: Mapping[str, Any], tensors: Sequence[Any]) -> list[tuple[str, Any]]:
        """The tensors of the result, and where in it they are."""
        called = list(self.called)
        for place, tensor in zip(self.places, tensors, strict=True):
            called[place] = tensor
        args, kwargs = pytree.tree_unflatten(called, self.spec)
        found = torch.func.functional_call(self.inner, dict(state), args, kwargs)
        return [
            (pytree.keystr(path) or "result", one)
            for path, one in pytree.tree_flatten_with_path(found)[0]
            if isinstance(one, torch.Tensor)
        ]


def _argument_names(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """A name for each leaf of the arguments: that in the module's signature, and the way inside of it."""
    try:
        called = list(inspect.signature(module.forward).bind_partial(*args).arguments)
    except (TypeError, ValueError):  # torch says what is wrong with the call
        called = []
    first = [called[n] if n < len(called) else f"args[{n}]" for n in range(len(args))]
    names = []
    for (part, *path), _ in pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))[0]:
        key, *rest = path
        root = first[key.idx] if part.idx == 0 else str(key.key)
        names.append(f"{root}{pytree.keystr(tuple(rest))}")
    return names


def _outputs(
    program: Any,
    functional: Any,
    state: Mapping[str, Any],
    tensors: Sequence[Any],
    names: Sequence[str],
) -> list[TorchOutput]:
    """The outputs in the order of the program's results, with the values that torch computes."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        runs = [_run(functional, state, tensors) for _ in range(2)]
    known = all(
        torch.equal(one.nan_to_num(), other.nan_to_num())
        for one, other in zip(*(run.results + run.inputs for run in runs), strict=True)
    )
    run, signature = runs[0], program.graph_signature
    given = [spec.arg.name for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
    results, labels = iter(run.results), iter(run.labels)
    found = []
    for spec in signature.output_specs:
        if spec.kind.name == "USER_OUTPUT":
            name, kind, tensor = next(labels), "result", next(results)
        else:
            number = given.index(spec.target)
            name, kind, tensor = names[number], "buffer", run.inputs[number]
        found.append(TorchOutput(name, kind, array_of(tensor) if known else None))
    return found


def _run(functional: Any, state: Mapping[str, Any], tensors: Sequence[Any]) -> SimpleNamespace:
    """What torch computes from copies of the inputs, which change instead of them."""
    copied = {name: one.detach().clone() for name, one in state.items()}
    arguments = [one.detach().clone() for one in tensors]
    leaves = functional.results(copied, arguments)
    return SimpleNamespace(
        results=[one for _, one in leaves],
        labels=[name for name, _ in leaves],
        inputs=[*copied.values(), *arguments],
    )


def lowering() -> Any:
    """What asks torch-mlir.  Raises ``DeviceError`` where that is not installed."""
    try:
        from hloopt.torch import lowering as found
    except ImportError as error:
        raise DeviceError(f"torch-mlir makes StableHLO of PyTorch's graphs: {error}") from error
    return found
