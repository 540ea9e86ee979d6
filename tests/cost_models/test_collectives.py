"""Estimates of collectives: who takes part, over which link, and NCCL's choice between its protocols."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.cost_models.collectives import (
    LINKS,
    collective_form,
    collective_opcode,
    collective_run_time,
    result_bytes,
)
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import model_for
from hloopt.ir import Instruction
from hloopt.targets import target

_SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }"


def _reduced(elements: int, groups: str, header: str = "num_partitions=16") -> Instruction:
    module = hloopt.parse(f"""HloModule m, {header}
{_SUM}
ENTRY main {{
  x = f32[{elements}] parameter(0)
  ROOT y = f32[{elements}] all-reduce(x), channel_id=1, replica_groups={groups}, use_global_device_ids=true, to_apply=sum
}}
""")
    return module.entry.root


def test_a_small_sum_waits_for_the_steps_of_a_ring() -> None:
    """``links.toml``: 3.6 us a call and 14 steps of 0.47 us; four bytes a flag over 18 links of 25 GB/s."""
    found = collective_run_time(
        _reduced(256, "{{0,1,2,3,4,5,6,7}}", "num_partitions=8"), target("h200")
    )
    assert found is not None
    data = 2 * 7 / 8 * 1024 / (450e9 * 0.25) * 1e9
    assert found.exec_ns == pytest.approx(3600 + 14 * 470 + data)
    assert found.bound(1000.0) == "link"


def test_a_large_sum_is_as_fast_as_the_link() -> None:
    """1 GiB among 8 devices: the other protocol, 0.92 of the bandwidth."""
    found = collective_run_time(
        _reduced(1 << 28, "{{0,1,2,3,4,5,6,7}}", "num_partitions=8"), target("h100")
    )
    assert found is not None
    data = 2 * 7 / 8 * 2**30 / (450e9 * 0.92)
    assert found.exec_ns * 1e-9 == pytest.approx(data, rel=0.02)


def test_groups_across_nodes_go_over_the_network() -> None:
    """Eight devices are a node: pairs of one device in each have one adapter each."""
    far = collective_form(
        _reduced(1024, "{{0,8},{1,9},{2,10},{3,11},{4,12},{5,13},{6,14},{7,15}}"), target("h200")
    )
    near = collective_form(
        _reduced(1024, "{{0,1},{2,3},{4,5},{6,7},{8,9},{10,11},{12,13},{14,15}}"), target("h200")
    )
    assert far is not None
    assert near is not None
    assert (far.nodes, far.link, far.bandwidth) == (2, "network", 50e9)
    assert (near.nodes, near.link, near.bandwidth) == (1, "18 NVLinks", 450e9)


def test_the_axes_are_those_of_the_mesh() -> None:
    """The fewest whose groups these are."""
    header = 'num_partitions=8, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["data"=2, "model"=4]>}}'
    forms = [
        collective_form(_reduced(8, groups, header), target("h200"))
        for groups in (
            "{{0,4},{1,5},{2,6},{3,7}}",
            "{{0,1,2,3},{4,5,6,7}}",
            "{{0,1,2,3,4,5,6,7}}",
            "{{0,1},{2,3},{4,5},{6,7}}",
        )
    ]
    assert [form and form.axes for form in forms] == [("data",), ("model",), ("data", "model"), ()]
    assert str(forms[1]) == "4 devices along 'model' by 18 NVLinks"


@pytest.mark.parametrize("name", ["host", "tpu-v4", "mi300x"])
def test_other_links_are_not_in_the_table(name: str) -> None:
    """Nothing is estimated there, and the roofline counts the bytes in memory, as before."""
    reduced = _reduced(8, "{{0,1}}", "num_partitions=2")
    assert collective_run_time(reduced, target(name)) is None


def test_one_device_needs_no_link() -> None:
    """The report's price names the table only where it was used."""
    alone, both = (_reduced(8, groups, "num_partitions=2") for groups in ("{{0},{1}}", "{{0,1}}"))
    predictor = Predictor(model_for("xla-2026", target("h200")))
    assert predictor.predict(alone).by != LINKS
    assert predictor.predict(both).by == LINKS


GATHERED = """HloModule m, num_partitions=8
gathered {
  a = bf16[128,1024] parameter(0)
  ROOT g = bf16[1024,1024] all-gather(a), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0},
      use_global_device_ids=true
}
ENTRY main {
  w = bf16[128,1024] parameter(0)
  now = bf16[1024,1024] all-gather(w), channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0},
      use_global_device_ids=true
  start = (bf16[128,1024], bf16[1024,1024]) all-gather-start(w), channel_id=3, replica_groups={{0,1,2,3,4,5,6,7}},
      dimensions={0}, use_global_device_ids=true
  done = bf16[1024,1024] all-gather-done(start)
  called = ((bf16[128,1024]), bf16[1024,1024]) async-start(w), calls=gathered
  ended = bf16[1024,1024] async-done(called)
  ROOT r = (bf16[1024,1024], bf16[1024,1024], bf16[1024,1024]) tuple(now, done, ended)
}
"""


@pytest.mark.parametrize("name", ["start", "called"])
def test_a_start_takes_as_long_as_its_collective(name: str) -> None:
    """Plans of GPUs have starts and dones; the operand that a start returns is not moved."""
    module = hloopt.parse(GATHERED)
    now, start = (collective_run_time(module[one], target("h200")) for one in ("now", name))
    assert now is not None
    assert start == now
    assert collective_opcode(module[name]) == "all-gather"
    assert result_bytes(module[name]) == 2 * 1024 * 1024
