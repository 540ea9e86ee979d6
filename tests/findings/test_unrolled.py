"""Copies that a Python loop left are found whatever they share, and the loop written of them computes the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import hloopt
from hloopt.findings.repeats import repeats
from hloopt.findings.unrolled import _plan, _rolled
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.prover.compare import compare_modules
from hloopt.verifier import verify_module

_ROW = "f32[8]"


def _module(body: Callable[[int], str], parameters: str, root: str, count: int = 12) -> Module:
    """A module whose ENTRY has ``count`` copies of some lines; ``h0`` is where the first one begins."""
    lines = "\n".join(body(number) for number in range(count))
    text = f"""HloModule traced
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }}
ENTRY main {{
  h0 = {_ROW} parameter(0)
  zero = f32[] constant(0)
{parameters}
{lines}
  {root}
}}
"""
    return hloopt.parse(text)


def _chain(number: int) -> str:
    return f"""  a{number} = {_ROW} sine(h{number})
  sum{number} = {_ROW} add(a{number}, h{number})
  out{number} = {_ROW} tanh(sum{number})
  h{number + 1} = {_ROW} multiply(out{number}, a{number})"""


def _with_slices(number: int) -> str:
    row = f"""  cut{number} = f32[1,8] slice(x), slice={{[{number + 2}:{number + 3}], [0:8]}}
  given{number} = {_ROW} reshape(cut{number})
"""
    return row + _chain(number).replace(
        f"add(a{number}, h{number})", f"add(a{number}, given{number})"
    )


def _with_constants(number: int) -> str:
    row = f"""  k{number} = f32[] constant({number * number})
  kk{number} = {_ROW} broadcast(k{number}), dimensions={{}}
"""
    return row + _chain(number).replace(f"add(a{number}, h{number})", f"add(a{number}, kk{number})")


def _with_weights(number: int) -> str:
    row = f"  w{number} = {_ROW} parameter({number + 1})\n"
    return row + _chain(number).replace(f"add(a{number}, h{number})", f"add(a{number}, w{number})")


def _with_sums(number: int) -> str:
    return (
        _chain(number)
        + f"""
  q{number} = f32[] reduce(h{number + 1}, zero), dimensions={{0}}, to_apply=add"""
    )


_ALL = ", ".join(f"q{number}" for number in range(12))
_LOOPS = {
    "last value": _module(_chain, "", "ROOT r = (f32[8]) tuple(h12)"),
    "last value is the result": _module(_chain, "", "ROOT r = f32[8] copy(h12)"),
    "slices": _module(_with_slices, "  x = f32[20,8] parameter(1)", "ROOT r = f32[8] abs(h12)"),
    "constants": _module(_with_constants, "", "ROOT r = f32[8] abs(h12)"),
    "weights": _module(_with_weights, "", "ROOT r = f32[8] abs(h12)"),
    "every value": _module(_with_sums, "", f"ROOT r = ({', '.join(['f32[]'] * 12)}) tuple({_ALL})"),
    "a value amid": _module(_chain, "", "ROOT r = (f32[8], f32[8]) tuple(h12, sum7)"),
}


@pytest.mark.parametrize("name", _LOOPS)
def test_the_loop_computes_what_the_copies_did(name: str) -> None:
    """In far fewer instructions, whatever the copies share or have of their own."""
    module = _LOOPS[name]
    found = repeats(module.entry)
    assert found is not None
    assert len(found.copies) >= 10
    copy = clone_module(module)
    places = [copy.entry.by_name[one.name] for one in found.members]
    assert _rolled(copy, places)
    verify_module(copy)
    assert any(one.opcode == "while" for one in copy.entry)
    if name not in ("weights", "every value"):
        assert copy.instruction_count() < module.instruction_count()
    assert compare_modules(module, copy).verdict in ("equal", "within tolerance")


def test_a_root_within_the_copies_is_replaced() -> None:
    """The last instruction of the last copy is the result itself."""
    module = _module(_chain, "", "ROOT r = f32[8] copy(h12)")
    text = "\n".join(row for row in module.to_text().splitlines() if "copy(" not in row)
    module = hloopt.parse(text.replace("  %h12 =", "  ROOT %h12 ="))
    found = repeats(module.entry)
    assert found is not None
    copy = clone_module(module)
    assert _rolled(copy, [copy.entry.by_name[one.name] for one in found.members])
    verify_module(copy)
    assert compare_modules(module, copy).verdict == "equal"


def _growing(number: int) -> str:
    dims = 8 * (number + 1), 8 * (number + 2)
    return f"""  a{number} = f32[{dims[0]}] sine(h{number})
  sum{number} = f32[{dims[0]}] tanh(a{number})
  h{number + 1} = f32[{dims[1]}] concatenate(sum{number}, h0), dimensions={{0}}"""


def _two_back(number: int) -> str:
    before = f"h{max(number - 1, 0)}"
    return _chain(number).replace(f"add(a{number}, h{number})", f"add(a{number}, {before})")


_NO_LOOPS = {
    "shapes grow": _module(_growing, "", "ROOT r = f32[104] abs(h12)"),
    "few": _module(_chain, "", "ROOT r = f32[8] abs(h6)", 6),
    "the value before the last": _module(_two_back, "", "ROOT r = f32[8] abs(h12)"),
}


@pytest.mark.parametrize("name", _NO_LOOPS)
def test_what_is_no_such_loop_is_left(name: str) -> None:
    """Nothing is found, or what is found can't be written."""
    found = repeats(_NO_LOOPS[name].entry)
    assert found is None or _plan(found) is None


def test_thousands_of_copies_are_found_in_one_sweep() -> None:
    """In time that grows with the instructions."""
    module = _module(_chain, "", "ROOT r = f32[8] abs(h3000)", 3_000)
    found = repeats(module.entry)
    assert found is not None
    assert (found.period, len(found.copies)) == (4, 3_000)
