"""XLA reads from the printed text the very values hloopt prints: bit by bit, byte by byte, whatever the options."""

from __future__ import annotations

import json
import subprocess
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.ir import build, edit
from hloopt.proto import read_proto
from hloopt.text.printer import print_instruction
from hloopt.types import DTYPES, DType, Literal, Text, array
from tests.campaigns.campaign_modules import OPCODES, campaign_module
from tests.helpers.respell import respell
from tests.oracle.oracle import ask, available, python

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not available(), reason="no jaxlib: install the extra xla"),
    pytest.mark.timeout(600),
]

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "samples").glob("*.hlo"))
TO_PROTO = (
    "import sys, pathlib, jaxlib._hlo as hlo\n"
    "for path in map(pathlib.Path, sys.argv[1:]):\n"
    "    module = hlo.hlo_module_from_text(path.read_text())\n"
    "    path.with_suffix('.pb').write_bytes(module.as_serialized_hlo_module_proto())\n"
)


def as_xla_reads_it(text: str, folder: Path) -> tuple[hloopt.Module, bytes]:
    """What XLA makes of a text, by way of its serialized module."""
    path = folder / "m.hlo"
    path.write_text(text)
    subprocess.run([python(), "-c", TO_PROTO, str(path)], check=True, capture_output=True)
    content = path.with_suffix(".pb").read_bytes()
    return read_proto(content, "m"), content


def all_or_many(row: DType) -> np.ndarray[Any, Any]:
    """Every value of a type of up to 16 bits; of others random bits and what is special."""
    if row.is_pred:
        return np.array([True, False])
    size = row.numpy.itemsize
    if row.bits <= 16:
        bits = np.arange(1 << row.bits, dtype=np.uint8 if size == 1 else np.uint16)
        return bits.view(row.numpy)
    unsigned = np.dtype(np.uint32 if size == 4 else np.uint64)
    most = int(np.iinfo(unsigned).max)
    random = np.random.default_rng(0).integers(0, most, 2000, dtype=unsigned, endpoint=True)
    exponent = 0x7F800000 if size == 4 else 0x7FF0000000000000
    sign = (most >> 1) + 1
    special = [0, 1, most, sign, exponent, exponent | sign, exponent | 1, exponent | sign | 5]
    return np.concatenate([random, np.array(special, unsigned)]).view(row.numpy)


def test_xla_keeps_the_lines_of_what_was_merged(tmp_path: Path) -> None:
    """The list in ``source_file``, beside a stack frame as well."""
    module = hloopt.parse(
        'HloModule m\n\nFileNames\n1 "a.py"\n\nFunctionNames\n1 "f"\n\nFileLocations\n'
        "1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=9}\n\nStackFrames\n"
        "1 {file_location_id=1 parent_frame_id=1}\n\n"
        "ENTRY e { x = f32[] parameter(0)\n"
        "a = f32[] negate(x), metadata={stack_frame_id=1}\n"
        'b = f32[] negate(x), metadata={source_file="b,c.py" source_line=5}\n'
        "ROOT c = f32[] add(a, b) }"
    )
    better = hloopt.optimize(module, pipeline="cse")
    read, _ = as_xla_reads_it(better.to_text(), tmp_path)
    for one in (better, read):
        assert one.user_lines(one.entry.by_name["a"].metadata) == ("a.py:3", "b,c.py:5")


# XLA serialises no literals of the six-bit types, and drops the payload of a NaN in a complex number.
@pytest.mark.parametrize(
    "name",
    [name for name, row in DTYPES.items() if row.is_array and row.bits != 6 and not row.is_complex],
)
def test_xla_reads_every_value(name: str, tmp_path: Path) -> None:
    """All values of narrow types, many of wide ones: signs of zeros and NaNs, payloads, subnormals."""
    values = all_or_many(DTYPES[name])
    literal = Literal(array(name, values.shape), values.copy())
    module = hloopt.parse("e { x = f32[] parameter(0) }")
    build.constant(module.entry, literal, "values")
    read, _ = as_xla_reads_it(module.to_text(), tmp_path)
    assert read.entry.by_name["values"].literal == literal


def test_xla_reads_complex_numbers(tmp_path: Path) -> None:
    """Signs of zeros and infinities in either part."""
    parts = [0.0, -0.0, 1.5, -np.inf, np.inf, 1e-40]
    values = np.array([complex(*pair) for pair in product(parts, parts)], np.complex64)
    literal = Literal(array("c64", values.shape), values)
    module = hloopt.parse("e { x = f32[] parameter(0) }")
    build.constant(module.entry, literal, "values")
    read, _ = as_xla_reads_it(module.to_text(), tmp_path)
    assert read.entry.by_name["values"].literal == literal


@pytest.mark.parametrize(
    "value",
    [
        bytes(range(1, 256)).decode("utf-8", "surrogateescape"),
        "a\x001 \x011",
        "'\"\\?%{}()/* */ //",
        "grüße 你好 😀",
        "x" * 100_000,
    ],
    ids=["bytes", "octal", "marks", "unicode", "long"],
)
def test_xla_reads_every_byte_of_a_string(value: str, tmp_path: Path) -> None:
    """Control characters, quotes, bytes beyond ASCII, digits after an escape, long lines."""
    module = hloopt.parse('e { ROOT p = f32[] custom-call(), custom_call_target="x" }')
    edit.set_attribute(module.entry.root, "custom_call_target", Text(value))
    _, content = as_xla_reads_it(module.to_text(), tmp_path)
    assert value.encode("utf-8", "surrogateescape") in content


@pytest.mark.parametrize(
    "line",
    [
        r'custom-call(), custom_call_target="foo\"bar", literal=( s32[2]{0} {1, 2}, ( pred[] true ), () )',
        r'custom-call(), custom_call_target="t", backend_config={"a": "\7F\A4"}',
        r'custom-call(), custom_call_target="t", frontend_attributes={a={b="\7F\A4"}}',
        "constant(0.65)",
    ],
)
def test_xla_reads_what_few_programs_have(line: str, tmp_path: Path) -> None:
    """Literals of custom calls, strings of JSON, one number for many elements: as they were meant."""
    module = hloopt.parse(f"HloModule m\nENTRY e {{ ROOT r = f32[32,197,30]{{2,1,0}} {line} }}")
    read, _ = as_xla_reads_it(module.to_text(), tmp_path)
    assert print_instruction(read.entry.root) == print_instruction(module.entry.root)


def test_xla_reads_other_spellings(tmp_path: Path) -> None:
    """Of every sample and of modules with every opcode: what ``respell`` writes is HLO to XLA, too."""
    texts = [sample.read_text() for sample in SAMPLES]
    texts += [campaign_module(Random(at), opcode, 2) for at, opcode in enumerate(OPCODES)]
    paths = []
    for seed, text in enumerate(texts):
        paths.append(tmp_path / f"{seed}.hlo")
        paths[-1].write_text(respell(hloopt.parse(text), Random(seed)))
    answers = [json.loads(line) for line in ask("accepts", *map(str, paths)).splitlines()]
    assert {path.name: said for path, said in zip(paths, answers, strict=True) if said} == {}


def test_xla_reads_what_any_options_print(tmp_path: Path) -> None:
    """Canonical, without layouts, without metadata: every sample."""
    paths = []
    for sample in SAMPLES:
        module = hloopt.parse(sample.read_text(), sample.name)
        for index, options in enumerate(
            ({"canonical": True}, {"layouts": False}, {"metadata": False})
        ):
            paths.append(tmp_path / f"{sample.stem}.{index}.hlo")
            paths[-1].write_text(module.to_text(**options))
    answers = [json.loads(line) for line in ask("accepts", *map(str, paths)).splitlines()]
    assert {path.name: said for path, said in zip(paths, answers, strict=True) if said} == {}
