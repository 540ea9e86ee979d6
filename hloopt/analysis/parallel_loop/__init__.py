"""What of a ``while`` is independent: parallel axes, what work items own, which instructions mix what.

Each name is loaded on first use: most programs have no loop that is analysed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hloopt.analysis.parallel_loop.find import parallel_loop
    from hloopt.analysis.parallel_loop.fused import FusedLoop, fused_loop
    from hloopt.analysis.parallel_loop.mappings import gpu_mappings
    from hloopt.analysis.parallel_loop.model import (
        Axes,
        Carried,
        CarriedRole,
        Dependence,
        LoopMapping,
        LoopNode,
        ParallelLoop,
        Sharing,
        Termination,
        local_dims,
    )

__all__ = [
    "Axes",
    "Carried",
    "CarriedRole",
    "Dependence",
    "FusedLoop",
    "LoopMapping",
    "LoopNode",
    "ParallelLoop",
    "Sharing",
    "Termination",
    "fused_loop",
    "gpu_mappings",
    "local_dims",
    "parallel_loop",
]

_PLACES = {
    "parallel_loop": "find",
    "FusedLoop": "fused",
    "fused_loop": "fused",
    "gpu_mappings": "mappings",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_PLACES.get(name, 'model')}")
    found = globals()[name] = getattr(
        module, name
    )  # over the module that is called as its function
    return found
