"""How long kernels take, and what fusing them gains: XLA's performance models, and those of others."""
