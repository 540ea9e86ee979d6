"""A work item's code made the code of a block of work items: loops over lanes that become vectors.

``varying.py`` finds out what differs from work item to work item, ``fission.py`` makes the loops.
"""

from __future__ import annotations

from hloopt.backends.native.codegen.lanes.fission import for_lanes
from hloopt.backends.native.codegen.lanes.varying import across

__all__ = ["across", "for_lanes"]
