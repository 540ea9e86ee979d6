"""Modules out of JAX's traces, and back into what JAX lowers.

What goes out is the HLO that JAX would give XLA; what comes back is StableHLO, to which traces are lowered.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun
from jax.interpreters import mlir
from jaxlib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from hloopt.errors import UnsupportedError
from hloopt.ir import Module, build, edit
from hloopt.jax.primitive import inner_calls_are_parts
from hloopt.proto import read_proto
from hloopt.proto.writer import module_proto
from hloopt.runtime.amended import CALLBACKS
from hloopt.runtime.xla_form import make_for_xla
from hloopt.types import FrontendAttributes
from hloopt.types.shape import descending

__all__ = ["call_module", "module_of", "platform_of"]


def module_of(jaxpr: Any, name: str, platform: str, donated: Sequence[bool] = ()) -> Module:
    """The module that JAX lowers a closed jaxpr to: a parameter for each input, a result for each output.

    ``donated`` says which inputs may become results; an empty sequence is none.

    Raises ``UnsupportedError`` for what has effects outside of its results, such as callbacks into Python.
    """
    if jaxpr.effects:
        what = ", ".join(sorted(str(effect) for effect in jaxpr.effects))
        raise UnsupportedError(
            f"it does more than compute results ({what}): only JAX can run it", name=name
        )

    def fun(*operands: Any) -> Any:
        return jaxpr_as_fun(jaxpr)(*operands)

    fun.__name__ = name
    given_up = tuple(number for number, is_donated in enumerate(donated) if is_donated)
    traced = jax.jit(fun, keep_unused=True, donate_argnums=given_up).trace(*jaxpr.in_avals)
    with warnings.catch_warnings(), inner_calls_are_parts():
        # The caller's own call says which donated arrays no result can take.
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        lowered = traced.lower(lowering_platforms=(platform,))
    proto: bytes = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    module = read_proto(proto, name)
    for instruction in module.instructions():
        if instruction.custom_call_target in CALLBACKS:
            # Its address would be that of an object of this lowering.
            raise UnsupportedError(
                f"%{instruction.name} calls Python: only JAX can run it", name=name
            )
    _forget_empty_meshes(module)
    _lay_out_results(module)
    return module


def _forget_empty_meshes(module: Module) -> None:
    """What JAX places on no device, as it does with keys: nothing is placed, and XLA would go back to GSPMD."""
    for one in list(module.instructions()):
        if one.custom_call_target == "Sharding" and len(one.operands) == 1:
            said = FrontendAttributes.of(one.attributes).get("xla.sdy.sharding") or ""
            if "<@empty_mesh," in said:
                edit.replace_uses(one, one.operands[0])
                edit.remove(one)


def _lay_out_results(module: Module) -> None:
    """Results are row-major for JAX; the layouts that its HLO shows are what shapes were inferred with."""
    root = module.entry.root
    parts = root.operands if root.opcode == "tuple" else (root,)
    for number, part in enumerate(parts):
        shape = part.array
        row_major = replace(shape, layout=descending(len(shape.dims)))
        if shape.layout in (None, row_major.layout):
            continue
        copied = build.make(
            module.entry if part is root else root, "copy", (part,), shape=row_major
        )
        if part is root:
            edit.set_root(module.entry, copied)
        else:
            edit.set_operand(root, number, copied)
    if root.opcode == "tuple":
        edit.set_shape(root, build.infer_shape(root))
    module.attributes["entry_computation_layout"] = (
        module.entry.parameter_shapes,
        module.entry.root.shape,
    )


def platform_of(ctx: Any) -> str:
    """The platform that ``ctx`` lowers for.  Raises ``UnsupportedError`` where it lowers for several."""
    platforms: Sequence[str] = ctx.platforms or ctx.module_context.platforms
    if len(platforms) != 1:
        raise UnsupportedError(
            f"hloopt lowers for one platform at a time, not for {', '.join(platforms)}"
        )
    return platforms[0]


def call_module(ctx: Any, module: Module, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of a call of the module, in what ``ctx`` lowers; the given module is unchanged.

    Raises ``UnsupportedError`` for an instruction that has no form in a proto.
    """
    copy = build.clone_module(module)
    make_for_xla(copy)
    proto = module_proto(copy).SerializeToString()
    into = ctx.module_context
    made = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(proto))
    symbols = ir.SymbolTable(made.operation)
    results = symbols["main"].type.results
    # What stands at its arguments, such as donation, is the caller's.
    symbols["main"].attributes["arg_attrs"] = ir.ArrayAttr.get(
        [ir.DictAttr.get({})] * len(operands)
    )
    callee = mlir.merge_mlir_modules(
        into.module, f"hloopt_{module.name}", made, dst_symtab=into.symbol_table
    )
    call = func.CallOp(results, ir.FlatSymbolRefAttr.get(callee), operands)
    found: Sequence[Any] = call.results
    return found
