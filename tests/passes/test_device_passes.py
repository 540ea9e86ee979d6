"""What makes a module ready for one device: collectives of one participant, ops that move no byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.ir import Module
from hloopt.kernels.limits import Limits
from hloopt.passes.expand.cholesky_expander import CholeskyExpander
from hloopt.passes.expand.triangular_solve_expander import TriangularSolveExpander
from hloopt.passes.sole_participant import SoleParticipant
from hloopt.passes.views_to_bitcasts import ViewsToBitcasts
from hloopt.pipelines import parse_pipeline
from tests.passes import proof
from tests.passes.proof import check

ADD = "add { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT z = f32[] add(x, y) }"
NARROW = "narrow { x = bf16[] parameter(0)\n y = bf16[] parameter(1)\n ROOT z = bf16[] add(x, y) }"


def module(body: str, *, header: str = "", before: str = ADD) -> str:
    return f"HloModule m{header}\n{before}\nENTRY main {{\n{body}\n}}\n"


def opcodes(found: Module) -> list[str]:
    return [one.opcode for one in found.entry if one.opcode not in ("parameter", "tuple")]


# ---- sole-participant ---------------------------------------------------------------------------

ALONE = {
    "all-reduce": ("ROOT r = f32[4] all-reduce(p), replica_groups={{0}}, to_apply=add", []),
    "all-reduce of several": (
        "ROOT r = (f32[4], f32[4]) all-reduce(p, q), replica_groups={}, to_apply=add",
        [],
    ),
    "all-reduce that rounds": (
        "ROOT r = f32[4] all-reduce(p), replica_groups={}, to_apply=narrow",
        ["convert", "convert"],
    ),
    "all-gather": ("ROOT r = f32[4] all-gather(p), replica_groups={}, dimensions={0}", []),
    "reduce-scatter": (
        "ROOT r = f32[4] reduce-scatter(p), replica_groups={}, dimensions={0}, to_apply=add",
        [],
    ),
    "a mark of how a value is split": (
        'ROOT r = f32[4] custom-call(p), custom_call_target="Sharding"',
        [],
    ),
    "all-to-all": ("ROOT r = f32[4] all-to-all(p), replica_groups={}, dimensions={0}", []),
    "all-to-all of a tuple": ("ROOT r = (f32[4]) all-to-all(p), replica_groups={{0}}", []),
    "collective-broadcast": ("ROOT r = f32[4] collective-broadcast(p), replica_groups={{0}}", []),
    "a broadcast of others": (
        "ROOT r = f32[4] collective-broadcast(p), replica_groups={{1}}",
        ["constant", "broadcast"],
    ),
    "collective-permute": (
        "ROOT r = f32[4] collective-permute(p), source_target_pairs={{0,0}}",
        [],
    ),
    "a permute of nobody": (
        "ROOT r = f32[4] collective-permute(p), source_target_pairs={}",
        ["constant", "broadcast"],
    ),
    "numbers": (
        "i = u32[] partition-id()\n j = u32[] replica-id()\n ROOT r = u32[] add(i, j)",
        ["constant", "constant", "add"],
    ),
    "all-reduce-start": (
        (
            "s = f32[4] all-reduce-start(p), replica_groups={}, to_apply=add\n"
            "ROOT r = f32[4] all-reduce-done(s)"
        ),
        [],
    ),
    "all-gather-start": (
        (
            "s = (f32[4], f32[4]) all-gather-start(p), replica_groups={}, dimensions={0}\n"
            "d = f32[4] all-gather-done(s)\n ROOT r = f32[4] negate(d)"
        ),
        ["negate"],
    ),
    "collective-permute-start": (
        (
            "s = (f32[4], f32[4], u32[], u32[]) collective-permute-start(p), source_target_pairs={{0,0}}\n"
            "d = f32[4] collective-permute-done(s)\n ROOT r = f32[4] negate(d)"
        ),
        ["negate"],
    ),
    "a chain of starts": (
        (
            "s = f32[4] all-reduce-start(p), replica_groups={}, to_apply=add\n"
            "d = f32[4] all-reduce-done(s)\n"
            "t = f32[4] all-reduce-start(p), replica_groups={}, to_apply=add, control-predecessors={d}\n"
            "e = f32[4] all-reduce-done(t)\n"
            "ROOT r = f32[4] add(d, e), control-predecessors={t}"
        ),
        ["add"],
    ),
    "another layout": (
        (
            "m = f32[2,2]{1,0} reshape(p)\n"
            "ROOT r = f32[2,2]{0,1} all-reduce(m), replica_groups={}, to_apply=add"
        ),
        ["reshape", "copy"],
    ),
}


@pytest.mark.parametrize("case", ALONE)
def test_a_participant_that_is_alone_keeps_what_it_has(case: str) -> None:
    """The results stay bit by bit; what the op did with others is gone."""
    body, left = ALONE[case]
    text = module(
        f"p = f32[4] parameter(0)\nq = f32[4] parameter(1)\n{body}", before=f"{ADD}\n{NARROW}"
    )
    better, _ = check(text, SoleParticipant())
    assert opcodes(better) == left


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (", replica_count=2", "ROOT r = f32[4] all-reduce(p), replica_groups={}, to_apply=add"),
        (", num_partitions=2", "i = u32[] partition-id()\nROOT r = f32[4] negate(p)"),
        ("", "ROOT r = f32[8] all-gather(p), replica_groups={{0,1}}, dimensions={0}"),
    ],
)
def test_collectives_of_several_stay(header: str, body: str) -> None:
    """A header that asks for several participants, or a shape that does, leaves the op as it is."""
    text = module(f"p = f32[4] parameter(0)\n{body}", header=header)
    found = hloopt.parse(text)
    assert not parse_pipeline("sole-participant").run(found).changed


# ---- views-to-bitcasts --------------------------------------------------------------------------

VIEWS = {
    "reshape": "ROOT r = f32[6] reshape(p)",
    "a transpose of ones": "ROOT r = f32[2,1,3] transpose(f32[1,2,3] reshape(p)), dimensions={1,0,2}",
    "a transpose that layouts undo": "ROOT r = f32[3,2]{0,1} transpose(p), dimensions={1,0}",
    "bits": "ROOT r = s32[2,3] bitcast-convert(p)",
    "narrower": "ROOT r = u8[2,3,4] bitcast-convert(p)",
    "wider": "a = u16[2,3,2] bitcast-convert(p)\n ROOT r = u32[2,3] bitcast-convert(a)",
}


@pytest.mark.parametrize("case", VIEWS)
def test_what_moves_no_byte_is_a_bitcast(case: str) -> None:
    """Bit by bit the same, and nothing but bitcasts is left."""
    better, _ = check(module(f"p = f32[2,3] parameter(0)\n{VIEWS[case]}"), ViewsToBitcasts())
    assert set(opcodes(better)) == {"bitcast"}


STAY = {
    "a transpose": "ROOT r = f32[3,2]{1,0} transpose(p), dimensions={1,0}",
    "a reshape of columns": "a = f32[2,3]{0,1} copy(p)\n ROOT r = f32[6]{0} reshape(a)",
    "bits in another order": "a = f32[2,3]{0,1} copy(p)\n ROOT r = s32[2,3]{1,0} bitcast-convert(a)",
    "a copy": "ROOT r = f32[2,3]{1,0} copy(p)",
    "complex numbers": "c = c64[2,3] complex(p, p)\n ROOT r = f32[2,3] real(c)",
}


@pytest.mark.parametrize("case", STAY)
def test_what_moves_bytes_stays(case: str) -> None:
    """Layouts say whether an op moves data."""
    text = module(f"p = f32[2,3]{{1,0}} parameter(0)\n{STAY[case]}")
    check(text, ViewsToBitcasts(), changes=False)


def test_bodies_of_fusions_keep_their_views() -> None:
    """A reshape inside a kernel has no buffer that it could be another name of."""
    text = module(
        "p = f32[2,3] parameter(0)\nROOT f = f32[6] fusion(p), kind=kLoop, calls=body",
        before="body { a = f32[2,3] parameter(0)\n b = f32[6] reshape(a)\n ROOT c = f32[6] negate(b) }",
    )
    check(text, ViewsToBitcasts(), changes=False)


# ---- the pipeline -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["device", "device-gpu", "device-emulator", "device-native"])
def test_the_order_of_what_makes_a_module_ready(name: str) -> None:
    """Copies come after the order they follow from, kernels last of all."""
    names = [one.name for one in parse_pipeline(name).passes()]
    last = names[:-1] if names[-1] == "kernel-selection" else names
    assert (names == last) is (name == "device")
    assert last[-2:] == ["schedule", "copy-insertion"]
    assert names.index("layout-normalization") < names.index("views-to-bitcasts")


def test_larger_systems_than_a_block_holds_are_expanded() -> None:
    """The limit of the kernels is that of the expanders."""
    limit = Limits().linear_system_size
    above = [
        one.above
        for one in parse_pipeline("device").passes()
        if isinstance(one, CholeskyExpander | TriangularSolveExpander)
    ]
    assert above == [limit, limit]


@pytest.mark.parametrize(
    "name", ["kalman_scan", "mlp_train_step", "conv_bias_relu", "matrix_chain"]
)
def test_samples_stay_what_they_were(name: str, samples: Path) -> None:
    """Made ready, a program is valid, prints and reads back, and computes the same within rounding of sums."""
    path = samples / f"{name}.hlo"
    given = hloopt.parse(path.read_text())
    before = given.to_text()
    ready = hloopt.optimize(given, "device")
    assert given.to_text() == before
    hloopt.verify(ready)
    assert hloopt.parse(ready.to_text()).to_text() == ready.to_text()
    inputs = proof.inputs(given, 40)
    for one, other in zip(
        hloopt.evaluate(given, proof.ordinary(inputs)),
        hloopt.evaluate(ready, proof.ordinary(inputs)),
        strict=True,
    ):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)


def test_a_second_time_nothing_is_left_to_do() -> None:
    """Of a module made ready, making it ready once more changes no result and adds no copy."""
    text = module(
        "p = f32[4] parameter(0)\n u = f32[1] parameter(1)\n i = s32[] parameter(2)\n"
        "ROOT r = f32[4] dynamic-update-slice(p, u, i)"
    )
    once = hloopt.optimize(hloopt.parse(text), "device")
    assert hloopt.optimize(once, "device").to_text() == once.to_text()
