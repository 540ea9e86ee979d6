"""PyTorch: models in, by torch-mlir; compiled graphs out, as a back end of ``torch.compile``.

    model = hloopt.torch.convert(module, (example,))
    model.write("folder")                       # hloopt run folder
    fast = torch.compile(module, backend="hloopt")

torch and torch-mlir are the user's own; jaxlib makes HLO of their StableHLO (``hloopt.stablehlo``).
"""

from __future__ import annotations

from hloopt.torch.backend import backend
from hloopt.torch.converting import TorchModel, convert

__all__ = ["TorchModel", "backend", "convert"]
