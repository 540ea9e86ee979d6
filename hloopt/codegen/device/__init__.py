"""The library of device functions: CUDA C in the ``.cu`` files beside this one, as data.

``Uses`` collects what a program calls; its ``source`` is the text of that and of what it needs.
"""

from hloopt.codegen.device.library import DeviceFunction, is_scalar, library, names
from hloopt.codegen.device.uses import Uses

__all__ = ["DeviceFunction", "Uses", "is_scalar", "library", "names"]
