"""Leave to round factors: which dots take it, what kernels, prices and verdicts make of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import model_for
from hloopt.errors import UsageError
from hloopt.kernels.backend_config import KernelConfig
from hloopt.kernels.costs import kernel_costs
from hloopt.passes.dots.precision import DotPrecision
from hloopt.targets import find_target
from tests.helpers.support import invoke
from tests.passes.proof import check

MODULE = """HloModule products

ENTRY main {
  x = f32[48,64] parameter(0)
  w = f32[64,40] parameter(1)
  b = bf16[64,40] parameter(2)
  plain = f32[48,40] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  high = f32[48,40] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={high,high}
  highest = f32[48,40] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={default,highest}
  named = f32[48,40] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, algorithm=dot_f32_f32_f32
  mixed = f32[48,40] dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT all = (f32[48,40], f32[48,40], f32[48,40], f32[48,40], f32[48,40]) tuple(plain, high, highest, named, mixed)
}
"""

LARGE = """HloModule large

ENTRY main {
  x = f32[4096,4096] parameter(0)
  ROOT y = f32[4096,4096] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}%s
}
"""


@pytest.mark.parametrize(
    ("precision", "algorithm"),
    [("tf32", "dot_tf32_tf32_f32"), ("bf16x3", "dot_bf16_bf16_f32_x3")],
)
def test_dots_of_f32_that_say_nothing(precision: str, algorithm: str) -> None:
    """Not those that ask for more, name an algorithm or multiply other types; no bit of the text's results moves."""
    check(MODULE, DotPrecision(precision))
    made = hloopt.optimize(hloopt.parse(MODULE), f"dot-precision{{precision={precision}}}")
    said = {one.name: str(one.attributes.get("algorithm", "")) for one in made.entry}
    assert said["plain"] == said["high"] == algorithm
    assert said["highest"] == said["mixed"] == ""
    assert said["named"] == "dot_f32_f32_f32"


@pytest.mark.parametrize("target", ["t4", "host"])
def test_devices_without_such_units(target: str) -> None:
    """Nothing changes, and a note says why; none where there is no product to speak of."""
    module = hloopt.parse(MODULE)
    made = hloopt.optimize(module, f"dot-precision{{target={target}}}")
    assert made.to_text() == hloopt.parse(MODULE).to_text()


def test_an_unknown_precision_is_named() -> None:
    """With those there are."""
    with pytest.raises(UsageError, match="precision is one of tf32, bf16x3, not f16"):
        DotPrecision("f16")


def seconds(text: str, target: str = "h200") -> float:
    predictor = Predictor(model_for("xla-2026", find_target(target)))
    return predictor.predict(hloopt.parse(text).entry.root).seconds


def test_a_product_of_f32_is_priced_as_it_is_multiplied() -> None:
    """Default precision is no leave of ours: only an algorithm makes it quicker."""
    plain = seconds(LARGE % "")
    assert plain == seconds(LARGE % ", operand_precision={default,default}")
    assert 5 < plain / seconds(LARGE % ", algorithm=dot_tf32_tf32_f32") < 12
    third = seconds(LARGE % ", algorithm=dot_bf16_bf16_f32_x3")
    assert plain > 3 * third


CONVOLUTION = """HloModule convolution

ENTRY main {
  x = f32[16,56,56,64] parameter(0)
  w = f32[3,3,64,64] parameter(1)
  ROOT y = f32[16,56,56,64] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f%s
}
"""


@pytest.mark.parametrize(
    ("said", "precision", "taken"),
    [
        ("", "tf32", True),
        ("", "bf16x3", False),
        (", operand_precision={highest,default}", "tf32", False),
        (', backend_config="seven"', "tf32", False),
        (', backend_config={"mine":1}', "tf32", True),
        (', backend_config={"hloopt":{"kernel":"convolution-direct"}}', "tf32", False),
    ],
)
def test_a_library_may_round_the_factors_of_a_convolution(
    said: str, precision: str, taken: bool
) -> None:
    """It is priced as the call is; other entries of its configuration stay, and a kernel of ours is f32 again."""
    text = CONVOLUTION % said
    made = hloopt.optimize(hloopt.parse(text), f"dot-precision{{precision={precision}}}")
    assert (made.to_text() != hloopt.parse(text).to_text()) is taken
    again = hloopt.optimize(made, f"dot-precision{{precision={precision}}}")
    assert again.to_text() == made.to_text()
    if taken:
        assert seconds(text) > 3 * seconds(made.to_text())
        config = json.loads(str(made.entry.root.attributes["backend_config"]))
        assert config.get("mine") == (1 if "mine" in said else None)
        KernelConfig(made.entry.root).write("convolution-direct", {})
        assert seconds(made.to_text()) == seconds(text)


def test_a_call_that_xla_made_is_priced_as_xla_multiplies() -> None:
    """cuBLAS takes TF32 unless the highest precision is asked for."""
    call = """HloModule call

ENTRY main {
  x = f32[4096,4096] parameter(0)
  ROOT y = f32[4096,4096] custom-call(x, x), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"alpha_real":1,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]},"alpha_imag":0,"precision_config":{"operand_precision":["%s","%s"],"algorithm":"ALG_UNSET"},"epilogue":"DEFAULT"}}
}
"""
    default = seconds(call % ("DEFAULT", "DEFAULT"))
    assert seconds(call % ("HIGHEST", "HIGHEST")) > 5 * default
    assert default == pytest.approx(seconds(LARGE % ", algorithm=dot_tf32_tf32_f32"), rel=0.01)


@pytest.mark.parametrize(
    "config", ['"junk"', "{}", '{"gemm_backend_config":{"precision_config":"x"}}']
)
@pytest.mark.parametrize("name", ["__cublas$gemm", "__cudnn$convForward"])
def test_a_call_whose_configuration_is_no_record_is_priced(name: str, config: str) -> None:
    """As by default."""
    text = f"""HloModule call

ENTRY main {{
  x = f32[64,64] parameter(0)
  ROOT y = f32[64,64] custom-call(x, x), custom_call_target="{name}", backend_config={config}
}}
"""
    (row,) = kernel_costs(hloopt.parse(text), Predictor(model_for("xla-2026", find_target("h200"))))
    assert row.seconds > 0


def test_the_option_is_the_pass_before_all_others(tmp_path: Path) -> None:
    """In whatever is planned; XLA's presets have it where XLA decides."""
    path = tmp_path / "large.hlo"
    path.write_text(LARGE % "")
    text = invoke("optimize", str(path), "-O1", "--precision", "tf32").stdout
    assert text.count("algorithm=dot_tf32_tf32_f32") == 1
    assert "algorithm" not in invoke("optimize", str(path), "-O3").stdout
    assert "algorithm=dot_tf32" in invoke("optimize", str(path), "--passes", "xla-gpu-2026").stdout
    both = invoke("optimize", str(path), "--passes", "xla-gpu-2026", "--precision", "bf16x3").stdout
    assert "dot_bf16_bf16_f32_x3" in both
    plans = [
        json.loads(invoke("kernels", str(path), "-O3", "--json", *more).stdout)["modules"][0]
        for more in ((), ("--precision", "tf32"))
    ]
    assert plans[0]["seconds"] > 4 * plans[1]["seconds"]
    note = invoke("optimize", str(path), "-O1", "--precision", "tf32", "--target", "t4").stderr
    assert "t4 multiplies no tf32: products stay f32" in note


@pytest.mark.parametrize("precision", ["tf32", "bf16x3"])
def test_results_are_judged_by_what_was_allowed(tmp_path: Path, precision: str) -> None:
    """A run on the emulator, by matrix units, is right; by the bounds of f32 products TF32 would not be."""
    path = tmp_path / "products.hlo"
    path.write_text(MODULE)
    args = ("run", str(path), "-O3", "--device", "emulator", "--repeat", "1", "--json")
    found = invoke(*args, "--precision", precision)
    assert found.exit_code == 0, found.stdout + found.stderr
    plain = invoke(*args, "--kernel", "op:dot=dot-mma", "--precision", precision)
    assert plain.exit_code == 0
