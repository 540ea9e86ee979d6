"""What Python's garbage collector does while modules are made."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, weakref
from hloopt.ir import build
from hloopt.ir.build import no_collection

class Ring:
    def __init__(self):
        self.own = self

build._MOST_UNSEEN = {most}
runs = []
gc.collect()
gc.callbacks.append(lambda phase, info: runs.append(info["generation"]) if phase == "start" else None)
with no_collection():
    assert not gc.isenabled()
    with no_collection():
        kept = [[number] for number in range(5000)]
        garbage = weakref.ref(Ring())
    assert not gc.isenabled()
assert gc.isenabled()
more = [[number] for number in range(200)]
old = {{id(one) for one in gc.get_objects(generation=2)}}
assert id(kept[0]) in old and id(kept[-1]) in old and not gc.get_freeze_count()
print(runs, garbage() is None)
"""


@pytest.mark.parametrize(("most", "shown"), [(1_000_000, "[] False"), (1_000, "[2] True")])
def test_what_is_made_at_once_is_not_examined_until_it_is_much(most: int, shown: str) -> None:
    """It is old at once, without a collection; of more than so many objects the garbage is collected.

    In a process of its own, since the suite freezes its objects.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(most=most)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == shown, done.stderr
