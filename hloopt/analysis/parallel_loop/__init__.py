"""What of a ``while`` is independent: parallel axes, who owns what, and which instructions mix what."""

from hloopt.analysis.parallel_loop.find import parallel_loop
from hloopt.analysis.parallel_loop.fused import FusedLoop, fused_loop
from hloopt.analysis.parallel_loop.model import (
    Axes,
    Carried,
    Mixing,
    Node,
    ParallelLoop,
    Role,
    Sharing,
    Trips,
    Way,
)
from hloopt.analysis.parallel_loop.ways import ways

__all__ = [
    "Axes",
    "Carried",
    "FusedLoop",
    "Mixing",
    "Node",
    "ParallelLoop",
    "Role",
    "Sharing",
    "Trips",
    "Way",
    "fused_loop",
    "parallel_loop",
    "ways",
]
