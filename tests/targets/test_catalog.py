"""Devices by name and from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hloopt.errors import UsageError
from hloopt.targets import find_target, targets


def test_every_device_is_whole() -> None:
    """Names are those of the tables; no figure is missing or zero."""
    for name, target in targets().items():
        assert target.name == name
        assert target.kind == "cuda"
        for figure in (target.cores, target.clock_ghz, target.memory_bandwidth, target.l2_size):
            assert figure > 0
        assert target.shared_per_block <= target.shared_per_block_optin <= target.shared_per_core
        assert target.threads_per_core % target.warp_size == 0


def test_the_h200() -> None:
    """Figures as XLA's description has them."""
    target = find_target("h200")
    assert (target.cores, target.fpus_per_core, target.capability) == (132, 128, (9, 0))
    assert target.memory_bandwidth == 4_800_000_000_000
    assert target.l2_size == 50 << 20


def test_an_unknown_device_is_a_usage_error() -> None:
    """With the nearest name."""
    with pytest.raises(UsageError, match="no target is called 'h20'; did you mean 'h200'"):
        find_target("h20")


def device(**changes: object) -> str:
    row: dict[str, object] = {
        "title": '"mine"', "capability": "[8, 9]", "cores": 10, "fpus_per_core": 128, "clock_ghz": 2,
        "memory_bandwidth": 10**12, "memory_size": 2**34, "l2_size": 2**25,
        "shared_per_block_optin": 101376, "shared_per_core": 102400, **changes,
    }  # fmt: skip
    return "\n".join(f"{key} = {value}" for key, value in row.items() if value is not None)


def test_a_device_of_a_file(tmp_path: Path) -> None:
    """Called like the file unless it says its name; what all devices have in common may be left out."""
    path = tmp_path / "mine.toml"
    path.write_text(device())
    target = find_target(str(path))
    assert (target.name, target.clock_ghz, target.warp_size) == ("mine", 2.0, 32)
    path.write_text(device(name='"other"'))
    assert find_target(str(path)).name == "other"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cores": None}, "mine does not say its cores"),
        ({"core": 3}, "'core' says nothing of a device; did you mean 'cores'"),
        ({"cores": '"ten"'}, "cores is an integer, not 'ten'"),
        ({"cores": -1}, "cores is -1, less than 0"),
        ({"capability": "[8]"}, "capability is a list of 2 numbers"),
        ({"cores": "="}, "Invalid value"),
    ],
)
def test_a_file_that_describes_no_device(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    """Names the file and the key."""
    path = tmp_path / "mine.toml"
    path.write_text(device(**changes))
    with pytest.raises(UsageError) as caught:
        find_target(str(path))
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_a_file_that_is_not_there() -> None:
    """Says so."""
    with pytest.raises(UsageError, match=r"gone\.toml: No such file"):
        find_target("gone.toml")
