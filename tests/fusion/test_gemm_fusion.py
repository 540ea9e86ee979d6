"""Triton kernels of matrix products: what joins a dot, what stays out and why, and results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.fusion.gemm_fusion import GemmFusion
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.kernels import module_kernels
from hloopt.runtime.inputs import generate
from hloopt.targets import find_target
from tests.helpers.support import invoke

_DOT = "dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
_XW = " x = f32[64,32] parameter(0)\n w = f32[32,48] parameter(1)\n"
_B = " b = f32[48] parameter(2)\n bb = f32[64,48] broadcast(b), dimensions={1}\n"
_ZERO = " z = f32[] constant(0)\n zz = f32[64,48] broadcast(z), dimensions={}\n"


def module(body: str) -> Module:
    return hloopt.parse(f"HloModule m\nENTRY e {{\n{body}\n}}\n", "gemm")


def fused(body: str) -> tuple[Module, Module]:
    """The module before and after; results are the same bit by bit."""
    given = module(body)
    made = clone_module(given)
    GemmFusion().fuse(made)
    hloopt.verify(made)
    arrays = generate(given, 3)
    for one, other in zip(
        hloopt.evaluate(given, arrays), hloopt.evaluate(made, arrays), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    return given, made


def bodies(made: Module) -> list[list[str]]:
    """The opcodes in each Triton kernel of a dot, parameters aside."""
    found = []
    for one in made.entry:
        if one.opcode == "fusion":
            config = json.loads(str(one.attributes["backend_config"]))
            assert config["fusion_backend_config"] == {"kind": "__triton_gemm"}
            assert one.attributes["kind"] == "kCustom"
            body = one.attributes["calls"]
            found.append(sorted(op.opcode for op in body if op.opcode != "parameter"))
    return found


JOINED = {
    "bias and relu": (
        _XW + _B + _ZERO + f"d = f32[64,48] {_DOT}\n s = f32[64,48] add(d, bb)\n"
        "ROOT r = f32[64,48] maximum(s, zz)",
        ["add", "broadcast", "broadcast", "constant", "dot", "maximum"],
    ),
    "a scale of an operand": (
        _XW + " c = f32[] constant(2)\n cc = f32[64,32] broadcast(c), dimensions={}\n"
        "y = f32[64,32] multiply(x, cc)\n"
        "ROOT d = f32[64,48] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        ["broadcast", "constant", "dot", "multiply"],
    ),
    "a transpose and a reshape of an operand": (
        (" x = f32[8,4,16] parameter(0)\n t = f32[4,16,8] transpose(x), dimensions={1,2,0}\n"
        "y = f32[64,8] reshape(t)\n w = f32[8,48] parameter(1)\n"
        "ROOT d = f32[64,48] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ["dot", "reshape", "transpose"],
    ),
    "weights side by side": (
        (" x = f32[64,32] parameter(0)\n v = f32[32,64] parameter(1)\n w = f32[32,128] parameter(2)\n"
        "c = f32[32,192] concatenate(v, w), dimensions={1}\n"
        "ROOT d = f32[64,192] dot(x, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ["concatenate", "dot"],
    ),
    "an update of a parameter": (
        _XW + f"p = f32[64,48] parameter(2)\n d = f32[64,48] {_DOT}\n"
        "ROOT r = f32[64,48] subtract(p, d)",
        ["dot", "subtract"],
    ),
    "nothing of a plain product": (_XW + f"ROOT d = f32[64,48] {_DOT}", ["dot"]),
}  # fmt: skip


@pytest.mark.parametrize("name", JOINED)
def test_joins(name: str) -> None:
    """One kernel that reads the parameters."""
    body, ops = JOINED[name]
    _, made = fused(body)
    assert bodies(made) == [ops]
    assert module_kernels(made) == 1


APART = {
    "a result that two read": (
        _XW + f"d = f32[64,48] {_DOT}\n n = f32[64,48] negate(d)\n ROOT r = f32[64,48] multiply(n, d)",
        ["dot"],
    ),
    "a second input that is computed": (
        _XW + f"p = f32[64,48] parameter(2)\n e = f32[64,48] exponential(p)\n d = f32[64,48] {_DOT}\n"
        "ROOT r = f32[64,48] subtract(e, d)",
        ["dot"],
    ),
    "a reduce": (
        _XW.replace("f32[64,32]", "f32[64,128]").replace("f32[32,48]", "f32[128,48]")
        + f"d = f32[64,48] {_DOT}\n i = f32[] constant(0)\n"
        "ROOT r = f32[64] reduce(d, i), dimensions={1}, to_apply=add",
        ["dot"],
    ),
    "a reshape that regroups dimensions": (
        (" x = f32[48,32] parameter(0)\n y = f32[32,48] reshape(x)\n w = f32[48,40] parameter(1)\n"
        "ROOT d = f32[32,40] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ["dot"],
    ),
    "arithmetic of f64": (
        (_XW + f"d = f32[64,48] {_DOT}\n ROOT r = f32[64,48] tanh(d)").replace("f32", "f64"),
        ["dot"],
    ),
    "a conversion to f64": (
        _XW + f"d = f32[64,48] {_DOT}\n ROOT r = f64[64,48] convert(d)",
        ["dot"],
    ),
    "a gather's result": (
        (" t = f32[100,32] parameter(0)\n i = s32[64,1] parameter(1)\n w = f32[32,48] parameter(2)\n"
        "g = f32[64,32] gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
        " index_vector_dim=1, slice_sizes={1,32}\n"
        "ROOT d = f32[64,48] dot(g, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ["dot"],
    ),
}  # fmt: skip
_ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"


@pytest.mark.parametrize("name", APART)
def test_stays_apart(name: str) -> None:
    """The dot is a kernel without it."""
    body, ops = APART[name]
    given = hloopt.parse(f"HloModule m\n{_ADD}ENTRY e {{\n{body}\n}}\n", "gemm")
    GemmFusion().fuse(given)
    hloopt.verify(given)
    assert bodies(given) == [ops]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ((" x = f32[2,3] parameter(0)\n w = f32[3,2] parameter(1)\n ROOT d = f32[2,2] "
         f"{_DOT}"), "so small dots: (M + N) * K is 12, below 100"),
        ((" x = c64[64,32] parameter(0)\n w = c64[32,48] parameter(1)\n ROOT d = c64[64,48] "
         f"{_DOT}"), "products of c64"),
        ((" x = f32[64,8,4] parameter(0)\n w = f32[8,4,48] parameter(1)\n ROOT d = f32[64,48] dot(x, w), "
         "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}"), "dots with 2 contracting dimensions"),
        ((" x = f32[8,8,32] parameter(0)\n w = f32[32,48] parameter(1)\n ROOT d = f32[8,8,48] dot(x, w), "
         "lhs_contracting_dims={2}, rhs_contracting_dims={0}"),
         "operands of which several dimensions come back"),
    ],
)  # fmt: skip
def test_no_kernel_of_a_dot_has_its_reason(body: str, words: str) -> None:
    """With the figure and the limit."""
    plan = GemmFusion().fuse(module(body))
    assert not plan.steps
    (refusal,) = plan.refusals
    assert refusal.decision.code == "triton-unsupported"
    assert words in refusal.decision.reason


def test_a_user_that_stays_out_has_its_reason() -> None:
    """It names the input that keeps it out."""
    body, _ = APART["a second input that is computed"]
    plan = GemmFusion().fuse(module(body))
    (refusal,) = plan.refusals
    assert refusal.decision.code == "gemm-epilogue"
    assert "as e is" in refusal.decision.reason


def test_a_device_without_triton_is_left_alone() -> None:
    """As for other Triton kernels."""
    given = module(JOINED["bias and relu"][0])
    assert not GemmFusion().fuse(given, device=find_target("v100")).steps


def test_operands_have_four_inputs_at_most() -> None:
    """A fifth stays outside, with what is computed of it."""
    sums, last = "", "p0"
    for number in range(1, 8):
        sums += f" q{number} = f32[32] parameter({number})\n"
        sums += f" w{number} = f32[64,32] broadcast(q{number}), dimensions={{1}}\n"
        sums += f" sum{number} = f32[64,32] add({last}, w{number})\n"
        last = f"sum{number}"
    body = (
        f" p0 = f32[64,32] parameter(0)\n{sums} w = f32[32,48] parameter(8)\n"
        f"ROOT d = f32[64,48] dot({last}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    )
    _, made = fused(body)
    (kernel,) = (one for one in made.entry if one.opcode == "fusion")
    assert len(kernel.operands) == 4 + 1


def test_explain_names_who_joined(tmp_path: Path) -> None:
    """Every op of the kernel, asked for by the names of the file, also where other passes ran between."""
    path = tmp_path / "gemm.hlo"
    path.write_text(f"HloModule m\nENTRY e {{\n{JOINED['bias and relu'][0]}\n}}\n")
    for pair in (("d", "s"), ("s", "r"), ("d", "r")):
        told = invoke("explain", str(path), *pair, "--passes", "xla-gpu-2026")
        assert told.exit_code == 0, told.stderr
        assert "are in one kernel" in told.stdout
        assert "gemm-fusion" in told.stdout


def test_a_vector_may_have_dimensions_of_one_element() -> None:
    """A dot with [K, 1] is one with a vector: dot-strength-reduction takes it before gemm-fusion can."""
    given = module(
        f" x = f16[10,1024] parameter(0)\n w = f16[1024,1] parameter(1)\nROOT d = f16[10,1] {_DOT}"
    )
    made = hloopt.optimize(given, "dot-strength-reduction{fast_math=true},gemm-fusion")
    assert not bodies(made)
    assert "reduce" in {one.opcode for one in made.entry}
