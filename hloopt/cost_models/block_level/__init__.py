"""XLA's model of kernels that compute their results tile by tile: those Triton compiles.

Each result is cut into tiles, one a block; what a tile needs of every other value follows from the indices.
The model tries all tilings with powers of two and whole dimensions, prices each, and takes the cheapest.
"""

from hloopt.cost_models.block_level.model import BlockLevelModel, PricedTiling, Untiled

__all__ = ["BlockLevelModel", "PricedTiling", "Untiled"]
