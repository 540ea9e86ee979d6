"""The messages of XLA's HLO and of its profiler (``X...``): numbers, names and kinds of the fields, as data.

``MESSAGES`` maps a message (its name without ``Hlo`` and ``Proto``) to rows ``number name kind``.  Kinds:

==================  ==============================================================================
int32, bool, ...    a scalar; enums are ``int32``, their words stand in ``words.py``
text                a string, taken as bytes: XLA writes names that are not UTF-8
packed float        numbers side by side, taken as the bytes they are
Shape               a message
Shape~              a message taken as its bytes and decoded on demand: equal ones are decoded once
...*                any number of them
==================  ==============================================================================
"""

from __future__ import annotations

from functools import cache

from hloopt.dataclass import dataclass

__all__ = ["MESSAGES", "Field", "fields", "named"]


@dataclass(frozen=True, slots=True)
class Field:
    """One row; ``kind`` is without the marks ``packed``, ``~`` and ``*``."""

    number: int
    name: str
    kind: str
    repeated: bool
    lazy: bool
    packed: bool

    @property
    def is_message(self) -> bool:
        """Whether the value is another message of the table."""
        return self.kind in MESSAGES

    @property
    def wire_type(self) -> int:
        """How a single value stands on the wire: 0 varint, 1 eight bytes, 2 length, 5 four bytes."""
        return _WIRE_TYPES.get(self.kind, 2)


_WIRE_TYPES = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), 0),
    "double": 1,
    "float": 5,
}


@cache
def fields(message: str) -> dict[int, Field]:
    """The fields of a message by their numbers."""
    rows = {}
    for row in MESSAGES[message].replace("\n", ",").split(","):
        if row.strip():
            number, name, *kind = row.split()
            word = kind[-1]
            rows[int(number)] = Field(
                int(number), name, word.rstrip("*~"), word.endswith("*"), "~" in word, len(kind) > 1
            )
    return rows


@cache
def named(message: str) -> dict[str, Field]:
    """The fields of a message by their names."""
    return {field.name: field for field in fields(message).values()}


MESSAGES: dict[str, str] = {
    "Shape": """
        2 element_type int32, 3 dimensions int64*, 6 is_dynamic_dimension bool*
        4 tuple_shapes Shape~*, 5 layout Layout
    """,
    "Layout": """
        1 minor_to_major int64*, 9 dim_level_types int32*, 13 dim_unique bool*
        14 dim_ordered bool*, 6 tiles Tile*, 16 tail_padding_alignment_in_elements int64
        7 element_size_in_bits int64, 8 memory_space int64, 11 index_primitive_type int32
        12 pointer_primitive_type int32, 10 physical_shape Shape~
        15 dynamic_shape_metadata_prefix_bytes int64, 17 split_configs SplitConfig*
    """,
    "Tile": "1 dimensions int64*",
    "SplitConfig": "1 dimension int64, 2 split_indices int64*",
    "ProgramShape": "1 parameters Shape~*, 2 result Shape~, 3 parameter_names text*",
    "Literal": """
        1 shape Shape~, 2 preds packed bool*, 30 s1s bytes, 26 s2s bytes, 21 s4s bytes
        15 s8s bytes, 31 u1s bytes, 27 u2s bytes, 22 u4s bytes, 3 u8s bytes, 4 s32s int32*
        5 s64s int64*, 6 u32s uint32*, 7 u64s uint64*, 8 f32s packed float*
        9 f64s packed double*, 12 c64s packed float*, 18 c128s packed double*
        10 tuple_literals Literal*, 11 f16s bytes, 13 bf16s bytes, 16 u16s bytes
        17 s16s bytes, 32 f4e2m1fns bytes, 29 f8e3m4s bytes, 23 f8e4m3b11fnuzs bytes
        20 f8e4m3fns bytes, 25 f8e4m3fnuzs bytes, 28 f8e4m3s bytes, 24 f8e5m2fnuzs bytes
        19 f8e5m2s bytes, 33 f8e8m0fnus bytes, 35 f6e3m2fns bytes, 36 f6e2m3fns bytes
        14 sparse_indices int64*, 34 dynamic_sizes int32*
    """,
    "OpMetadata": """
        1 op_type text, 2 op_name text, 3 source_file text, 4 source_line int32
        17 source_end_line int32, 18 source_column int32, 19 source_end_column int32
        5 profile_type int32*, 8 size_of_generated_code_in_bytes int64
        9 size_of_memory_working_set_in_bytes int64, 10 profile_info bytes
        12 deduplicated_name text, 15 stack_frame_id int32, 16 scheduling_name text
        20 metadata_payload Payload
    """,
    "Payload": "1 value bytes, 2 id int64",
    "FrontendAttributes": "1 map MapEntry*",
    "MapEntry": "1 key text, 2 value text",
    "OpSharding": """
        1 type int32, 2 tile_shape Shape~, 3 tile_assignment_dimensions int64*
        4 tile_assignment_devices int64*, 5 tuple_shardings OpSharding*
        6 replicate_on_last_tile_dim bool, 7 metadata OpMetadata~*, 8 last_tile_dims int32*
        9 iota_reshape_dims int64*, 10 iota_transpose_perm int32*, 11 is_shard_group bool
        12 shard_group_id int64, 13 shard_group_type int32, 14 named_sharding NamedSharding
    """,
    "NamedSharding": """
        2 mesh Mesh, 3 dim_shardings DimensionSharding*, 4 replicated_axes AxisRef*
        5 unreduced_axes AxisRef*, 7 manual_axes AxisRef*, 6 metadata OpMetadata~*
    """,
    "DimensionSharding": "1 axes AxisRef*, 2 is_closed bool",
    "AxisRef": "1 mesh_axis_index int64, 2 sub_axis_info SubAxis",
    "SubAxis": "1 pre_size int64, 2 size int64",
    "Mesh": "1 axes MeshAxis*, 2 device_ids int64*, 3 iota_transform IotaTransform",
    "MeshAxis": "1 name text, 2 size int64",
    "IotaTransform": "1 reshape_dims int64*, 2 transpose_perm int64*",
    "OriginalArray": "1 instruction_name text, 2 shape_index int64*",
    "OriginalValueElement": "1 shape_index int64*, 2 original_array OriginalArray",
    "OriginalValue": "1 elements OriginalValueElement*, 2 is_synthetic_call bool",
    "Statistic": "1 stat_name text, 2 stat_val double",
    "StatisticsViz": "1 stat_index_to_visualize int64, 2 statistics Statistic*",
    "ResultAccuracy": "1 mode int32, 2 tolerance Tolerance",
    "Tolerance": "1 atol double, 2 rtol double, 3 ulps int64",
    "Window": "1 dimensions WindowDimension*",
    "WindowDimension": """
        1 size int64, 2 stride int64, 3 padding_low int64, 4 padding_high int64
        5 window_dilation int64, 6 base_dilation int64, 7 window_reversal bool
    """,
    "ConvolutionDimensionNumbers": """
        7 input_batch_dimension int64, 8 input_feature_dimension int64
        11 input_spatial_dimensions int64*, 3 kernel_input_feature_dimension int64
        4 kernel_output_feature_dimension int64, 6 kernel_spatial_dimensions int64*
        9 output_batch_dimension int64, 10 output_feature_dimension int64
        12 output_spatial_dimensions int64*
    """,
    "DotDimensionNumbers": """
        1 lhs_contracting_dimensions int64*, 2 rhs_contracting_dimensions int64*
        3 lhs_batch_dimensions int64*, 4 rhs_batch_dimensions int64*
    """,
    "RaggedDotDimensionNumbers": """
        1 dot_dimension_numbers DotDimensionNumbers, 2 lhs_ragged_dimensions int64*
        3 rhs_group_dimensions int64*
    """,
    "GatherDimensionNumbers": """
        1 offset_dims int64*, 2 collapsed_slice_dims int64*, 3 start_index_map int64*
        4 index_vector_dim int64, 5 operand_batching_dims int64*
        6 start_indices_batching_dims int64*
    """,
    "ScatterDimensionNumbers": """
        1 update_window_dims int64*, 2 inserted_window_dims int64*
        3 scatter_dims_to_operand_dims int64*, 4 index_vector_dim int64
        5 input_batching_dims int64*, 6 scatter_indices_batching_dims int64*
    """,
    "PaddingConfig": "1 dimensions PaddingConfigDimension*",
    "PaddingConfigDimension": """
        1 edge_padding_low int64, 2 edge_padding_high int64, 3 interior_padding int64
    """,
    "PrecisionConfig": "1 operand_precision int32*, 2 algorithm int32",
    "SparsityConfig": "1 lhs TensorSparsityConfig, 2 rhs TensorSparsityConfig",
    "TensorSparsityConfig": """
        1 num_non_zero int64, 2 block_size int64, 3 dimension int64, 4 stride int64
    """,
    "TriangularSolveOptions": """
        1 left_side bool, 2 lower bool, 3 unit_diagonal bool, 4 transpose_a int32
    """,
    "CholeskyOptions": "1 lower bool",
    "ParameterReplication": "1 replicated_at_leaf_buffers bool*",
    "ReplicaGroup": "1 replica_ids int64*",
    "CollectiveDeviceList": """
        1 replica_groups ReplicaGroup*, 2 iota_replica_group_list IotaReplicaGroupList
    """,
    "IotaReplicaGroupList": """
        1 num_replica_groups int64, 2 num_devices_per_group int64
        3 iota_reshape_dims int64*, 4 iota_transpose_perm int32*
    """,
    "MeshAxesReplicaGroupList": "1 mesh Mesh, 2 axes AxisRef*",
    "SourceTarget": "1 source int64, 2 target int64",
    "OutputOperandAliasing": """
        1 output_shape_index int64*, 2 operand_index int64, 3 operand_shape_index int64*
    """,
    "Instruction": """
        1 name text, 2 opcode text, 3 shape Shape~, 7 metadata OpMetadata~
        8 literal Literal~, 9 parameter_number int64, 11 fusion_kind text
        13 tuple_index int64, 14 dimensions int64*, 15 window Window~
        16 convolution_dimension_numbers ConvolutionDimensionNumbers~
        50 feature_group_count int64, 58 batch_group_count int64
        17 slice_dimensions SliceDimensions*, 18 exponent_bits int32, 19 mantissa_bits int32
        20 dynamic_slice_sizes int64*, 21 padding_config PaddingConfig~
        22 outfeed_config bytes, 23 distribution int32, 24 epsilon float
        25 feature_index int64, 26 channel_id int64, 27 infeed_config bytes
        28 custom_call_target text, 29 outfeed_shape Shape~
        30 dot_dimension_numbers DotDimensionNumbers~
        90 ragged_dot_dimension_numbers RaggedDotDimensionNumbers~, 31 fft_type int32
        32 fft_length int64*, 63 comparison_direction text
        33 gather_dimension_numbers GatherDimensionNumbers~, 34 gather_slice_sizes int64*
        35 id int64, 36 operand_ids int64*, 37 control_predecessor_ids int64*
        38 called_computation_ids int64*, 40 sharding OpSharding~, 43 backend_config bytes
        99 backend_config_payload Payload~, 49 replica_groups ReplicaGroup*
        45 all_reduce_id int64, 71 use_global_device_ids bool, 47 is_host_transfer bool
        60 is_stable bool, 48 scatter_dimension_numbers ScatterDimensionNumbers~
        51 precision_config PrecisionConfig~, 52 source_target_pairs SourceTarget*
        54 domain_entry_sharding OpSharding~, 55 domain_exit_sharding OpSharding~
        56 constrain_layout bool, 57 operand_shapes_with_layout Shape~*
        59 triangular_solve_options TriangularSolveOptions~
        62 cholesky_options CholeskyOptions~, 61 parameter_replication ParameterReplication~
        65 custom_call_has_side_effect bool
        74 output_operand_aliasing OutputOperandAliasing*, 76 custom_call_schedule int32
        66 delta int64, 67 indices_are_sorted bool
        68 frontend_attributes FrontendAttributes~, 69 unique_indices bool
        70 rng_algorithm int32, 72 comparison_type text, 73 is_cross_program_prefetch bool
        80 cross_program_prefetch_index int32, 75 padding_type int32
        77 custom_call_api_version int32, 79 async_execution_thread text, 81 k int64
        85 largest bool, 82 statistics_viz StatisticsViz~
        87 collective_device_list CollectiveDeviceList~
        92 iota_collective_device_list IotaReplicaGroupList~
        93 mesh_axes_replica_group_list MeshAxesReplicaGroupList~
        88 original_value OriginalValue~, 89 is_composite bool
        91 result_accuracy ResultAccuracy~, 94 is_reverse bool, 95 num_carries int64
        96 is_associative int32, 97 conv_kind int32, 98 sparsity_config SparsityConfig~
    """,
    "SliceDimensions": "1 start int64, 2 limit int64, 3 stride int64",
    "Computation": """
        1 name text, 2 instructions Instruction*, 4 program_shape ProgramShape~, 5 id int64
        6 root_id int64, 7 is_fusion_computation bool, 8 execution_thread text
    """,
    "Schedule": "1 sequences SequencesEntry*",
    "InstructionSequence": "1 instruction_ids int64*",
    "SequencesEntry": "1 key int64, 2 value InstructionSequence",
    "InputOutputAlias": "1 entries AliasEntry*",
    "AliasEntry": """
        1 output_shape_index int64*, 2 parameter_number int64
        3 parameter_shape_index int64*, 4 kind int32
    """,
    "BufferDonor": "1 entries BufferDonorEntry*",
    "BufferDonorEntry": "1 parameter_number int64, 2 parameter_shape_index int64*",
    "StackFrameIndex": """
        1 file_names text*, 2 function_names text*, 3 file_locations FileLocation*
        4 stack_frames StackFrame*
    """,
    "FileLocation": """
        1 file_name_id int32, 2 function_name_id int32, 3 line int32, 5 end_line int32
        4 column int32, 6 end_column int32
    """,
    "StackFrame": "1 file_location_id int32, 2 parent_frame_id int32",
    "OriginalValueRecoveryTable": "1 entries Entry*",
    "Entry": """
        1 old_original_array OriginalArray, 2 new_original_array OriginalArray
        3 recovery_module Module~
    """,
    "Module": """
        1 name text, 2 entry_computation_name text, 6 entry_computation_id int64
        3 computations Computation*, 4 host_program_shape ProgramShape~, 5 id int64
        23 pjrt_id int64, 7 schedule Schedule, 8 input_output_alias InputOutputAlias
        22 payloads bytes*, 18 buffer_donor BufferDonor, 10 cross_program_prefetches bytes*
        11 is_dynamic bool, 12 spmd_output_sharding OpSharding~
        14 spmd_parameters_shardings OpSharding~*, 16 use_auto_spmd_partitioning bool
        13 profile_info bytes*, 15 device_assignment bytes
        17 stack_frame_index StackFrameIndex, 19 frontend_attributes FrontendAttributes
        20 original_value_recovery_table OriginalValueRecoveryTable, 21 device_type text
    """,
    "Hlo": "1 hlo_module Module~, 3 buffer_assignment bytes",
    "Snapshot": "1 hlo Hlo~, 2 arguments Literal~*, 3 result Literal~, 4 execution_platform text",
    "Inputs": "1 arguments Literal~*, 2 arguments_descriptors bytes*",
    "UnoptimizedSnapshot": "1 hlo_module Module~, 2 partitions Inputs*, 3 version int32",
    "XSpace": "1 planes XPlane*, 2 errors text*, 3 warnings text*, 4 hostnames text*",
    "XPlane": """
        1 id int64, 2 name text, 3 lines XLine*, 4 event_metadata XEventEntry*
        5 stat_metadata XStatEntry*, 6 stats XStat*
    """,
    "XLine": """
        1 id int64, 2 name text, 3 timestamp_ns int64, 4 events XEvent*, 9 duration_ps int64
        10 display_id int64, 11 display_name text
    """,
    "XEvent": """
        1 metadata_id int64, 2 offset_ps int64, 5 num_occurrences int64, 3 duration_ps int64
        4 stats XStat*
    """,
    "XStat": """
        1 metadata_id int64, 2 number double, 3 uint64 uint64, 4 int64 int64, 5 text text
        6 bytes bytes, 7 ref uint64, 8 compressed bytes
    """,
    "XEventEntry": "1 key int64, 2 value XEventMetadata",
    "XEventMetadata": """
        1 id int64, 2 name text, 3 metadata bytes, 4 display_name text, 5 stats XStat*
        6 child_id int64*
    """,
    "XStatEntry": "1 key int64, 2 value XStatMetadata",
    "XStatMetadata": "1 id int64, 2 name text, 3 description text",
}
