"""Programs of JAX compiled by XLA, run by a Python that has JAX; hloopt is not imported.

    python memory_child.py [--gpu SPEC] [--only TEXT]

Each program of ``tests/frameworks/programs.py``, the gradient of each that has one, and both functions of each pair of
``tests/findings`` become a module of that name; nothing is run.  With a GPU's description, and the plug-in of JAX for
CUDA on the path, XLA compiles for that GPU, which need not be there.  ``memory_board.py`` says where dumps go.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "findings"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "frameworks"))

import jax
from lower_pair import gpus_of
from pairs import kinds, made
from programs import programs

Entry = tuple[str, Any, Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def entries() -> Iterator[Entry]:
    """Name, setting, function, arguments and options of ``jax.jit`` of each."""
    for name, program in programs(1).items():
        options = {"static_argnums": program.static, "donate_argnums": program.donate}
        yield name, program.tracing, program.function, program.arguments, options
        if program.smooth:
            slopes = {"static_argnums": program.static}
            yield f"{name}_gradient", program.tracing, jax.grad(summed(program.function)), program.arguments, slopes  # fmt: skip
    findings = Path(__file__).resolve().parents[1] / "findings"
    for path in sorted(findings.glob("programs_*.py")):
        importlib.import_module(path.stem)
    for name, (kind, _) in kinds().items():
        if kind == "folded":  # XLA computes their constants, for many minutes
            continue
        pair = made(name)
        sides = ((pair.before, pair.arguments), (pair.after, pair.given(*pair.arguments)))
        for side, (function, arguments), donate in zip(
            ("before", "after"), sides, pair.donate, strict=True
        ):
            yield f"{name}_{side}", pair.tracing, function, arguments, {"donate_argnums": donate}


def summed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The sum of all results, weighted so that no slope is constant."""
    return lambda *arguments: sum(
        jax.numpy.sin(one.astype("float32")).sum() for one in jax.tree.leaves(function(*arguments))
    )


def compile_one(entry: Entry, device: Any) -> None:
    """For the device, by its shapes alone."""
    name, setting, function, arguments, options = entry
    static = options.get("static_argnums", ())
    place = jax.sharding.SingleDeviceSharding(device)

    def called(*arguments: Any) -> Any:
        return function(*arguments)

    called.__name__ = f"board_{name}"
    with setting():
        shapes = tuple(
            one if at in static else jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
                jax.tree.map(jax.numpy.asarray, one),
            )
            for at, one in enumerate(arguments)
        )  # fmt: skip
        jax.jit(called, keep_unused=True, **options).lower(*shapes).compile()


def main() -> None:
    """Compile those asked for; what XLA refuses is printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", type=Path)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    device = jax.devices("cpu")[0] if given.gpu is None else gpus_of(given.gpu)[0]
    for each in entries():
        if given.only in each[0]:
            try:
                compile_one(each, device)
            except (jax.errors.JaxRuntimeError, NotImplementedError) as error:
                print(f"{each[0]}: {str(error).splitlines()[0]}", flush=True)


if __name__ == "__main__":
    main()
