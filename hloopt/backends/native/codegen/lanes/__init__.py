"""Transforms a work item's code into that of a block of work items: loops over lanes that are vectorised.

``varying.py`` analyses which names vary between work items, ``fission.py`` makes the loops.
"""

from __future__ import annotations

from hloopt.backends.native.codegen.lanes.fission import for_lanes
from hloopt.backends.native.codegen.lanes.varying import across

__all__ = ["across", "for_lanes"]
