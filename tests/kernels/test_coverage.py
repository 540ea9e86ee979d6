"""``hloopt ops --device gpu``: every opcode and type the interpreter evaluates has a kernel, or a reason."""

from __future__ import annotations

import json

import pytest

import hloopt
from hloopt.kernels import registry
from hloopt.kernels.examples import NO_KERNEL, WITHOUT, example_text, opcodes
from hloopt.kernels.kernel import NO, YES
from hloopt.ops import OPS
from hloopt.report.coverage import coverage
from hloopt.targets import find_target
from hloopt.targets.target import HOST
from hloopt.types import DTYPES
from tests.helpers.support import invoke
from tests.kernels.selecting import made_up

TARGET = find_target("h200")


def test_every_opcode_is_asked_about_or_has_a_reason() -> None:
    """None twice, none left out."""
    groups = [set(opcodes()), set(NO_KERNEL), set(WITHOUT)]
    assert set.union(*groups) == set(OPS)
    assert sum(map(len, groups)) == len(OPS)


@pytest.mark.parametrize("opcode", opcodes())
def test_every_example_is_valid_for_some_type(opcode: str) -> None:
    """It verifies, and its entry holds the op under the name that is asked about."""
    found = []
    for dtype in DTYPES.values():
        if dtype.is_array:
            try:
                module = hloopt.parse(example_text(opcode, [dtype]))
                hloopt.verify(module)
            except (hloopt.ParseError, hloopt.VerifyError, hloopt.ShapeError):
                continue
            assert module.entry.by_name[f"{dtype.name}_r"].opcode == opcode
            found.append(dtype)
    assert found


def test_a_row_has_kernels_types_and_what_it_becomes() -> None:
    """Elementwise ops have a kernel for all their types; a reduction several; a norm becomes others."""
    rows = {
        row.opcode: row
        for row in coverage(TARGET, ("add", "reduce", "batch-norm-inference", "tuple"))
    }
    assert list(rows) == ["add", "batch-norm-inference", "reduce", "tuple"]
    assert len(rows["add"].dtypes) == 30
    assert rows["add"].kernels == ("loop",)
    assert rows["add"].is_whole
    assert {"row-reduction", "loop"} <= set(rows["reduce"].kernels)
    assert rows["batch-norm-inference"].becomes.startswith("becomes ")
    assert rows["tuple"].becomes == "another name for memory that is there"


def test_types_without_a_kernel_tell_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason of the kernel that takes the other types, and not of those that take none."""

    def no_bytes(site: object) -> object:
        dtype = site.region.results[0].shape.dtype  # type: ignore[attr-defined]
        return NO("it is too narrow") if dtype.bits < 8 else YES()

    kernels = (
        made_up("wide", no_bytes, lambda _: YES()),  # type: ignore[arg-type]
        made_up("never", lambda _: NO("never"), lambda _: YES()),
    )
    monkeypatch.setattr(registry, "_own", lambda: kernels)
    monkeypatch.setattr("hloopt.report.coverage.render", lambda *_: "")
    (row,) = coverage(TARGET, ("negate",))
    assert row.kernels == ("wide",)
    assert dict(row.without) == dict.fromkeys(
        ("s1", "s2", "s4", "u1", "u2", "u4", "f4e2m1fn"), "it is too narrow"
    )
    assert "f32" in row.dtypes
    assert not row.is_whole
    monkeypatch.setattr(registry, "_own", lambda: kernels[1:])
    (row,) = coverage(TARGET, ("negate",))
    assert not row.kernels
    assert {reason for _, reason in row.without} == {"never"}


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table, or JSON; --unsupported leaves out what is whole."""
    rows = coverage(TARGET, ("add", "tuple", "infeed"))
    monkeypatch.setattr("hloopt.cli.actions.ops.coverage", lambda *_: rows)
    lines = invoke("ops", "--device", "gpu").stdout.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["opcode", "add", "infeed", "tuple"]
    assert lines[-1].startswith("no kernel takes f6e2m3fn: elements of f6e2m3fn have 6 bits")
    found = json.loads(invoke("ops", "--device", "gpu", "--unsupported", "--json").stdout)["ops"]
    assert [row["opcode"] for row in found] == ["infeed"]
    assert found[0]["reason"] == "communicates with the host"
    assert invoke("ops", "--device", "gpu", "--target", "h20").exit_code == 2


def test_of_some_opcodes() -> None:
    """Those named are listed, and no others are asked for; a name that is none is refused."""
    for options in ((), ("--device", "native")):
        found = json.loads(invoke("ops", "sort", "add", *options, "--json").stdout)["ops"]
        assert [row["opcode"] for row in found] == ["add", "sort"]
    refused = invoke("ops", "sorted")
    assert refused.exit_code == 2
    assert "there is no opcode 'sorted'; did you mean 'sort'?" in refused.stderr


def test_the_native_device() -> None:
    """Loops where one computes it, calls for the rest, several participants nowhere."""
    rows = {row.opcode: row for row in coverage(HOST, ("add", "sort", "infeed", "all-reduce"))}
    assert rows["add"].kernels == ("native-call", "native-loop")
    assert rows["sort"].kernels == ("native-sort", "native-call")
    assert rows["infeed"].kernels == ("native-call",)
    assert "one device" in rows["all-reduce"].reason or "several" in rows["all-reduce"].reason
    assert len(rows["add"].dtypes) > 25
