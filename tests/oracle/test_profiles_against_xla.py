"""Of what jax.profiler measures of real programs, nearly all is joined to instructions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hloopt.extras import jaxlib_python
from hloopt.profiles import read_profile
from hloopt.profiles.spans import TraceProfile
from hloopt.proto import read_proto
from hloopt.report.measured import held_modules, measured

PYTHON = jaxlib_python()


def has_jax() -> bool:
    if PYTHON is None:
        return False
    return (
        subprocess.run([PYTHON, "-c", "import jax"], capture_output=True, check=False).returncode
        == 0
    )


pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not has_jax(), reason="no jax: install the extra xla"),
    pytest.mark.timeout(300),
]
LEAST = 0.95


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a trace of five programs is."""
    made = tmp_path_factory.mktemp("trace")
    script = Path(__file__).with_name("record_profile.py")
    assert PYTHON is not None
    subprocess.run([PYTHON, str(script), str(made)], check=True, capture_output=True, timeout=200)
    return made


def only(folder: Path, pattern: str) -> TraceProfile:
    (path,) = folder.rglob(pattern)
    return read_profile(path)


def test_an_xplane_is_joined_to_the_modules_that_it_holds(folder: Path) -> None:
    profile = only(folder, "*.xplane.pb")
    programs = held_modules(profile)
    assert len(programs) == 5
    whole = joined = 0.0
    for program in programs:
        times = measured(read_proto(program.module, program.label), profile, program=program)
        assert times.measured.runs == 5
        whole += times.measured.total
        joined += times.measured.total * times.measured.share(times.measured.joined)
    assert whole == pytest.approx(sum(program.total for program in profile.programs))
    assert joined >= LEAST * whole


def test_the_json_of_the_same_run_is_joined_by_name(folder: Path) -> None:
    modules = {
        program.name: read_proto(program.module, program.label)
        for program in held_modules(only(folder, "*.xplane.pb"))
    }
    profile = only(folder, "*.trace.json.gz")
    for program in profile.programs:
        found = measured(modules[program.name], profile).measured
        assert found.program is program
        assert found.share(found.joined) >= LEAST
