"""``run --participants mpi``: participants on processes give the bits of threads; failures end all of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import mpi
from tests.helpers.support import invoke
from tests.interpret.test_transfers import CHANNEL, WHO, module

needs_mpi = pytest.mark.skipif(bool(mpi.why_not()), reason=mpi.why_not())
HLOOPT = (sys.executable, "-m", "hloopt", "run", "--participants", "mpi")

PLUS = """
plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
"""
SEVERAL = f"""HloModule several, num_partitions=8
{PLUS}
body {{
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  half = f32[] constant(0.37)
  h = f32[8] broadcast(half), dimensions={{}}
  m = f32[8] multiply(x, h)
  sum = f32[8] all-reduce(m), channel_id=1, replica_groups={{{{0,2,4,6}},{{7,5,3,1}}}},
    use_global_device_ids=true, to_apply=plus
  next = f32[8] collective-permute(sum), channel_id=2,
    source_target_pairs={{{{0,1}},{{1,2}},{{2,3}},{{3,4}},{{4,5}},{{5,6}},{{6,7}}}}
  y = f32[8] add(next, m)
  ROOT t = (s32[], f32[8]) tuple(j, y)
}}
less {{
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(TRIPS)
  ROOT p = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(s), condition=less, body=body
  y = f32[8] get-tuple-element(w), index=1
  all = f32[64] all-gather(y), channel_id=3, dimensions={{0}}, replica_groups={{}}
  p = u32[] partition-id()
  part = f32[8] reduce-scatter(all), channel_id=4, dimensions={{0}}, replica_groups={{}}, to_apply=plus
  turned = f32[8] all-to-all(part), channel_id=5, dimensions={{0}}, replica_groups={{}}
  ROOT t = (f32[8], f32[8], u32[]) tuple(y, turned, p)
}}
"""
SENT = """HloModule sent, num_partitions=2

ENTRY e {
  x = f32[4] parameter(0)
  order = token[] after-all()
  send = (f32[4], u32[], token[]) send(x, order), channel_id=7,
    frontend_attributes={_xla_send_recv_source_target_pairs="{{1,0}}"}
  sent = token[] send-done(send), channel_id=7
  recv = (f32[4], u32[], token[]) recv(order), channel_id=7,
    frontend_attributes={_xla_send_recv_source_target_pairs="{{1,0}}"}
  done = (f32[4], token[]) recv-done(recv), channel_id=7
  ROOT y = f32[4] get-tuple-element(done), index=0
}
"""
APART = f"""HloModule apart, num_partitions=4
{PLUS}
yes {{
  x = f32[4] parameter(0)
  ROOT s = f32[4] all-reduce(x), channel_id=1, replica_groups={{}}, to_apply=plus
}}
no {{
  x = f32[4] parameter(0)
  ROOT s = f32[4] negate(x)
}}
ENTRY e {{
  x = f32[4] parameter(0)
  p = u32[] partition-id()
  two = u32[] constant(2)
  c = pred[] compare(p, two), direction=LT
  ROOT r = f32[4] conditional(c, x, x), true_computation=yes, false_computation=no
}}
"""
ENDLESS = f"""HloModule endless, num_partitions=4
{PLUS}
again {{
  p = u32[] parameter(0)
  three = u32[] constant(3)
  ROOT r = pred[] compare(p, three), direction=EQ
}}
body {{
  ROOT p = u32[] parameter(0)
}}
ENTRY e {{
  p = u32[] partition-id()
  w = u32[] while(p), condition=again, body=body
  f = f32[] convert(w)
  ROOT s = f32[] all-reduce(f), channel_id=1, replica_groups={{}}, to_apply=plus
}}
"""


def ran(processes: int, *words: str) -> subprocess.CompletedProcess[str]:
    """What so many processes said of a command."""
    return subprocess.run(
        [*mpi.start(processes), *words],
        env=mpi.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def spread(processes: int, *words: str) -> subprocess.CompletedProcess[str]:
    return ran(processes, *HLOOPT, *words)


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "m.hlo"
    path.write_text(text)
    return str(path)


@needs_mpi
@pytest.mark.parametrize("processes", [1, 3, 4])
def test_processes_give_the_bits_of_threads(tmp_path: Path, processes: int) -> None:
    path = written(tmp_path, SEVERAL.replace("TRIPS", "5"))
    here, there = tmp_path / "here.npz", tmp_path / "there.npz"
    words = (path, "--rounding", "exact", "--repeat")
    assert invoke("run", *words, "1", "--save", str(here)).exit_code == 0
    words = (*words, "2", "--json", "--save", str(there))
    result = spread(processes, *words)
    assert (result.returncode, result.stderr) == (0, "")
    (row,) = json.loads(result.stdout)["modules"]
    assert row["verdict"] == "ok"
    with np.load(here) as ours, np.load(there) as theirs:
        assert sorted(ours) == sorted(theirs)
        for name in ours:
            assert ours[name].tobytes() == theirs[name].tobytes(), name


@needs_mpi
@pytest.mark.parametrize("device", ["cpu", "native"])
def test_each_device_takes_its_part(tmp_path: Path, device: str) -> None:
    """Sums are MPI's: right, to the bit or not."""
    path = written(tmp_path, SEVERAL.replace("TRIPS", "5"))
    result = spread(4, path, "--device", device, "--repeat", "1", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    (row,) = json.loads(result.stdout)["modules"]
    assert (row["verdict"], row["partitions"]) == ("ok", 8)


REDUCED = f"""HloModule reduced, num_partitions=4
{PLUS}
most {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] maximum(a, b)
}}
largest {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}}
ENTRY e {{
  x = f32[3] parameter(0)
  y = s32[2] parameter(1)
  sum = f32[3] all-reduce(x), channel_id=1, replica_groups={{{{0,2}},{{1,3}}}},
    use_global_device_ids=true, to_apply=plus
  near = f32[3] all-reduce(x), channel_id=2, replica_groups={{{{0,1}},{{2,3}}}},
    use_global_device_ids=true, to_apply=plus
  most = s32[2] all-reduce(y), channel_id=3, replica_groups={{}}, to_apply=most
  high = f32[3] all-reduce(x), channel_id=4, replica_groups={{}}, to_apply=largest
  ROOT t = (f32[3], f32[3], s32[2], f32[3]) tuple(sum, near, most, high)
}}
"""
REDUCING = """
import sys, numpy as np, hloopt
from hloopt.runtime.mpi import processes
from hloopt.runtime.mpi_reductions import MpiReductions
world = processes()
made = MpiReductions(world, hloopt.read(sys.argv[1]), (1, 4))
keys = [("e", "sum", (0, 2)), ("e", "sum", (1, 3)), ("e", "most", (0, 1, 2, 3))]
assert sorted(made._channels) == sorted(keys), made._channels.keys()
own = np.arange(3, dtype=np.float32) + world.rank
most = [(np.array([number, -number], np.int32),) for number in world.local(4)]
for key in keys if world.rank else keys[::-1]:  # communicators keep the order of each
    made.begin(key, most if key[1] == "most" else [(own,)])
left = set(keys)
while left:
    if (found := made.finished()) is not None:
        key, (total,) = found
        left.remove(key)
        right = [3, 0] if key[1] == "most" else [1, 3, 5]
        assert total.tolist() == right, (key, total)
assert not made.pending and made.will_end({keys[0]: 1}, [made.started] * 2)
print("reduced")
"""


@needs_mpi
def test_mpi_reduces_where_it_has_the_type_and_the_op(tmp_path: Path) -> None:
    """Not a maximum of floats, which MPI does not define for NaN, and not within one process."""
    result = ran(2, sys.executable, "-c", REDUCING, written(tmp_path, REDUCED))
    assert (result.returncode, result.stderr, result.stdout) == (0, "", "reduced\n" * 2)


@needs_mpi
def test_a_channel_of_two_senders_is_found_across_processes(tmp_path: Path) -> None:
    path = written(
        tmp_path, module(WHO, CHANNEL).replace("HloModule m", "HloModule m, num_partitions=3")
    )
    arrays = tmp_path / "arrays.npz"
    np.savez(arrays, **{f"in_0.{at}": np.float32(who) for at, who in enumerate((0, 1, 0))})
    result = spread(3, path, "--no-verify", "-O0", "--inputs", str(arrays))
    said = "s: participants 0 and 2 use one channel without source-target pairs"
    assert result.returncode == 3
    assert f"m.hlo:6:3: error: {said}" in result.stderr


@needs_mpi
def test_what_is_sent_arrives(tmp_path: Path) -> None:
    result = spread(2, written(tmp_path, SENT), "--repeat", "1")
    assert result.returncode == 0, result.stderr
    assert "ok 1 result of each participant: equal" in result.stdout, "without colours in a pipe"


@needs_mpi
def test_participants_that_wait_without_end_are_named(tmp_path: Path) -> None:
    result = spread(4, written(tmp_path, APART), "--no-verify", "-O0")
    assert result.returncode == 3
    assert "m.hlo:11:8: error: s: participants wait for each other without end: " in result.stderr
    assert "0 is at s (all-reduce); 1 is at s (all-reduce)" in result.stderr
    assert result.stdout == ""


@needs_mpi
def test_an_error_in_one_process_ends_all(tmp_path: Path) -> None:
    result = spread(4, written(tmp_path, ENDLESS), "--no-verify", "-O0")
    assert result.returncode == 3
    assert "m.hlo:19:3: error: w: the loop does not end" in result.stderr
    assert "  w = u32[] while(p), condition=again, body=body\n  ^\n" in result.stderr
    assert "note: this ended process 3, and so all" in result.stderr


@needs_mpi
def test_a_killed_process_ends_the_run(tmp_path: Path) -> None:
    path = written(tmp_path, SEVERAL.replace("TRIPS", "100000000"))
    words = [*mpi.start(2), *HLOOPT, path, "--no-verify", "-O0"]
    pipe = subprocess.PIPE
    run = subprocess.Popen(words, stdout=pipe, stderr=pipe, env=mpi.environment())
    try:
        ranks: list[int] = []
        end = time.monotonic() + 60
        while len(ranks) < 2 and time.monotonic() < end:
            ranks = [
                one for one, line in mpi.descendants(run.pid) if line.startswith(sys.executable)
            ]
            time.sleep(0.1)
        time.sleep(2)
        begin = time.monotonic()
        os.kill(ranks[-1], signal.SIGKILL)
        run.communicate(timeout=30)
        assert time.monotonic() - begin < 5
        assert run.returncode != 0
    finally:
        run.kill()


@needs_mpi
def test_a_missing_file_is_one_message(tmp_path: Path) -> None:
    result = spread(3, str(tmp_path / "none.hlo"))
    assert result.returncode == 2
    said = [line for line in result.stderr.splitlines() if "none.hlo" in line]
    assert said == [f"hloopt: error: {tmp_path / 'none.hlo'}: no such file or directory"]


@needs_mpi
def test_an_mpiexec_of_another_mpi_is_no_eight_equal_runs(tmp_path: Path) -> None:
    """Started so, each process is alone."""
    other = "PMI_SIZE" if mpi.is_open_mpi() else "OMPI_COMM_WORLD_SIZE"
    words = (*HLOOPT, written(tmp_path, SENT))
    result = subprocess.run(
        words,
        env=mpi.environment() | {other: "8"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (result.returncode, result.stdout) == (5, "")
    assert "mpiexec has started 8 processes, which do not see each other" in result.stderr


def test_only_the_host_runs_on_processes(tmp_path: Path) -> None:
    result = invoke("run", written(tmp_path, SENT), "--participants", "mpi", "--device", "emulator")
    assert result.exit_code == 2
    assert "--participants mpi is for --device cpu and native, not emulator" in result.stderr


def test_without_mpi4py_the_command_that_installs_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    result = invoke("run", written(tmp_path, SENT), "--participants", "mpi")
    assert result.exit_code == 5
    assert "--participants mpi needs MPI: pip install" in result.stderr
    assert "[mpi]" in result.stderr
