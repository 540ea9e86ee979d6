"""PyTorch in, by torch-mlir, and out, by torch.compile; run where torch, torch-mlir and jaxlib are."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

import hloopt
from hloopt.errors import UnsupportedError, UsageError
from hloopt.extras import jaxlib_python

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torch_mlir.fx", reason="torch-mlir is not installed")
if jaxlib_python() is None:
    pytest.skip("no Python with jaxlib is known", allow_module_level=True)

import hloopt.torch as ht  # noqa: E402
from tests.frameworks.torch_modules import Mlp, cases  # noqa: E402

# torch warns of its own deprecated parts.
pytestmark = pytest.mark.filterwarnings("default")
CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_a_module_gives_what_torch_gives(name: str) -> None:
    module, args = CASES[name]
    model = ht.convert(module, args)
    found = hloopt.evaluate(model.module, model.arrays)
    allowed = 1e-2 if "bf16" in name else 1e-5
    for one, other in zip(found, model.expected, strict=True):
        np.testing.assert_allclose(
            one.astype(np.float64), other.astype(np.float64), rtol=0, atol=allowed
        )


def test_weights_are_parameters_with_their_names() -> None:
    model = ht.convert(Mlp(), (torch.zeros(4, 24),))
    assert [(one.name, one.kind) for one in model.inputs][-2:] == [
        ("layers.3.bias", "weight"),
        ("x", "input"),
    ]
    assert [one.name for one in model.outputs] == ["['y']", "['norm']"]
    names = [one.metadata.fields["op_name"] for one in model.module.entry.parameters]
    assert names == [one.name for one in model.inputs]


def test_what_a_module_changes_in_place_comes_first() -> None:
    module, args = CASES["resnet in training"]
    before = module.norms[0].running_mean.clone()
    model = ht.convert(module, args)
    kinds = [one.kind for one in model.outputs]
    assert kinds == ["buffer"] * 9 + ["result"]
    assert torch.equal(module.norms[0].running_mean, before)


def test_arguments_that_are_no_tensors_are_constants() -> None:
    class Power(torch.nn.Module):
        def forward(self, x, n, *, scale):
            return {"power": x**n * scale["by"], "n": n}

    model = ht.convert(Power(), (torch.arange(3.0), 3), {"scale": {"by": torch.tensor(2.0)}})
    assert [one.name for one in model.inputs] == ["x", "scale['by']"]
    (found,) = hloopt.evaluate(model.module, model.arrays)
    assert found.tolist() == [0, 2, 16]


def test_random_results_are_not_expected() -> None:
    model = ht.convert(torch.nn.Dropout(0.5), (torch.ones(64),))
    assert model.expected is None


def test_a_folder_is_read_back(tmp_path) -> None:
    module, args = CASES["mlp"]
    folder = tmp_path / "model"
    ht.convert(module, args).write(folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "data",
        "model.json",
        "model.mlir",
        "model.mlir.bc",
    ]
    command = [sys.executable, "-m", "hloopt", "run", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "inputs: snapshot" in done.stdout
    assert hloopt.read(folder / "model.mlir.bc").entry.parameter_shapes[-1].dims == (4, 24)


def test_what_torch_mlir_lacks_is_an_error_at_its_line() -> None:
    class Lapack(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.qr(x)[0]

    with pytest.raises(UnsupportedError, match=r"torch-mlir has no StableHLO for torch\.aten") as e:
        ht.convert(Lapack(), (torch.eye(3),))
    assert e.value.name.endswith("test_torch.py")
    assert e.value.line > 0


@pytest.mark.parametrize("name", ["attention", "resnet in training", "mlp in bf16", "diffusion"])
def test_torch_compile_gives_the_same_results_and_gradients(name: str) -> None:
    module, args = CASES[name]
    torch._dynamo.reset()
    fast = torch.compile(module, backend=ht.backend)
    warnings.simplefilter("error", UserWarning)  # AOTAutograd's: arguments come in a list
    allowed = 2e-2 if "bf16" in name else 1e-4
    for one, other in zip(_with_gradients(fast, args), _with_gradients(module, args), strict=True):
        torch.testing.assert_close(one, other, rtol=allowed, atol=allowed)


def _with_gradients(module, args):
    module.zero_grad()
    results = torch.utils._pytree.tree_leaves(module(*args))
    sum((one.float() ** 2).sum() for one in results).backward()
    return [one.detach() for one in results] + [one.grad.clone() for one in module.parameters()]


def _as_torch(model, *, rtol=0.0, atol=0.0) -> None:
    """Types and values are those of torch."""
    found = hloopt.evaluate(model.module, model.arrays)
    for one, other in zip(found, model.expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_bags_of_embeddings(mode: str, padding: int | None) -> None:
    """With an empty bag, one of padding alone, and a row that is infinite; and their gradient."""
    bags = torch.nn.EmbeddingBag(11, 5, mode=mode, padding_idx=padding)
    with torch.no_grad():
        bags.weight[7] = torch.inf
    args = (torch.tensor([1, 2, 3, 2, 2, 5, 6, 1, 1]), torch.tensor([0, 3, 3, 5]))
    model = ht.convert(bags, args)
    (found,) = hloopt.evaluate(model.module, model.arrays)
    np.testing.assert_allclose(found, model.expected[0], atol=1e-6)
    torch._dynamo.reset()
    fast = torch.compile(bags, backend=ht.backend)
    for one, other in zip(_with_gradients(fast, args), _with_gradients(bags, args), strict=True):
        torch.testing.assert_close(one, other)


def test_what_torch_mlir_lacks_is_taken_apart() -> None:
    class Parts(torch.nn.Module):
        def forward(self, x):
            larger = torch.nn.functional.interpolate(x, scale_factor=2, mode="nearest")
            whole = (x * 9).int()
            return larger, torch.cumprod(x, -1), torch.cumprod(whole, 0), torch.cumprod(x.sum(), 0)

    model = ht.convert(Parts(), (torch.randn(2, 3, 5, 7),))
    _as_torch(model, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64, torch.float32])
def test_remainders_have_the_sign_that_torch_gives_them(kind) -> None:
    """torch-mlir gives both that of what is divided."""

    def remainders(x, y):
        return [one(x, by) for one in (torch.remainder, torch.fmod) for by in (y, 3, -3)] + [7 % y]

    class Remainders(torch.nn.Module):
        def forward(self, x, y):
            return remainders(x, y)

    x = torch.tensor([-7, -6, -1, 0, 1, 5, 6, 7], dtype=kind)
    y = torch.tensor([3, -3, 5, -5, -2, 2, -4, 4], dtype=kind)
    model = ht.convert(Remainders(), (x, y))
    _as_torch(model)
    torch._dynamo.reset()
    fast = torch.compile(remainders, backend=ht.backend)
    for one, other in zip(fast(x, y), remainders(x, y), strict=True):
        torch.testing.assert_close(one, other)


def test_diagonals_are_elements() -> None:
    class Diagonals(torch.nn.Module):
        def forward(self, x):
            places = [(0, 0, 1), (1, 0, 1), (-2, 1, 2), (9, 0, 1), (0, 2, 0)]
            return [torch.diagonal(x, *place) for place in places]

    model = ht.convert(Diagonals(), (torch.randn(2, 4, 5),))
    _as_torch(model)


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.MaxPool2d(2),
        torch.nn.MaxPool2d(3, stride=2, padding=1),
        torch.nn.AvgPool2d(3, 2, padding=1, count_include_pad=False),
        torch.nn.AvgPool2d((3, 2), (2, 3), padding=1),
        torch.nn.ConvTranspose2d(2, 4, 2, 2),
    ],
    ids=repr,
)
def test_gradients_that_torch_mlir_lacks(layer) -> None:
    torch._dynamo.reset()
    fast = torch.compile(layer, backend=ht.backend)
    x = torch.randn(1, 2, 8, 8, requires_grad=True)
    wanted = [x, *layer.parameters()]
    found, expected = (torch.autograd.grad((one(x) ** 2).sum(), wanted) for one in (fast, layer))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_open_sizes_are_left_to_torch_with_a_warning() -> None:
    torch._dynamo.reset()
    fast = torch.compile(lambda x: x.sin() + x.shape[0], backend=ht.backend, dynamic=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch.allclose(fast(torch.ones(5)), torch.ones(5).sin() + 5)
    assert any("dynamic=False" in str(one.message) for one in caught)


def test_an_exported_program_with_open_sizes_is_refused_by_name() -> None:
    """Converting it with its example would silently fix them."""
    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = {"input": {0: rows}}
    args = (torch.ones(8, 4),)
    program = torch.export.export(torch.nn.Linear(4, 2), args, dynamic_shapes=shapes)
    with pytest.raises(UnsupportedError, match="dimension 0 of argument 'input' is open"):
        ht.convert(program)
    given = torch.arange(12.0).reshape(3, 4)
    model = ht.convert(program, (given,))
    assert model.module.entry.parameter_shapes[-1].dims == (3, 4)
    (found,) = hloopt.evaluate(model.module, model.arrays)
    np.testing.assert_allclose(found, program.module()(given).detach(), atol=1e-5)
    assert ht.convert(torch.export.export(torch.nn.Linear(4, 2), args)).expected is not None


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(UsageError, match="the back end has no option 'devise'"):
        ht.backend(None, [], options={"devise": "cpu"})
