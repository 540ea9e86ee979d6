"""All elementwise ops, compiled once for all tests of this folder."""

from __future__ import annotations

import pytest

from hloopt.codegen.device import Uses
from hloopt.codegen.scalars import scalar_problem
from tests.codegen.scalars.device_code import COMPILER, Case, Compiled
from tests.codegen.scalars.packed_bodies import packed_bodies
from tests.codegen.scalars.scalar_cases import all_cases


@pytest.fixture(scope="session")
def executable_cases() -> list[Case]:
    """The cases that have an expression."""
    return [
        case
        for case in all_cases()
        if not scalar_problem(case.opcode, case.kinds, case.result, case.attributes)
    ]


@pytest.fixture(scope="session")
def device(executable_cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Their code, compiled for the CPU."""
    if COMPILER is None:
        pytest.skip("no C++ compiler (c++) on the path")
    uses = Uses()
    bodies = packed_bodies(uses)
    return Compiled(executable_cases, bodies, uses, tmp_path_factory.mktemp("device_code"))
