"""``hloopt explain --xla-dump``: what XLA's own dump tells about its fusions."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.support import invoke

DUMP = Path(__file__).parents[2] / "samples" / "xla_dump"
LOG = next(DUMP.glob("*priority_fusion_dump.txt"))
AFTER = next(DUMP.glob("*after_optimizations.txt"))


def facts(*words: str) -> dict[str, Any]:
    result = invoke("explain", "--xla-dump", *words, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)["xla"]
    return found


def told(*words: str) -> str:
    result = invoke("explain", "--xla-dump", *words, columns=160)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_two_in_one_kernel_since_when_and_for_what_gain() -> None:
    """The step that brought them together, its place in the log, and the price XLA saw before it."""
    found = facts(str(DUMP), "%exp.4.0", "reduce_sum.29.0")
    assert [kernel["name"] for kernel in found["together"]] == ["fusion.23"]
    assert found["together"][0]["after"] == ["input_reduce_fusion"]
    assert found["together"][0]["line"].endswith("make_dumps.py:433")
    joined, price = found["joined"], found["price"]
    assert (joined["step"], joined["producer"], joined["consumers"], joined["fusion"]) == (
        229, "fusion.11", ["reduce_sum.29.0"], "fusion.23",
    )  # fmt: skip
    assert joined["place"] == f"{LOG}:1762:10"
    # The log has only the change at step 224; the whole was priced before.
    assert (price["step"], price["unfused_us"]) == (224, None)
    assert price["gain_us"] == pytest.approx(0.89975)
    assert found["ours"]["reasons"] == []
    assert len(found["ours"]["together"]) == 1
    assert "that saves 0.900 us (XLA's model, step 224)" in told(
        str(DUMP), "exp.4.0", "reduce_sum.29.0"
    )


def test_two_in_different_kernels_with_xlas_last_word() -> None:
    """The refusal between them, in XLA's words and with our code."""
    found = facts(str(DUMP), "exp.4.0", "scatter-add.1.0")
    assert found["together"] == []
    assert [kernel["name"] for kernel in found["path"]] == ["fusion.13", "fusion.4"]
    (border,) = found["borders"]
    assert border["bytes"] == 48 * 100 * 4
    assert border["last"]["words"] == "do not fuse into the in-place operand of scatter"
    assert border["last"]["code"] == "scatter-in-place-operand"
    # A launch, and the result written and read once.
    assert border["at_most_seconds"] == pytest.approx(1e-6 + 2 * 19200 / 4.8e12)
    assert "[scatter-in-place-operand]" in told(str(DUMP), "exp.4.0", "scatter-add.1.0")
    ours = found["ours"]
    assert ours["together"] == []
    assert [row["code"] for row in ours["reasons"]] == ["scatter-in-place-operand"]


def test_kernels_that_later_passes_have_changed_are_found_by_name(tmp_path: Path) -> None:
    """No value of the kernel is what it was, but its last instruction is still called so."""
    shutil.copy(LOG, tmp_path)
    text = AFTER.read_text()
    assert " exponential(" in text
    (tmp_path / AFTER.name).write_text(text.replace(" exponential(", " sine("))
    found = facts(str(tmp_path), "exp.4.0", "scatter-add.1.0")
    assert [kernel["after"] for kernel in found["path"]] == [
        ["loop_multiply_fusion"], ["input_scatter_fusion"],
    ]  # fmt: skip


def test_the_other_way_round_and_not_at_all() -> None:
    """Asked backwards, it says so; what does not depend on each other has nothing to fuse."""
    backwards = told(str(DUMP), "scatter-add.1.0", "abs.2.0")
    assert "%scatter-add.1.0 needs the result of %abs.2.0, not the other way round" in backwards
    apart = told(str(DUMP), "scatter-add.1.0", "multiply.1")
    assert "neither needs the other's result" in apart


def test_what_a_later_pass_joined_is_told() -> None:
    """Priority fusion left the two apart, multi-output fusion did not: the log cannot say why."""
    found = facts(str(DUMP), "reduce_sum.31.0", "add.12.0")
    assert found["together"] == []
    assert len(found["joined_later"]) == 1
    assert "and keeps no log" in told(str(DUMP), "reduce_sum.31.0", "add.12.0")


def test_one_instruction_has_its_history() -> None:
    """Every step that names it or the kernels it is in, in order."""
    found = facts(str(DUMP), "sub.10.0")
    assert [kernel["name"] for kernel in found["kernels"]] == ["fusion.23", "fusion.13"]
    steps = found["steps"]
    assert [step["step"] for step in steps] == sorted(step["step"] for step in steps)
    assert next((step["step"], step["fusion"]) for step in steps if step["action"] == "fused") == (
        74, "fusion.11",
    )  # fmt: skip
    first = next(step for step in steps if step["step"] == 39)
    assert (first["unfused_us"], first["fused_us"]) == (2.04025, 1.0225)
    assert "saves 1.018 us: 2.040 us apart, 1.022 us fused" in told(str(DUMP), "sub.10.0")


def test_the_whole() -> None:
    """Counts, reasons, the most costly refusals, and what hloopt would do otherwise."""
    found = facts(str(DUMP))
    assert (found["kernels_before"], found["kernels_fused"], found["kernels_after"]) == (44, 8, 7)
    assert found["steps"] == {"refused": 49, "priced": 133, "fused": 54}
    assert {row["code"]: row["count"] for row in found["reasons"]} == {
        "loses-reduction-kernel": 3, "scatter-in-place-operand": 1, "consumer-not-fusible": 1,
    }  # fmt: skip
    assert len(found["refusals"]) == 5
    costs = [row["at_most_seconds"] for row in found["refusals"]]
    assert costs == sorted(costs, reverse=True)
    assert found["target"] == "h200"
    ours = found["ours"]
    assert ours["xla_kernels"] == 8
    assert ours["differences"] == len(ours["largest"])
    text = told(str(DUMP))
    assert "44 kernels before fusion, 8 after priority fusion, 7 in the end" in text
    assert "hloopt's priority-fusion makes" in text


def test_where_we_decide_otherwise_the_gain_is_told(tmp_path: Path) -> None:
    """A log in which XLA fused nothing: our kernels stand beside its own, with the times of one model."""
    text = LOG.read_text()
    lines = text.splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if line.startswith("fusion_steps"))
    rest = "".join(lines[last:])
    kept = tmp_path / "module_0001.m.priority_fusion_dump.txt"
    kept.write_text(rest[rest.index("}\n}\n") + 4 :])
    ours = facts(str(kept))["ours"]
    assert (ours["xla_kernels"], ours["our_kernels"]) == (44, 8)
    assert sum(row["gain_seconds"] for row in ours["largest"]) > 25e-6
    assert ours["xla_seconds"] - ours["our_seconds"] > 30e-6
    shown = told(str(kept))
    assert "hloopt's priority-fusion makes 8 kernels" in shown
    pair = facts(str(kept), "sub.10.0", "exp.4.0")
    assert pair["path"][0]["name"] == "sub.10.0"
    assert pair["borders"][0]["last"] is None
    assert len(pair["ours"]["together"]) == 2
    assert pair["ours"]["gain_seconds"] > 1e-6
    assert "; its kernels save" in told(str(kept), "sub.10.0", "exp.4.0")


def test_without_a_log_it_says_what_cannot_be_known() -> None:
    """The module alone tells who is with whom, and how to get the rest."""
    found = facts(str(AFTER), "loop_multiply_fusion", "scatter-add.1.1")
    assert not found["known"]
    assert [kernel["name"] for kernel in found["path"]] == [
        "loop_multiply_fusion", "input_scatter_fusion",
    ]  # fmt: skip
    text = told(str(AFTER), "exp.4.5", "mul.1.1")
    assert "%exp.4.5 and %mul.1.1 are in one kernel: %loop_multiply_fusion" in text
    assert "--xla_dump_hlo_pass_re=priority-fusion" in text
    assert facts(str(AFTER))["kernels_after"] == 7
    assert "7 kernels, predicted to take 7.98 us on NVIDIA H200" in told(str(AFTER))


def test_a_compressed_log_and_a_log_alone(tmp_path: Path) -> None:
    """A log is read where it lies, gzipped or not; without the module in the end there are no names of it."""
    packed = tmp_path / f"{LOG.name}.gz"
    packed.write_bytes(gzip.compress(LOG.read_bytes()))
    found = facts(str(packed), "exp.4.0", "reduce_sum.29.0")
    assert [kernel["after"] for kernel in found["together"]] == [[]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("exp.4",), "have no instruction 'exp.4'; did you mean 'exp.4.0'?"),
        (("exp.4.0", "nothing.at.all"), "have no instruction 'nothing.at.all'"),
        (("a_0_.1", "exp.4.0"), "'a_0_.1' is computed by no kernel: it is a parameter"),
        (("a", "b", "c"), "--xla-dump explains one instruction or two, not 3"),
    ],
)
def test_names_nobody_knows(words: tuple[str, ...], message: str) -> None:
    """A usage error with the nearest names."""
    result = invoke("explain", "--xla-dump", str(DUMP), *words)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize("option", ["-O3", "--stage=after", "--disable=cse", "--kernel=a=loop"])
def test_options_about_what_hloopt_does_are_refused(option: str) -> None:
    """Nothing is ignored in silence."""
    result = invoke("explain", "--xla-dump", str(DUMP), option)
    assert result.exit_code == 2
    assert "has no meaning with --xla-dump" in result.stderr


def test_a_target_of_ones_own_takes_the_place_of_the_logs() -> None:
    """The costs are those of the device asked for; XLA's words stay."""
    found = facts(str(DUMP), "exp.4.0", "scatter-add.1.0", "--target", "a6000")
    (border,) = found["borders"]
    assert border["at_most_seconds"] == pytest.approx(1e-6 + 2 * 19200 / 768.096e9)
    assert found["target"] == "a6000"


def test_no_dump(tmp_path: Path) -> None:
    """A missing path, an empty folder, several modules, a damaged log, a log without its module."""
    missing = invoke("explain", "--xla-dump", str(tmp_path / "none"))
    assert (missing.exit_code, "no such file or directory" in missing.stderr) == (2, True)
    empty = invoke("explain", "--xla-dump", str(tmp_path))
    assert (empty.exit_code, "no priority_fusion_dump.txt in it" in empty.stderr) == (2, True)
    for number in (1, 2):
        shutil.copy(LOG, tmp_path / f"module_000{number}.f{number}.priority_fusion_dump.txt")
    several = invoke("explain", "--xla-dump", str(tmp_path))
    assert (several.exit_code, "module_0002.f2" in several.stderr) == (2, True)
    assert facts(str(tmp_path), "--module", "f2")["kernels_fused"] == 8
    torn = tmp_path / "x.priority_fusion_dump.txt"
    torn.write_text("fusion_steps {\n  fusion {\n")
    damaged = invoke("explain", "--xla-dump", str(torn))
    assert damaged.exit_code == 2
    assert damaged.stderr.startswith(f"{torn}:")
    torn.write_text(LOG.read_text().partition("hlo_module_before_fusion")[0])
    bare = invoke("explain", "--xla-dump", str(torn))
    assert (bare.exit_code, "the log has no module before fusion" in bare.stderr) == (2, True)


CPU = """HloModule jit_f, is_scheduled=true

body { p = f32[64] parameter(0) n = f32[64] negate(p) ROOT e = f32[64] exponential(n) }

ENTRY main {
  x = f32[64] parameter(0)
  ROOT f = f32[64] fusion(x), kind=kLoop, calls=body, backend_config={"outer_dimension_partitions":["2"]}
}
"""


@pytest.mark.parametrize("name", ["module_0001.jit_f.cpu_after_optimizations.txt", "mine.hlo"])
def test_a_module_of_the_cpu_compiler_has_no_log_to_ask_for(tmp_path: Path, name: str) -> None:
    """It says what such a dump tells, and prices no kernel of a processor on a GPU."""
    path = tmp_path / name
    path.write_text(
        CPU if name == "mine.hlo" else CPU.split(", backend_config", maxsplit=1)[0] + "\n}\n"
    )
    for words in ([], ["e"], ["n", "e"]):
        text = told(str(path), *words)
        assert "CPU compiler fuses by fixed rules" in text
        assert "priority" not in text
        assert "H200" not in text
    assert facts(str(path))["seconds"] is None
    assert "%n and %e are in one kernel: %f" in told(str(path), "n", "e")


def test_a_module_of_the_gpu_compiler_has_a_log_somewhere() -> None:
    """Without it the words name the option that writes it."""
    assert "priority_fusion_dump.txt" in told(str(AFTER))
    assert "CPU" not in told(str(AFTER))
