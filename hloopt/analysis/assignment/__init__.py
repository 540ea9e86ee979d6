"""XLA's buffer assignment: which allocation holds each value of a scheduled module, and how large all are.

As ``BufferAssigner`` of XLA does it (xla/service/buffer_assignment.cc, hlo_live_range.cc, heap_simulator.cc).
Values live from their definition to their last position or use, in the order of the schedule with called
computations in their places.  Parameters, constants and results have allocations of their own, which smaller
temporaries may use while they are free; what is left lies in one heap, the largest first, each in the smallest
gap that fits.
"""

from __future__ import annotations

from hloopt.analysis.assignment.assigner import assign_buffers
from hloopt.analysis.assignment.records import AssignedValue, BufferAllocation, BufferAssignment

__all__ = ["AssignedValue", "BufferAllocation", "BufferAssignment", "assign_buffers"]
