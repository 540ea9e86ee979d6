"""Kernels of one's own: objects, Python files, CUDA files, installed ones; verified before they may be chosen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hloopt
from hloopt.analysis.region import region_of
from hloopt.errors import UsageError
from hloopt.kernels import registry, user
from hloopt.kernels.arithmetic import evaluate
from hloopt.kernels.kernel import Kernel, Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.spec import KernelSpec
from hloopt.kernels.user import load_kernels, of_object, renamed
from tests.kernels.selecting import DEVICE, MADE_UP, TEXT, by_name

ADD = '''class Adder:
    """Adds vectors of floats."""

    name = "my-add"

    def matches(self, site):
        instruction = site.region.instruction
        if instruction.opcode != "add":
            return False
        dtype = str(instruction.shape.dtype)
        return True if dtype == "f32" else f"{dtype} is not f32"

    def source(self, site):
        return """
            __device__ float plus(float a, float b) { return a + b; }
            extern "C" __global__ void __launch_bounds__(256) my_add(
                const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int n)
            {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) out[i] = plus(a[i], b[i]);
            }
        """

    def launch(self, site):
        n = site.region.results[0].shape.elements
        return -(-n // 256), 256, (n,)


adder = Adder()
'''

SOFTMAX_HLO = """HloModule softmax

largest { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }

ENTRY softmax {
  x = f32[$rows,$columns] parameter(0)
  low = f32[] constant(-inf)
  ROOT top = f32[$rows] reduce(x, low), dimensions={1}, to_apply=largest
}
"""

SOFTMAX_CU = """/*
summary = "the largest of each row, a thread a row"
function = "row_max"
grid = ["ceil_div(rows, 32)"]
block = ["32"]
scalars = ["rows", "columns"]
*/
extern "C" __global__ void row_max(
    const float* __restrict__ x, const float* __restrict__ low, float* __restrict__ y, int rows, int columns)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float top = low[0];
    for (int i = 0; i < columns; ++i) top = fmaxf(top, x[row * columns + i]);
    y[row] = top;
}
"""


@pytest.fixture(autouse=True)
def _verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a verifier at first, and nothing remembered."""
    monkeypatch.setattr(user, "_STATE", {})
    monkeypatch.setattr(user, "_VERIFIED", {})


def trust(_: Site, __: Kernel, ___: KernelSpec) -> str:
    return ""


def site_of(text: str, name: str) -> Site:
    return Site(region_of(by_name(hloopt.parse(text), name)), DEVICE, Limits())


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_python_file_gives_its_kernels(tmp_path: Path) -> None:
    """The row has the object's name and the first line of its docstring; launch and arguments are its own."""
    (kernel,) = load_kernels(write(tmp_path, "my.py", ADD))
    user.verify_with(trust)
    assert (kernel.name, kernel.summary) == ("my-add", "Adds vectors of floats.")
    assert kernel.owner == str(tmp_path / "my.py")
    site = site_of(TEXT, "sum")
    assert kernel.fits(site)
    assert kernel.wanted(site)
    (launch,) = kernel.spec(site, {}).steps
    assert launch.grid == (4, 1, 1)  # type: ignore[union-attr]
    assert launch.block == (256, 1, 1)  # type: ignore[union-attr]
    assert launch.scalars == (1024,)  # type: ignore[union-attr]
    roles = [(one.place.kind, one.place.number, one.role) for one in launch.arguments]  # type: ignore[union-attr]
    assert roles == [("operand", 0, "in"), ("operand", 1, "in"), ("result", 0, "out")]


def test_reasons_of_a_refusal(tmp_path: Path) -> None:
    """False is a refusal without words, a text one with its reason."""
    (kernel,) = load_kernels(write(tmp_path, "my.py", ADD))
    user.verify_with(trust)
    assert kernel.fits(site_of(TEXT, "minus")).reason == "my-add does not match it"
    assert kernel.fits(site_of(TEXT.replace("f32", "f64"), "sum")).reason == "f64 is not f32"


def test_nothing_is_chosen_that_is_not_verified(tmp_path: Path) -> None:
    """Without a verifier, and where the verifier finds something; asked once for the same instruction."""
    (kernel,) = load_kernels(write(tmp_path, "my.py", ADD))
    site = site_of(TEXT, "sum")
    assert "cannot be verified here" in kernel.fits(site).reason
    asked = []

    def doubt(where: Site, row: Kernel, spec: KernelSpec) -> str:
        asked.append((where.region.instruction.name, row.name, len(spec.steps)))
        return "it gives 3 where the interpreter gives 4"

    user.verify_with(doubt)
    for text in (TEXT, TEXT.replace("minus", "other")):
        verdict = kernel.fits(site_of(text, "sum"))
        assert verdict.reason == "it gives 3 where the interpreter gives 4"
    assert asked == [("sum", "my-add", 1)]
    assert not kernel.fits(site_of(TEXT.replace("1024", "512"), "sum"))
    assert len(asked) == 2


def test_the_source_gets_names_of_its_own(tmp_path: Path) -> None:
    """The kernel is called as the program wants, helpers with that in front: it may be there twice."""
    (kernel,) = load_kernels(write(tmp_path, "my.py", ADD))
    site = site_of(TEXT, "sum")
    assert kernel.source is not None
    text = kernel.source(site, kernel.spec(site, {}), "sum_1")
    assert "__launch_bounds__(256) sum_1(" in text
    assert "float sum_1_plus(float a, float b)" in text
    assert "out[i] = sum_1_plus(a[i], b[i]);" in text


@pytest.mark.parametrize("source", ["", "__device__ int f(int x) { return x; }", "void f() {}"])
def test_a_source_without_a_kernel_is_refused(source: str) -> None:
    """There has to be exactly one."""
    with pytest.raises(UsageError, match="my-add: its source has 0 __global__ functions, not one"):
        renamed(source, "f", "my-add")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "return -(-n // 256), 256, (n,)",
            "return 4",
            "my-add.launch answers 4, not (grid, block)",
        ),
        ("256, (n,)", "2048, (n,)", "a block of 2048 threads; there can be 1024"),
        ("256, (n,)", "0, (n,)", "0 is not one to three positive numbers"),
        ("256, (n,)", "256, (n << 31,)", "scalars are 32-bit integers"),
        ("-(-n // 256), 256", "(1, 70000), 256", "a grid of (1, 70000, 1); there can be"),
    ],
)
def test_a_launch_that_cannot_be(tmp_path: Path, old: str, new: str, message: str) -> None:
    """A usage error that names kernel and figure."""
    (kernel,) = load_kernels(write(tmp_path, "my.py", ADD.replace(old, new)))
    with pytest.raises(UsageError) as caught:
        kernel.spec(site_of(TEXT, "sum"), {})
    assert message in str(caught.value)


def test_errors_in_a_kernel_are_the_users(tmp_path: Path) -> None:
    """File and line, the method, the instruction, the exception; no traceback."""
    path = write(tmp_path, "my.py", ADD.replace("return False", "return 1 / 0"))
    (kernel,) = load_kernels(path)
    with pytest.raises(UsageError) as caught:
        kernel.fits(site_of(TEXT, "minus"))
    assert str(caught.value) == (
        f"{path}:9: my-add.matches failed on %minus: ZeroDivisionError: division by zero"
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "my.py",
            "x = 1",
            "nothing in it is a kernel (an object with name, matches, source, launch)",
        ),
        ("my.py", "x = (", "my.py:1: SyntaxError"),
        ("my.py", "a = 1\nraise ValueError('no')", "my.py:2: ValueError: no"),
        ("my.py", ADD.replace('"my-add"', '"my add"'), "needs a name of letters, digits and -"),
        ("my.txt", "x", "neither a Python file (.py) nor CUDA C (.cu)"),
    ],
)
def test_files_that_give_no_kernel(tmp_path: Path, name: str, text: str, message: str) -> None:
    """A usage error with the file's name."""
    path = write(tmp_path, name, text)
    with pytest.raises(UsageError) as caught:
        load_kernels(path)
    assert str(caught.value).startswith(path)
    assert message in str(caught.value)


def test_a_file_that_is_not_there() -> None:
    """Of either kind."""
    for name in ("gone.py", "gone.cu"):
        with pytest.raises(UsageError, match=r"(?i)gone\.\w+: no such file"):
            load_kernels(name)


@pytest.fixture
def row_max(tmp_path: Path) -> Kernel:
    """The kernel of a CUDA file with its HLO beside it."""
    user.verify_with(trust)
    write(tmp_path, "row_max.hlo", SOFTMAX_HLO)
    (kernel,) = load_kernels(write(tmp_path, "row_max.cu", SOFTMAX_CU))
    return kernel


def fused(rows: int, columns: int, change: tuple[str, str] = ("", "")) -> str:
    body = SOFTMAX_HLO.replace("$rows", str(rows)).replace("$columns", str(columns))
    body = body.replace("ENTRY softmax", "body").replace(*change) if change[0] else body
    body = body.replace("ENTRY softmax", "body")
    return (
        body + f"ENTRY main {{ p = f32[{rows},{columns}] parameter(0)\n"
        f"  ROOT f = f32[{rows}] fusion(p), kind=kInput, calls=body }}\n"
    )


def test_a_cuda_file_stands_for_its_computation(row_max: Kernel) -> None:
    """Matched by structure whatever the names and sizes; the sizes give grid, block and scalars."""
    assert (row_max.name, row_max.summary) == ("row_max", "the largest of each row, a thread a row")
    for rows, columns in ((64, 10), (7, 7), (1000, 3)):
        site = site_of(fused(rows, columns, ("top", "other")), "f")
        assert row_max.fits(site)
        (launch,) = row_max.spec(site, {}).steps
        assert launch.grid == (-(-rows // 32), 1, 1)  # type: ignore[union-attr]
        assert launch.scalars == (rows, columns)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("maximum", "minimum"), "it computes something else"),
        (("dimensions={1}", "dimensions={0}"), "it has the same ops, but computes something else"),
        (("-inf", "0"), "it has the same ops, but computes something else"),
        (("maximum(a, b)", "maximum(a, a)"), "it has the same ops, but computes something else"),
    ],
)
def test_what_only_looks_alike_does_not_match(
    row_max: Kernel, change: tuple[str, str], reason: str
) -> None:
    """Opcodes, attributes, constants and operands count."""
    assert row_max.fits(site_of(fused(8, 8, change), "f")).reason == reason


def test_a_single_instruction_matches_as_well(tmp_path: Path) -> None:
    """Without any fusion around it; the HLO may stand in the comment."""
    user.verify_with(trust)
    hlo = "HloModule add\nENTRY e { a = f32[$n] parameter(0)\n b = f32[$n] parameter(1)\n ROOT c = f32[$n] add(a, b) }"
    text = f"/*\nname = \"cu-add\"\nhlo = '''\n{hlo}\n'''\ngrid = [\"ceil_div(n, 64)\"]\nblock = [\"64\"]\n*/\n"
    text += (
        'extern "C" __global__ void f(const float* __restrict__ a, const float* __restrict__ b, '
        "float* __restrict__ c) { c[0] = 0; }\n"
    )
    (kernel,) = load_kernels(write(tmp_path, "add.cu", text))
    assert kernel.name == "cu-add"
    assert kernel.fits(site_of(TEXT, "sum"))
    assert not kernel.fits(site_of(TEXT, "minus"))
    twice = TEXT.replace("add(x, y)", "add(x, x)")
    assert kernel.fits(site_of(twice, "sum")).reason == "it computes something else"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("/*", "//", "does not begin with a comment that says what it computes"),
        ('grid = ["', "grid = [", "its comment is not TOML"),
        ("block = ", "blocks = ", "'blocks' means nothing here; did you mean 'block'?"),
        ('block = ["32"]', "block = [32]", "'block' is a list of expressions in quotes"),
        ('block = ["32"]', "block = []", "'block' has one to three expressions"),
        ('"32"', '"threads"', "'threads': nothing is called 'threads'"),
        ('"32"', '"__import__(1)"', "no function is called '__import__'"),
        ('"row_max"', '"col_max"', "there is no function 'col_max' in it"),
        ("summary", 'hlo = "other.hlo"\nsummary', "the HLO it stands for cannot be read"),
    ],
)
def test_a_header_that_makes_no_sense(tmp_path: Path, old: str, new: str, message: str) -> None:
    """A usage error when the file is read, not when it is chosen."""
    write(tmp_path, "row_max.hlo", SOFTMAX_HLO)
    path = write(tmp_path, "row_max.cu", SOFTMAX_CU.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        load_kernels(path)
    assert str(caught.value).startswith(path)
    assert message in str(caught.value)


def test_a_size_that_nothing_gives_is_refused(tmp_path: Path) -> None:
    """A named size has to be a dimension of a parameter."""
    write(tmp_path, "row_max.hlo", SOFTMAX_HLO.replace("f32[$rows] reduce", "f32[$others] reduce"))
    path = write(tmp_path, "row_max.cu", SOFTMAX_CU)
    with pytest.raises(UsageError, match=r"\$others is not a dimension of a parameter"):
        load_kernels(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("rows * 3 + 1", 31),
        ("-(rows - 12) % 4", 2),
        ("rows // 3", 3),
        ("min(rows, 4, 6)", 4),
        ("max(1, rows - 20)", 1),
        ("ceil_div(rows, 4)", 3),
        ("round_up(rows, 8)", 16),
        ("power_of_two(rows)", 16),
        ("power_of_two(1)", 1),
    ],
)
def test_expressions(text: str, value: int) -> None:
    """Integers as Python has them, with rows = 10."""
    assert evaluate(text, {"rows": 10}) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("row", "nothing is called 'row'; did you mean 'rows'?"),
        ("rows / 2", "'rows / 2' is not understood"),
        ("rows ** 9", "is not understood"),
        ("rows.real", "is not understood"),
        ("(lambda: 1)()", "is not understood"),
        ("[1][0]", "is not understood"),
        ("True", "is not understood"),
        ("'a' * 9", "is not understood"),
        ("min()", "min takes one or more numbers"),
        ("ceil_div(1)", "ceil_div takes 2 numbers"),
        ("min(*rows)", "is not understood"),
        ("open(1)", "no function is called 'open'"),
        ("rows // 0", "divides by zero"),
        ("rows +", "is not an expression"),
        ("1" * 30, "does not fit into 63 bits"),
        ("1 + " * 60 + "1", "an expression has at most 200 characters"),
    ],
)
def test_what_is_no_expression(text: str, message: str) -> None:
    """Nothing is executed; what is not understood is quoted."""
    with pytest.raises(UsageError) as caught:
        evaluate(text, {"rows": 10})
    assert message in str(caught.value)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Writes a distribution with an entry point of the group."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(entry: str, text: str) -> None:
        (tmp_path / "their_kernels.py").write_text(text)
        folder = tmp_path / "their_kernels-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: their-kernels\nVersion: 1.0\n"
        )
        (folder / "entry_points.txt").write_text(f"[hloopt.kernels]\n{entry}\n")

    monkeypatch.delitem(__import__("sys").modules, "their_kernels", raising=False)
    monkeypatch.setattr(registry, "_own", lambda: MADE_UP)
    registry._installed.cache_clear()
    user._installed.cache_clear()
    yield install
    registry._installed.cache_clear()
    user._installed.cache_clear()
    shutil.rmtree(tmp_path / "their_kernels-1.0.dist-info", ignore_errors=True)


def test_an_installed_kernel_comes_before_hloopts_own(installed: Any) -> None:
    """By its entry point; its owner is the distribution."""
    installed("my-add = their_kernels:adder", ADD)
    names = [kernel.name for kernel in registry.kernels()]
    assert names == ["my-add", "never", "adder", "slow", "quick"]
    assert registry.find_kernel("my-add").owner == "their-kernels"


@pytest.mark.parametrize(
    ("entry", "text", "message"),
    [
        ("my-add = their_kernels:gone", ADD, "cannot be loaded: AttributeError"),
        ("other = their_kernels:adder", ADD, "gives a kernel called 'my-add'"),
        ("my-add = their_kernels:Adder.name", ADD, "is not a kernel: it has no 'name'"),
        (
            "quick = their_kernels:adder",
            ADD.replace("my-add", "quick"),
            "there is a kernel 'quick' already",
        ),
    ],
)
def test_an_installed_kernel_that_is_none(
    installed: Any, entry: str, text: str, message: str
) -> None:
    """A usage error naming the entry point or the distribution."""
    installed(entry, text)
    with pytest.raises(UsageError) as caught:
        registry.kernels()
    assert message in str(caught.value)
    assert "their-kernels" in str(caught.value)


def test_a_name_that_is_taken_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hloopt's own kernels or by another file; what was registered is forgotten at the end of its block."""
    monkeypatch.setattr(registry, "_own", lambda: MADE_UP)
    text = ADD.replace("my-add", "quick")
    with (
        pytest.raises(UsageError, match="there is a kernel 'quick' already"),
        registry.registered(load_kernels(write(tmp_path, "my.py", text))),
    ):
        pass
    found = load_kernels(write(tmp_path, "mine.py", ADD))
    with registry.registered(found):
        assert registry.kernels()[0].name == "my-add"
        with pytest.raises(UsageError, match=r"there is a kernel 'my-add' already \(.*mine\.py\)"):
            registry.register(found[0])
    assert registry.kernels()[0].name == "never"


def test_an_object_without_a_docstring_has_a_summary() -> None:
    """The list of kernels says whose it is."""

    class Bare:
        name = "bare"

    assert of_object(Bare(), "here").summary == "a kernel of the user's"
