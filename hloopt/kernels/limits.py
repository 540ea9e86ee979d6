"""The thresholds of kernel selection: every one an option of ``kernel-selection``, XLA's figure the default."""

from __future__ import annotations

from hloopt.analysis.emitters.tree_split import SPLIT_STEPS
from hloopt.dataclass import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Thresholds, each with where its default comes from.

    loop_threads   threads a block of a loop kernel has (XLA: 4 warp schedulers of 32)
    loop_unroll    most elements a thread of a loop kernel computes in a row (XLA: 4)
    reduction_row_elements     longest row that one block reduces (XLA: 1024 threads of 16 elements)
    reduction_row_batch        most such rows that are reduced to one result (XLA: 8)
    reduction_column_elements  longest column that one block reduces (XLA: 32 warps of 128 elements)
    reduction_split_steps      reads that a thread makes one after the other though half of the cores have none
                               (four at a time from memory they take longer than a second launch)
    scatter_ordered_indices    most indices of a scatter that each result element goes through in order (a warp
                               of them is read as fast as one)
    convolution_matmul_size  smallest m, n and k of a group from which on a convolution is done by tiles
    fft_shared_length  longest line that is transformed in shared memory where cuFFT would do as well:
                   longer ones are read and written twice
    linear_system_size  most rows of a matrix that one block factors, or solves a system of
    dot_small_size  largest m and n of products that one block computes whole
    dot_small_depth  longest contracted dimension of such products, where parts of it would cost less
    dot_loop_work  (m + n) * k below which a dot is computed by a loop kernel (XLA: 100)
    dot_library_flops  flops from which on cuBLAS computes a dot that stands alone: some tens of microseconds,
                   beside which a call's overhead is small (XLA measures)
    sort_threads   threads of a block that sorts, four elements each (XLA: as many as a block may have)
    concatenate_operands  most operands of the concatenate kernel, which visits them all (XLA: 4)
    """

    loop_threads: int = 128
    loop_unroll: int = 4
    reduction_row_elements: int = 1024 * 16
    reduction_row_batch: int = 8
    reduction_column_elements: int = 32 * 128
    reduction_split_steps: int = SPLIT_STEPS
    scatter_ordered_indices: int = 32
    dot_loop_work: int = 100
    dot_library_flops: int = 1 << 28
    sort_threads: int = 1024
    dot_small_size: int = 16
    convolution_matmul_size: int = 8
    fft_shared_length: int = 1024
    linear_system_size: int = 1024
    concatenate_operands: int = 4
    dot_small_depth: int = 8192
