"""How long kernels take, and what fusing them gains: XLA's performance models and other ones.

model, registry   the interface of a model (``CostModel``), and finding one by its name
xla_2026          XLA's current model, the default; ``block_level`` is its part about Triton kernels
xla_2023          the model that FusionMerger and multi-output fusion used in 2022 and 2023
usage             what ops and fusions compute and read, with utilisations: ``counting`` has the rules op by op,
                  ``body_usage`` the walk through a fusion's body
roofline          bytes and flops over the device's rates, for any device
coalescing, device_times              parts of ``xla_2026``

A model returns a run time (``run_time``) or a comparison (``compare``), and is notified of each change of the
module (``forget``, ``grown``).  Kinds and launches of kernels come from ``hloopt.analysis.emitters.pairs``.
"""
