"""A unit's code made the code of a block of units: loops over lanes that become vectors.

``statements.py`` reads what was written for one unit, ``varying.py`` finds out what differs from unit to unit,
``fission.py`` writes the loops.
"""

from __future__ import annotations

from hloopt.codegen.native.lanes.fission import across, write_lanes

__all__ = ["across", "write_lanes"]
