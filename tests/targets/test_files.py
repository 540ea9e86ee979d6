"""Devices a user describes: in TOML, and in XLA's text form; what is wrong is shown at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from hloopt.errors import FileError
from hloopt.source import Source
from hloopt.targets import Rate, load_target, target
from hloopt.textproto import Message, ScalarField, read_textproto

WHOLE = """\
title = "mine"
kind = "cuda"
source = "my data sheet"
capability = [8, 9]
cores = 10
fpus_per_core = 128
clock_ghz = 2
memory_bandwidth = 1_000_000_000_000
memory_size = 1
l2_size = 1
warp_size = 32
threads_per_block = 1024
threads_per_core = 1536
registers_per_core = 65536
registers_per_block = 65536
shared_per_block = 49152
shared_per_block_optin = 101376
shared_per_core = 102400
grid_limit = [1, 2, 3]

[matrix_rates]
f16 = { clock_ghz = 1.5, units = 4, ops = 512 }

[scalar_peaks]
f64 = 1e12

[sources]
cores = "counted"
matrix_rates.f16 = "measured"
"""


def _toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_a_whole_device(tmp_path: Path) -> None:
    """Called like its file; each number knows where it is from."""
    device = load_target(_toml(tmp_path, WHOLE))
    assert (device.name, device.title, device.clock_ghz) == ("mine", "mine", 2.0)
    assert (device.capability, device.grid_limit) == ((8, 9), (1, 2, 3))
    assert device.matrix_rates == {"f16": Rate(1.5, 4, 512)}
    assert device.scalar_peaks == {"f64": 1e12}
    assert not device.calibrated
    assert device.pcie_bandwidth == 0
    assert device.source("cores") == "counted"
    assert device.source("matrix_rates.f16") == "measured"
    assert device.source("matrix_rates.s8") == "my data sheet"
    assert device.source("l2_size") == "my data sheet"


def test_a_device_made_of_another(tmp_path: Path) -> None:
    """``base`` gives what the file does not; sources keep apart whose number is whose."""
    device = load_target(
        _toml(tmp_path, 'base = "h200"\nsource = "guessed"\ntitle = "slow"\nclock_ghz = 1.0\n')
    )
    h200 = target("h200")
    assert (device.name, device.title, device.clock_ghz) == ("mine", "slow", 1.0)
    assert (device.cores, device.matrix_rates) == (h200.cores, h200.matrix_rates)
    assert not device.calibrated
    assert device.source("clock_ghz") == "guessed"
    assert device.source("cores") == h200.source("cores")
    assert device.source("l1_per_core") == h200.source("l1_per_core")


def test_a_tpu_says_what_it_has(tmp_path: Path) -> None:
    """Numbers of GPUs are not asked of it."""
    text = 'title = "t"\nkind = "tpu"\ncores = 1\nmemory_bandwidth = 5\nmemory_size = 6\n'
    device = load_target(_toml(tmp_path, text))
    assert (device.warp_size, device.grid_limit) == (0, (0, 0, 0))


def _without(key: str) -> str:
    return "".join(line for line in WHOLE.splitlines(True) if not line.startswith(f"{key} ="))


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        (_without("cores"), 28, 1, "missing: cores"),
        (_without("cores").replace('kind = "cuda"\n', ""), 27, 1, "missing: kind, cores"),
        (WHOLE.replace("cores = 10", "core = 10"), 5, 1, "a device has no 'core'; did you mean 'cores'?"),
        (WHOLE.replace("cores = 10", 'cores = "10"'), 5, 1, "a whole number is expected"),
        (WHOLE.replace("cores = 10", "cores = 1.5"), 5, 1, "a whole number is expected"),
        (WHOLE.replace("cores = 10", "cores = true"), 5, 1, "a whole number is expected"),
        (WHOLE.replace("cores = 10", "cores = -1"), 5, 1, "-1 is not a valid number for a device"),
        (WHOLE.replace("clock_ghz = 2", "clock_ghz = inf"), 7, 1, "inf is not a valid number for a device"),
        (WHOLE.replace("clock_ghz = 2", "clock_ghz = nan"), 7, 1, "nan is not a valid number for a device"),
        (WHOLE.replace('"cuda"', '"metal"'), 2, 1, "a kind is one of cuda, rocm, tpu, not 'metal'"),
        (WHOLE.replace('"mine"', '""'), 1, 1, "a text is expected"),
        (WHOLE.replace("[8, 9]", "[8]"), 4, 1, "a list of 2 whole numbers is expected"),
        (WHOLE.replace("[1, 2, 3]", "[1, 2, true]"), 19, 1, "a whole number is expected"),
        (WHOLE.replace("f16 = {", "f17 = {"), 22, 1, "unknown element type 'f17'; did you mean 'f16'?"),
        (WHOLE.replace("ops = 512", "op = 512"), 22, 1, "a rate is { clock_ghz = ..., units = ..., ops = ... }"),
        (WHOLE.replace("units = 4", "units = 4.5"), 22, 1, "a whole number is expected"),
        (WHOLE.replace("[matrix_rates]", "[matrix_peaks.f16]"), 21, 2, "a number is expected"),
        ("matrix_rates = { f17 = 5 }\n", 1, 18, "unknown element type 'f17'"),
        ("cores = 1\nscalar_peaks = { f32 = 1.0, f64 = -1.0 }\n", 2, 29, "-1.0 is not a valid number for a device"),
        ("  cores = 1.5\n", 1, 3, "a whole number is expected"),
        (WHOLE.replace("1e12", '"fast"'), 25, 1, "a number is expected"),
        ("[matrix_rates]\nf16 = 5\n", 2, 1, "a rate is {"),
        (WHOLE.replace('cores = "counted"', 'core = "counted"'), 28, 1, "a device has no 'core'"),
        (WHOLE.replace('"counted"', "5"), 28, 1, "a text is expected"),
        (WHOLE.replace('"my data sheet"', "5"), 3, 1, "a text is expected"),
        ("base = 5\n", 1, 1, "the name of a device is expected"),
        ("cores = = 5\n", 1, 9, "Invalid value"),
        ("cores = 5\ncores = 6\n", 2, 10, "Cannot overwrite a value"),
        ('title = "', 1, 10, "Unterminated string at the end"),
        (WHOLE.replace("kind", "calibrated = 1\nkind"), 2, 1, "true or false is expected"),
    ],
)  # fmt: skip
def test_mistakes_in_toml(tmp_path: Path, text: str, line: int, column: int, message: str) -> None:
    """File, line, column, the line itself and a caret."""
    path = _toml(tmp_path, text)
    with pytest.raises(FileError) as caught:
        load_target(path)
    error = caught.value
    assert message in error.message
    assert (error.name, error.line, error.column) == (str(path), line, column)
    assert str(error).startswith(f"{path}:{line}:{column}: error: ")
    assert "^" in error.excerpt


TEXT = """\
# a comment
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 151397597184
  cuda_compute_capability { major: 9 minor: 1 feature_extension: NONE }
  scalar_unit_description {
    rate_infos { key: 11 value { clock_rate_ghz: 1.98 units_per_core: 128 ops_per_clock: 1 } }
  }
  matrix_unit_description {
    rate_infos { key: 10 value < clock_rate_ghz: 1.8 units_per_core: 4 ops_per_clock: 512 > },
    rate_infos { key: 36 value { clock_rate_ghz: 2 units_per_core: 4 } };
  }
  model_str: "sm_9.0a with " '7B RAM, 3750000KHz mem clock, "x"'
  device_interconnect_info { active_links: 18 }
  a_field_of_tomorrow: [1, { deeper: "yes" }]
}
platform_name: "CUDA"
device_description_str: "a \\"card\\""
"""


def _txtpb(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "card.txtpb"
    path.write_text(text)
    return path


def test_xlas_text_form(tmp_path: Path) -> None:
    """Numbers, rates by element type, a clock out of the model's description; the unknown is passed over."""
    path = _txtpb(tmp_path, TEXT)
    device = load_target(path)
    assert (device.name, device.title, device.kind) == ("card", 'a "card"', "cuda")
    assert (device.capability, device.cores, device.clock_ghz) == ((9, 1), 132, 1.98)
    assert device.scalar_rates == {"f32": Rate(1.98, 128, 1)}
    assert device.matrix_rates == {"f16": Rate(1.8, 4, 512), "f6e2m3fn": Rate(2.0, 4, 0)}
    assert (device.memory_clock_ghz, device.interconnect_links) == (3.75, 18)
    assert (device.registers_per_block, device.shared_per_block_optin) == (0, 49152)
    assert (device.grid_limit, device.block_limit) == ((2**31 - 1, 65535, 65535), (0, 0, 0))
    assert (device.l1_per_core, device.dram_transaction, device.core_transaction) == (2048, 64, 32)
    assert device.source("cores") == str(path)
    assert not device.calibrated


def test_an_amd_device(tmp_path: Path) -> None:
    """Without a compute capability; the cost model believes in a larger L1."""
    device = load_target(_txtpb(tmp_path, TEXT.replace('"CUDA"', '"ROCM"')))
    assert (device.kind, device.l1_per_core) == ("rocm", 16384)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "the message gpu_device_info is missing"),
        ("gpu_device_info: 5", 1, 1, "the message gpu_device_info is missing"),
        (TEXT.replace("  core_count: 132\n", ""), 2, 17, "gpu_device_info has no core_count"),
        (TEXT.replace("core_count: 132", "core_count: 1.5"), 8, 15, "core_count is a whole number"),
        (TEXT.replace("core_count: 132", "core_count: many"), 8, 15, "core_count is a whole number"),
        (TEXT.replace("core_count: 132", "core_count { }"), 8, 14, "core_count is a whole number"),
        (TEXT.replace("core_count: 132", "core_count: -1"), 8, 15, "core_count is negative"),
        (TEXT.replace("1.98\n", '"fast"\n', 1), 15, 19, "clock_rate_ghz is a number"),
        (TEXT.replace("core_count: 132", "core_count: 1 core_count: 2"), 8, 29, "core_count is given twice"),
        (TEXT.replace("core_count: 132", "core_count 132"), 8, 14, "':' or '{' is expected, not '132'"),
        (TEXT.replace("core_count: 132", "core_count:"), 9, 16, "the name of a field or '}' is expected, not ':'"),
        (TEXT.replace("core_count: 132", "132"), 8, 3, "the name of a field or '}' is expected, not '132'"),
        (TEXT.replace("core_count: 132", "core_count: 132 ?"), 8, 19, "'?' is not expected here"),
        (TEXT.replace('"CUDA"', '"CUDA'), 29, 16, "a string without an end is not expected here"),
        (TEXT.replace('"CUDA"', '"METAL"'), 1, 1, "devices of platform 'METAL' are not known"),
        (TEXT.replace('"CUDA"', "5"), 29, 16, "platform_name is a text"),
        (TEXT.replace("key: 11", ""), 19, 16, "unknown element type None"),
        (TEXT.replace("key: 11", "key: 99"), 19, 16, "unknown element type 99"),
        (TEXT.replace("cuda_compute_capability { major: 9 minor: 1 feature_extension: NONE }", "cuda_compute_capability: 9"), 17, 28, "cuda_compute_capability is a message"),
        (TEXT.replace("tomorrow: [1,", "tomorrow: [1"), 27, 27, "',' or ']' is expected, not '{'"),
        ("gpu_device_info {", 1, 18, "the name of a field or '}' is expected, not the end of the text"),
        ("a { b: 1 >", 1, 10, "the name of a field or '}' is expected, not '>'"),
        ("a " + "{ a " * 60, 1, 203, "messages are nested too deep"),
    ],
)  # fmt: skip
def test_mistakes_in_the_text_form(
    tmp_path: Path, text: str, line: int, column: int, message: str
) -> None:
    """File, line, column, the line itself and a caret."""
    path = _txtpb(tmp_path, text)
    with pytest.raises(FileError) as caught:
        load_target(path)
    error = caught.value
    assert error.message.startswith(message)
    assert (error.name, error.line, error.column) == (str(path), line, column)


def test_the_text_format_itself() -> None:
    """Numbers of all bases, strings that stand side by side, repeated fields, lists, no separators needed."""
    read = read_textproto(
        Source('a: 0x10 a: -3 b: 2.5e3f c: .5 d: \'x\' "y\\"" e: [1, 2] f { g: on } f: < g: [] >')
    )
    values = {
        name: [entry.value if isinstance(entry, ScalarField) else entry for entry in entries]
        for name, entries in read.fields.items()
    }
    assert values["a"] == [16, -3]
    assert (values["b"], values["c"], values["d"]) == ([2500.0], [0.5], ['xy"'])
    assert values["e"] == [1, 2]
    first, second = values["f"]
    assert isinstance(first, Message)
    assert first.fields["g"][0] == ScalarField("on", 60)
    assert isinstance(second, Message)
    assert second.fields["g"] == []


def test_escapes_in_strings_name_bytes() -> None:
    """Octal and hexadecimal ones together make characters; a quote or backslash stands for itself."""
    read = read_textproto(Source(r"""a: "1\n\t\"\'\\\303\244\xe2\x82\xac" """))
    assert read.fields["a"] == [ScalarField("1\n\t\"'\\ä€", 3)]


def test_bytes_that_are_no_text() -> None:
    """Escapes that make no UTF-8 are a mistake of the string."""
    with pytest.raises(FileError, match="the text is not UTF-8") as caught:
        read_textproto(Source('x: 1\na: "\\377"'))
    assert (caught.value.line, caught.value.column) == (2, 4)
