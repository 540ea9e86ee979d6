"""How XLA's GPU emitters would lay out a kernel: pure functions of a region and a device.

Nothing here writes code or chooses a kernel: kernel families, code generation and cost models use it.  Every
threshold is XLA's figure, a constant of its module.
"""
