"""What a Triton kernel of a matrix product takes along: how dimensions lie in memory, and what may join."""
