"""How XLA's GPU emitters would lay out a kernel: pure functions of a region and a device.

Nothing here writes code or chooses a kernel; whoever does, and whoever estimates costs, asks.  Every threshold
is a field of a frozen record of options whose default is XLA's figure.
"""
