"""A unit's code made the code of a block of units: loops over lanes that become vectors.

``varying.py`` finds out what differs from unit to unit, ``fission.py`` makes the loops.
"""

from __future__ import annotations

from hloopt.backends.native.codegen.lanes.fission import for_lanes
from hloopt.backends.native.codegen.lanes.varying import across

__all__ = ["across", "for_lanes"]
