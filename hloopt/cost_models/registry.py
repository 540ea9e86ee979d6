"""Cost models by name: hloopt's own, then those of installed distributions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from hloopt.cost_models.model import CostModel
from hloopt.errors import UsageError
from hloopt.rewrite.plugins import entry_points_of
from hloopt.rewrite.spec import did_you_mean
from hloopt.targets import Target
from hloopt.user_code import load_function

__all__ = [
    "DEFAULT",
    "GROUP",
    "HOST",
    "ROOFLINE",
    "find_model",
    "given_model",
    "model_for",
    "model_names",
]

GROUP: Final = "hloopt.cost_models"
"""The entry point group: each entry point is named like the model whose class it gives."""

DEFAULT: Final = "xla-2026"

HOST: Final = "host"
"""The model for processors, for which the models of GPUs have no numbers."""

ROOFLINE: Final = "roofline"
"""The model for devices that other models have no numbers for."""

_NOT_A_MODEL: Final = "is not a cost model (a subclass of hloopt.cost_models.model.CostModel)"

_OWN: Final[Mapping[str, tuple[str, str]]] = MappingProxyType({
    "xla-2023": ("hloopt.cost_models.xla_2023", "Xla2023"),
    "xla-2026": ("hloopt.cost_models.xla_2026", "Xla2026"),
    "roofline": ("hloopt.cost_models.roofline", "Roofline"),
    "host": ("hloopt.cost_models.host", "HostModel"),
})  # fmt: skip


_GIVEN: Final[dict[str, type[CostModel]]] = {}
"""The models that the user of this process named by their classes."""


def model_names() -> tuple[str, ...]:
    """The names of all models; nothing is imported."""
    installed = {entry.name for entry in entry_points_of(GROUP)}
    return (*_OWN, *sorted({*installed, *_GIVEN} - _OWN.keys()))


def given_model(text: str) -> str:
    """The name of the model that ``FILE.py:Class`` or ``module:Class`` gives, for ``find_model`` from now on.

    The file is run, so that only what a user types may name it.  Raises ``UsageError`` for what is not a model,
    and for one called as hloopt's own are.
    """
    found = load_function(text, "--cost-model", "class")
    if not (isinstance(found, type) and issubclass(found, CostModel)):
        raise UsageError(f"--cost-model: {text} {_NOT_A_MODEL}")
    name = getattr(found, "name", "")
    if not name or name in _OWN:
        why = f"is called '{name}', as one of hloopt's own" if name else "has no name"
        raise UsageError(f"--cost-model: the model {text} {why}")
    _GIVEN[name] = found
    return name


def find_model(name: str) -> type[CostModel]:
    """The class of a model.

    Raises ``UsageError`` with the nearest name where there is none, and naming the entry point that cannot be
    loaded or gives something else.
    """
    if name in _OWN:
        module, attribute = _OWN[name]
        own: type[CostModel] = getattr(importlib.import_module(module), attribute)
        return own
    if name in _GIVEN:
        return _GIVEN[name]
    entries = tuple(entry for entry in entry_points_of(GROUP) if entry.name == name)
    if not entries:
        raise UsageError(f"no cost model is called '{name}'{did_you_mean(name, model_names())}")
    where = f"the entry point '{name} = {entries[0].value}' of {GROUP}"
    if len(entries) > 1:
        raise UsageError(f"several packages have a cost model called '{name}' ({GROUP})")
    try:
        loaded = entries[0].load()
    except (Exception, SystemExit) as error:
        raise UsageError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, CostModel)):
        raise UsageError(f"{where} {_NOT_A_MODEL}")
    if getattr(loaded, "name", None) != name:
        raise UsageError(f"{where} gives a model called '{getattr(loaded, 'name', '')}'")
    return loaded


def model_for(name: str, target: Target, notes: Callable[[str], None] | None = None) -> CostModel:
    """A model for a device; the roofline where that has no blocks and threads and the model needs them.

    ``notes`` says so.  For a processor the host's model stands in, which is not reported.  Raises
    ``UsageError`` as ``find_model``.
    """
    found = find_model(name)
    if target.has_threads or found.for_any_device:
        return found(target)
    if target.kind == "cpu":
        return find_model(HOST)(target)
    if notes is not None:
        notes(
            f"{target.name} has no blocks and threads that {name} could count: "
            "bytes and flops over its rates are the least that kernels take"
        )
    return find_model(ROOFLINE)(target)
