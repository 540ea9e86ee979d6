"""while-chain-folding: what a loop collects only for products after it leaves the loop, where all loops gain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.linear_algebra.chain_folding import WhileChainFolding
from hloopt.rewrite import PassLog
from tests.passes.proof import check

PASS = WhileChainFolding(target="host")
EXAMPLE = WhileChainFolding.example


def dots(module: hloopt.Module, where: str) -> int:
    return sum(one.opcode == "dot" for one in module.computations[where])


def changed(*pairs: tuple[str, str]) -> str:
    text = EXAMPLE
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


TURNED = changed(
    ("v = s32[64,16] dot(u, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
     """w = s32[16,64] dot(b, u), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  v = s32[64,16] transpose(w), dimensions={1,0}"""),
)  # fmt: skip
DOWNWARDS = changed(
    ("  u = s32[64,16]",
     """  end = s32[] constant(31)
  down = s32[] subtract(end, i)
  u = s32[64,16]"""),
    ("y, i, zero", "y, down, zero"),
)  # fmt: skip
CHANGING = """  c = s32[16,16] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  u = s32[64,16]"""


@pytest.mark.parametrize("text", [EXAMPLE, TURNED, DOWNWARDS])
def test_integers_keep_all_bits(text: str) -> None:
    made, _ = check(text, PASS, draws=2)
    assert dots(made, "next") == 1


@pytest.mark.parametrize(
    "pairs",
    [
        [("maximum(v, x)", "maximum(v, u)")],  # something else reads the product
        [("s32[] constant(32)", "s32[] constant(31)")],  # a row is not written
        [("dot(u, b)", "dot(u, c)"), ("  u = s32[64,16]", CHANGING)],  # the second factor changes
        [("64", "2"), ("16", "512")],  # it takes no less: fewer rows than columns
    ],
)  # fmt: skip
def test_what_stays(pairs: list[tuple[str, str]]) -> None:
    given = hloopt.parse(changed(*pairs), "m")
    hloopt.verify(given)
    assert not PASS.run(given, PassLog())


def test_floats_need_leave() -> None:
    source = EXAMPLE.replace("s32[64,16]", "f32[64,16]").replace("s32[32,64", "f32[32,64")
    source = source.replace("s32[16", "f32[16").replace("s32[1,64", "f32[1,64")
    source = source.replace("us = f32[32,64,16] broadcast(zero)", "nil = f32[] constant(0)\n  us = f32[32,64,16] "
                            "broadcast(nil)")  # fmt: skip
    log = PassLog(kinds=frozenset({"missed"}))
    given = hloopt.parse(source, "m")
    hloopt.verify(given)
    assert not PASS.run(given, log)
    (remark,) = log.remarks
    assert "sums of f32 would round otherwise" in remark.reason
    better = hloopt.parse(source, "m")
    assert replace(PASS, reassociate=True).run(better, PassLog())
    random = np.random.default_rng(0)
    values = [
        (random.standard_normal(one.array.dims) / 4).astype(np.float32)
        for one in given.entry.parameters
    ]
    for one, other in zip(
        hloopt.evaluate(given, values), hloopt.evaluate(better, values), strict=True
    ):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)


def test_growth_is_no_negative_number() -> None:
    with pytest.raises(UsageError, match="max_growth"):
        WhileChainFolding(max_growth=-1)
