"""Attention in plain HLO: which kernels it becomes, that no bit changes, and what is refused for which reason."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.analysis.backend_config import custom_name
from hloopt.cost_models.attention import attention_run_time
from hloopt.cost_models.device_times import DeviceTimes
from hloopt.fusion.history import FusionPlan
from hloopt.ir import Instruction, Module
from hloopt.kernels.attention_recognition import AttentionRecognition
from hloopt.runtime.inputs import generate
from hloopt.targets import find_target
from tests.helpers.attention_text import AttentionText
from tests.helpers.support import invoke

PLAIN = AttentionText()
LARGE = AttentionText(64, 2048, 2048, 128, 128)


def fused(text: str, **options: bool | str) -> tuple[Module, FusionPlan]:
    """The module after the pass and dce, and what was decided."""
    module = hloopt.parse(text)
    plan = AttentionRecognition(**options).fuse(module)  # type: ignore[arg-type]
    hloopt.verify(module)
    return hloopt.optimize(module, "dce"), plan


def kernels(module: Module) -> list[Instruction]:
    return [one for one in module.entry if custom_name(one) == "attention"]


def reasons(plan: FusionPlan) -> str:
    return " ".join(str(one.decision) for one in plan.refusals)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("mask", ["none", "causal", "given", "bias"])
def test_no_bit_changes(mask: str, gradient: bool) -> None:
    """The bodies are what stood there; of a gradient scores are computed again in each of three kernels."""
    text = replace(PLAIN, mask=mask).text(gradient=gradient)
    module, _ = fused(text, always=True)
    assert len(kernels(module)) == (3 if gradient else 1)
    assert not any(one.opcode in ("dot", "reduce", "exponential") for one in module.entry)
    before = hloopt.parse(text)
    given = generate(before, 1)
    for one, other in zip(
        hloopt.evaluate(before, given), hloopt.evaluate(module, given), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_what_nothing_reads_is_not_computed() -> None:
    """A reduction of scores that is left over, with what is computed from it, is part of no kernel."""
    text = PLAIN.text()
    reduce = re.search(r"(\w+) = (\w+\[[^ ]*) reduce\(.*", text)
    assert reduce is not None
    again, name, shape = reduce[0].replace("ROOT ", ""), reduce[1], reduce[2]
    left = f"{again.replace(name, 'left', 1)}\n  over = {shape} negate(left)\n  {reduce[0]}"
    module, _ = fused(text.replace(reduce[0], left), always=True)
    assert len(kernels(module)) == 1


def test_what_kernels_hand_on() -> None:
    """Greatest scores and sums go from the first kernel to both others, and a sum of the second to the third."""
    module, _ = fused(PLAIN.text(gradient=True), always=True)
    first, second, third = kernels(module)
    elements = [one for one in first.users if one.opcode == "get-tuple-element"]
    handed = [one for one in elements if {*one.users} >= {second, third}]
    assert [one.array.dims for one in handed] == [(2, 32), (2, 32)]
    assert any(third in one.users for one in second.users)


def test_the_model_decides() -> None:
    """Long rows in bf16 are worth it; on a device without matrix units for bf16 they are not."""
    module, plan = fused(LARGE.text(), target="h200")
    assert len(kernels(module)) == 1
    (gain,) = {step.comparison for step in plan.steps}
    assert gain is not None
    assert gain.gain_us > 0
    module, plan = fused(LARGE.text(), target="t4")
    assert not kernels(module)
    assert "without writing scores it would take" in reasons(plan)
    assert not kernels(fused(LARGE.text(), target="host")[0])


def test_memory_is_that_of_operands_and_result() -> None:
    """What is priced moves no scores; the keys and values that blocks read again come out of a cache."""
    module, _ = fused(LARGE.text(), target="h200")
    (kernel,) = kernels(module)
    time = attention_run_time(kernel, DeviceTimes(find_target("h200")))
    assert time is not None
    assert time.bytes_written == 64 * 2048 * 128 * 2
    assert time.write_ns + time.read_ns < time.compute_ns
    # Half of the tiles, and those on the diagonal.
    flops = 4 * 64 * 2048 * 2048 * 128 * 17 / 32
    assert flops / 0.44e15 * 1e9 < time.exec_ns < 3 * flops / 0.44e15 * 1e9


def test_weights_that_are_read() -> None:
    """Where the weights are a result they must be written."""
    text = PLAIN.text().replace(
        "\n}\n", "\n  ROOT both = (bf16[2,32,16], bf16[2,32,32]) tuple(o, weights)\n}\n"
    )
    module, plan = fused(text, always=True)
    assert not kernels(module)
    assert "weights is read: it must be written" in reasons(plan)


def test_operands_that_follow_the_result() -> None:
    """Values that are computed from greatest scores cannot be read by the kernel that finds these."""
    text = PLAIN.text()
    text = text.replace(
        "lb = f32[2,32,32] broadcast(l)",
        "total = f32[] reduce(m, zero), dimensions={0,1}, to_apply=sum_f32\n"
        "  narrow = bf16[] convert(total)\n  many = bf16[2,32,16] broadcast(narrow), dimensions={}\n"
        "  moved = bf16[2,32,16] reverse(many), dimensions={0}\n"
        "  values = bf16[2,32,16] add(v, moved)\n  lb = f32[2,32,32] broadcast(l)",
    ).replace("dot(weights, v)", "dot(weights, values)")
    module, plan = fused(text, always=True)
    assert not kernels(module)
    assert "computed from its own results" in reasons(plan)


@pytest.mark.parametrize(
    "form",
    [
        replace(PLAIN, wide=32, late=True),
        replace(PLAIN, wide=32, turned=True),
        replace(PLAIN, wide=32, late=True, turned=True),
    ],
)
def test_values_as_wide_as_scores(form: AttentionText) -> None:
    """A context with as many elements as there are scores: what is computed from it is none of these."""
    module, plan = fused(form.text(), always=True)
    assert len(kernels(module)) == 1, reasons(plan)
    assert not any(one.opcode in ("dot", "divide", "transpose") for one in module.entry)
    before = hloopt.parse(form.text())
    given = generate(before, 1)
    (want,), (got,) = hloopt.evaluate(before, given), hloopt.evaluate(module, given)
    np.testing.assert_array_equal(want, got)


@pytest.mark.parametrize("op", ["raw", "o"])
def test_products_that_wait(op: str) -> None:
    """A product with a control edge stays where it is."""
    text = re.sub(rf"( {op} = .*)", r"\1, control-predecessors={v}", PLAIN.text())
    module, _ = fused(text, always=True)
    assert not kernels(module)
    assert any(one.has_control_edges and one.opcode == "dot" for one in module.entry)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "m = f32[2,32] reduce(x, least), dimensions={2}",
            (
                "other = f32[2,32,32] reverse(x), dimensions={1}\n"
                "  x2 = f32[2,32,32] add(x, other)\n  m = f32[2,32] reduce(x2, least), dimensions={2}"
            ),
            "x is read: it must be written",
        ),
        (
            "l = f32[2,32] reduce(wide_e, zero), dimensions={2}",
            "l = f32[2,32] reduce(wide_e, zero), dimensions={1}",
            "two dimensions of raw are one axis",
        ),
        (
            "o = bf16[2,32,16] dot(weights, v)",
            (
                "turned = bf16[2,32,32] transpose(weights), dimensions={0,2,1}\n"
                "  twice = bf16[2,32,32] add(turned, weights)\n  o = bf16[2,32,16] dot(twice, v)"
            ),
            "two dimensions of raw are one axis",
        ),
    ],
)
def test_what_breaks_the_pattern(old: str, new: str, words: str) -> None:
    """The refusal names the instruction, or what is wrong with it."""
    text = PLAIN.text()
    assert old in text
    module, plan = fused(text.replace(old, new), always=True)
    assert not kernels(module)
    assert re.search(words, reasons(plan)), reasons(plan)


def test_two_layers() -> None:
    """Each has its own kernel, the second one reads what the first writes."""
    regions, first = PLAIN.text().rsplit("\n}\n", 1)[0].split("ENTRY main {\n")
    names = re.findall(r"^ *(\w+) = ", first, re.MULTILINE)
    second = re.sub(rf"\b({'|'.join(names)})\b", r"\g<1>_2", first)
    for name, number, source in (("q", 0, "o"), ("k", 1, "k"), ("v", 2, "v")):
        second = second.replace(
            f"{name}_2 = bf16[2,32,16] parameter({number})",
            f"{name}_2 = bf16[2,32,16] copy({source})",
        )
    module, _ = fused(f"{regions}ENTRY main {{\n{first}\n{second}\n}}\n", always=True)
    one, other = kernels(module)
    assert one in other.operands or any(one in part.operands for part in other.operands)


@pytest.mark.parametrize("command", ["optimize", "kernels"])
def test_lock_files(tmp_path: Path, command: str) -> None:
    """A module that is nothing but attention has nothing in its lock file, which gives it again."""
    source, lock = tmp_path / "a.hlo", tmp_path / "a.lock"
    source.write_text(PLAIN.text(), encoding="utf-8")
    words = (command, "-O3", str(source))
    first = invoke(*words, "--write-lock", str(lock))
    assert first.exit_code == 0, first.stderr
    assert "attention" in first.stdout
    again = invoke(*words, "--lock", str(lock), "--frozen")
    assert again.exit_code == 0, again.stderr
    assert again.stdout == first.stdout
