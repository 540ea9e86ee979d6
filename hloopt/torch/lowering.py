"""Graphs of ATen ops as StableHLO, by torch-mlir: imported only where that is needed and installed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from torch._dynamo.backends.common import aot_autograd
from torch_mlir import fx, ir
from torch_mlir.dialects.torch import register_dialect
from torch_mlir.extras.fx_importer import FxImporter

from hloopt.errors import UnsupportedError
from hloopt.torch.decompositions import decompositions

__all__ = ["aot_autograd", "decompositions", "of_graph", "of_program"]

_OPERATOR: Final = re.compile(r'name = "(torch\.[^"]+)"')
_OPERATION: Final = re.compile(r"operation '([^']+)'")
_PLACE: Final = re.compile(r'"([^"]+)":(\d+):(\d+)')


def of_program(program: Any, names: Sequence[str]) -> str:
    """StableHLO of an exported program that is decomposed; ``names`` are those of its inputs.

    Raises ``UnsupportedError`` as ``of_graph``.
    """
    return _stablehlo(
        lambda importer: fx.export_and_import(
            program,
            output_type="stablehlo",
            fx_importer=importer,
            func_name="main",
            decomposition_table={},
        ),
        names,
    )


def of_graph(graph: Any) -> str:
    """StableHLO of a graph whose inputs and results are tensors.

    Raises ``UnsupportedError`` at the Python line of the first op that torch-mlir has no StableHLO for.
    """
    return _stablehlo(
        lambda importer: fx.stateless_fx_import(
            graph, output_type="stablehlo", fx_importer=importer, model_name="main"
        )
    )


def _stablehlo(lower: Callable[[Any], Any], names: Sequence[str] | None = None) -> str:
    """The text of what ``lower`` makes with the importer that it is given."""
    context, problems = ir.Context(), []

    def keep(diagnostic: Any) -> bool:
        problems.append((str(diagnostic.message), str(diagnostic.location)))
        return True

    register_dialect(context)
    handler = context.attach_diagnostic_handler(keep)
    try:
        lowered = lower(FxImporter(context=context))
    except Exception as error:
        raise _unsupported(problems, error) from error
    finally:
        handler.detach()
    return _text(lowered, names)


def _unsupported(problems: Sequence[tuple[str, str]], error: Exception) -> UnsupportedError:
    if not problems:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        return UnsupportedError(f"torch-mlir does not convert it: {reason[0]}", name="<torch>")
    # A constant is what is left of an op that was taken apart in part.
    shown = [one for one in problems if "'torch.constant" not in one[0]]
    message, location = (shown or problems)[0]
    called = _OPERATOR.search(message) or _OPERATION.search(message)
    what = f"torch-mlir does not convert it: {message.partition(': %')[0]}"
    if not shown:
        what = "torch-mlir has no StableHLO for an op of these arguments"
    elif called and "legalize" in message:
        what = f"torch-mlir has no StableHLO for {called[1]}"
    place = _PLACE.search(location)
    if place is None:
        return UnsupportedError(what, name="<torch>")
    return UnsupportedError(what, name=place[1], line=int(place[2]), column=int(place[3]) + 1)


def _text(lowered: Any, names: Sequence[str] | None) -> str:
    """StableHLO alone, with names for the arguments of @main and the places of all else."""
    main = lowered.body.operations[0]
    constants: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "arith.constant":
            constants.append(op)
        return ir.WalkResult.ADVANCE

    with lowered.context:
        if names is not None:
            for argument, name in zip(main.regions[0].blocks[0].arguments, names, strict=True):
                argument.set_location(ir.Location.name(name))
        lowered.operation.walk(visit)
        for op in constants:
            if not list(op.results[0].uses):
                op.erase()
                continue
            if not isinstance(op.results[0].type, ir.RankedTensorType):
                continue
            made = ir.Operation.create(
                "stablehlo.constant",
                results=[op.results[0].type],
                attributes={"value": op.attributes["value"]},
                loc=op.location,
                ip=ir.InsertionPoint(op),
            )
            op.results[0].replace_all_uses_with(made.results[0])
            op.erase()
    text: str = lowered.operation.get_asm(enable_debug_info=True)
    return text
