"""Which emitter a kernel falls to: XLA's tests in their order, each on both sides."""

from __future__ import annotations

import pytest

from hloopt.analysis.emitters.kind import emission
from hloopt.analysis.region import Region
from tests.analysis.emitters.regions import fusion, lone

ROWS = "z = f32[] constant(0)\nr = f32[64] reduce(p0, z), dimensions={1}, to_apply=sum\n"


def _kind(region: Region) -> tuple[str, tuple[str, ...]]:
    found = emission(region)
    return found.kind, tuple(hero.name for hero in found.heroes)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("__custom_fusion", "custom"),
        ("__triton", "triton"),
        ("__triton_gemm", "triton"),
        ("__triton_nested_gemm_fusion", "triton"),
        ("__cudnn$fusion", "cudnn"),
        ("__something_else", "loop"),
    ],
)
def test_backend_config_decides_first(said: str, kind: str) -> None:
    """What it names is run, whatever the body."""
    config = f', backend_config={{"fusion_backend_config":{{"kind":"{said}"}}}}'
    region = fusion("f32[8]", "ROOT n = f32[8] negate(p0)", "f32[8]", more=config)
    assert _kind(region)[0] == kind


def test_a_reduction_with_an_epilogue() -> None:
    """The reduce is the hero of the root it is seen from."""
    region = fusion("f32[64,64]", f"{ROWS}ROOT n = f32[64] negate(r)", "f32[64]", "kInput")
    assert _kind(region) == ("reduction", ("r",))
    assert emission(region).hero.name == "r"


@pytest.mark.parametrize(
    ("dims", "expected"),
    [("[64,16384]", "reduction"), ("[64,16385]", "loop"), ("[64,31]", "loop"), ("[64,0]", "loop")],
)
def test_an_epilogue_needs_a_reduction_of_one_block(dims: str, expected: str) -> None:
    """Longer rows, rows too short to share and rows of nothing are left to loops."""
    body = f"{ROWS}ROOT n = f32[64] negate(r)"
    assert _kind(fusion(f"f32{dims}", body, "f32[64]"))[0] == expected


def test_a_long_reduction_alone_is_one() -> None:
    """The root itself may be split later."""
    body = ROWS.replace("r = ", "ROOT r = ")
    assert _kind(fusion("f32[64,16385]", body, "f32[64]"))[0] == "reduction"


@pytest.mark.parametrize(
    ("other", "shape", "expected"),
    [
        ("s = f32[64] reduce(p0, z), dimensions={1}, to_apply=sum", "f32[64]", "reduction"),
        ("s = f32[64] reduce(p0, z), dimensions={0}, to_apply=sum", "f32[64]", "loop"),
        ("s = f32[64,64] negate(p0)", "f32[64,64]", "reduction"),
        ("s = f32[4096] reshape(p0)", "f32[4096]", "reduction"),
        ("s = f32[63,64] slice(p0), slice={[0:63],[0:64]}", "f32[63,64]", "loop"),
    ],
)
def test_several_results_of_a_reduction(other: str, shape: str, expected: str) -> None:
    """Reductions in one normal form, and results with an element for each that is reduced."""
    body = f"{ROWS}{other}\nROOT t = (f32[64], {shape}) tuple(r, s)"
    region = fusion("f32[64,64]", body, f"(f32[64], {shape})", "kInput")
    kind, heroes = _kind(region)
    assert (kind, heroes) == (expected, ("r", "s"))


def test_the_first_result_need_not_be_the_reduction() -> None:
    """The tiling's hero is the reduce, whichever result it is."""
    body = f"{ROWS}s = f32[64,64] negate(p0)\nROOT t = (f32[64,64], f32[64]) tuple(s, r)"
    found = emission(fusion("f32[64,64]", body, "(f32[64,64], f32[64])", "kInput"))
    assert (found.kind, found.hero.name) == ("reduction", "r")


@pytest.mark.parametrize(
    ("other", "shape", "expected"),
    [
        ("s = f32[64,32] transpose(p0), dimensions={1,0}", "f32[64,32]", "transpose"),
        ("s = f32[32,64] negate(p0)", "f32[32,64]", "transpose"),
        ("s = f32[2048] reshape(p0)", "f32[2048]", "transpose"),
        ("s = f32[64,32] broadcast(p1), dimensions={1}", "f32[64,32]", "transpose"),
        ("s = f32[32] negate(p1)", "f32[32]", "loop"),
        ("s = f32[32,64]{0,1} copy(p0)", "f32[32,64]{0,1}", "loop"),
    ],
)
def test_transposes(other: str, shape: str, expected: str) -> None:
    """All in one form; what else there is must lie as the operand does."""
    body = f"t = f32[64,32] transpose(p0), dimensions={{1,0}}\n{other}\nROOT u = (f32[64,32], {shape}) tuple(t, s)"
    region = fusion("f32[32,64] f32[32]", body, f"(f32[64,32], {shape})", "kInput")
    assert _kind(region)[0] == expected


def test_small_transposes_are_loops() -> None:
    """15 by 64 elements are too few for a tile."""
    body = "ROOT t = f32[64,15] transpose(p0), dimensions={1,0}"
    assert _kind(fusion("f32[15,64]", body, "f32[64,15]"))[0] == "loop"
    assert _kind(
        lone("p = f32[16,64] parameter(0)\nROOT t = f32[64,16] transpose(p), dimensions={1,0}")
    ) == (
        "transpose",
        ("t",),
    )


def test_two_forms_of_transposes_are_a_loop() -> None:
    """No single tile serves both."""
    body = (
        "t = f32[32,64,32] transpose(p0), dimensions={2,1,0}\n"
        "u = f32[32,32,64] transpose(p0), dimensions={2,0,1}\n"
        "ROOT v = (f32[32,64,32], f32[32,32,64]) tuple(t, u)"
    )
    region = fusion("f32[32,64,32]", body, "(f32[32,64,32], f32[32,32,64])", "kInput")
    assert _kind(region)[0] == "loop"


@pytest.mark.parametrize(
    ("count", "expected"), [(2, "concatenate"), (4, "concatenate"), (5, "loop")]
)
def test_concatenates(count: int, expected: str) -> None:
    """At most 4 operands, behind elementwise ops too."""
    shapes = " ".join(["f32[8]"] * count)
    operands = ", ".join(f"p{number}" for number in range(count))
    body = (
        f"c = f32[{8 * count}] concatenate({operands}), dimensions={{0}}\n"
        f"ROOT n = f32[{8 * count}] negate(c)"
    )
    region = fusion(shapes, body, f"f32[{8 * count}]")
    found = emission(region)
    assert (found.kind, found.hero.name) == (expected, "c" if expected == "concatenate" else "n")


def test_a_result_beside_a_concatenate_makes_it_a_loop() -> None:
    """That emitter has one result."""
    body = (
        "c = f32[16] concatenate(p0, p0), dimensions={0}\nn = f32[16] negate(c)\n"
        "ROOT t = (f32[16], f32[16]) tuple(c, n)"
    )
    assert _kind(fusion("f32[8]", body, "(f32[16], f32[16])"))[0] == "loop"


def test_scatters_and_sorts() -> None:
    """By the root's opcode, in fusions and alone."""
    less = "less { a = f32[] parameter(0) b = f32[] parameter(1)\nROOT c = pred[] compare(a, b), direction=LT }\n"
    sort = "ROOT s = f32[8] sort(p0), dimensions={0}, to_apply=less"
    assert _kind(fusion("f32[8]", sort, "f32[8]", "kInput", computations=less))[0] == "sort"
    scatter = (
        "ROOT s = f32[8] scatter(p0, p1, p2), update_window_dims={}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum"
    )
    assert _kind(fusion("f32[8] s32[2,1] f32[2]", scatter, "f32[8]", "kInput"))[0] == "scatter"


@pytest.mark.parametrize(
    ("result", "expected"), [("f32[4,8]{1,0}", "memcpy"), ("f32[4,8]{0,1}", "loop")]
)
def test_copies(result: str, expected: str) -> None:
    """Bytes that stay as they are need no kernel."""
    assert (
        _kind(lone(f"p = f32[4,8]{{1,0}} parameter(0)\nROOT c = {result} copy(p)"))[0] == expected
    )
    body = (
        f"c = {result} copy(p0)\nd = {result} copy(p0)\nROOT t = ({result}, {result}) tuple(c, d)"
    )
    assert _kind(fusion("f32[4,8]{1,0}", body, f"({result}, {result})"))[0] == expected


def test_a_copy_of_something_computed_is_a_loop() -> None:
    """There are no bytes to copy."""
    body = "n = f32[8] negate(p0)\nROOT c = f32[8] copy(n)"
    assert _kind(fusion("f32[8]", body, "f32[8]"))[0] == "loop"


def test_calls_of_the_user_are_custom() -> None:
    """Nobody lays them out here."""
    body = 'p = f32[8] parameter(0)\nROOT c = f32[8] custom-call(p), custom_call_target="mine"'
    found = emission(lone(body))
    assert (found.kind, found.reason) == ("custom", "a call of mine")


@pytest.mark.parametrize(
    "body",
    [
        "p = f32[8] parameter(0)\nROOT t = (f32[8]) tuple(p)",
        "p = f32[8] parameter(0)\nROOT b = s32[8] bitcast(p)",
        "ROOT p = f32[8] parameter(0)",
        "p = f32[8] parameter(0)\nROOT r = f32[8] all-reduce(p), to_apply=sum",
    ],
)
def test_what_no_kernel_runs_is_refused(body: str) -> None:
    """Named with its opcode."""
    region = lone(body)
    with pytest.raises(ValueError, match=f"no kernel runs a {region.instruction.opcode}"):
        emission(region)
