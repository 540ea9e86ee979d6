"""How long kernels take, and what fusing them gains: XLA's performance models, and those of others.

model, registry   what a model answers (``CostModel``), and finding one by its name
xla_2026          XLA's model of today, the default; ``block_level`` is its part about Triton kernels
xla_2023          the model FusionMerger and multi-output fusion asked in 2022 and 2023
usage             what ops and fusions compute and read, with utilisations: ``counting`` has the rules op by op,
                  ``body_usage`` the walk through a fusion's body
roofline          bytes and flops over the device's rates, for any device
coalescing, device_times              parts of ``xla_2026``

A model is asked for a run time (``run_time``) or a comparison (``compare``), and told of each change of the
module (``forget``, ``grown``).  Kinds and launches of kernels come from ``hloopt.analysis.emitters.pairs``.
"""
