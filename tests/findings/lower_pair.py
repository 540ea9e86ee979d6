"""Pairs of ``pairs.py`` as files, written by a Python that has JAX; hloopt is not imported.

    python lower_pair.py FOLDER [--gpu SPEC] NAME

``NAME.before.hlo`` and ``NAME.after.hlo`` are JAX's own HLO, ``NAME.before.npz`` and ``.after.npz`` arguments in the
order of the parameters; with a GPU's description, and the plug-in of JAX for CUDA on the path, ``NAME.before.gpu.hlo``
and ``.after.gpu.hlo`` are what XLA makes of them for that GPU, which need not be there (autotuning is off).
``NAME.json`` says whether the results are equal, the bytes that XLA assigns, the seconds that it compiles, and how many
elements of the results are not finite where the arguments are as large as the pair has them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0".strip()
sys.path.insert(0, str(Path(__file__).resolve().parent))

import jax
import numpy as np
from pairs import Pair, kinds, made

_UNKNOWN = "collective_memory_granularity|max_blocks_per_multiprocessor|mem_clock_ghz|reserved_shared_memory_per_block"
"""Fields of descriptions that jaxlib 0.10.2 does not read."""


def stored(array: Any) -> Any:
    """Types that NumPy lacks as unsigned views, as hloopt reads them."""
    array = np.asarray(array)
    plain = array.dtype.kind != "V" and array.dtype.isbuiltin == 1
    return array if plain else array.view(f"u{array.dtype.itemsize}")


def difference(one: Any, other: Any) -> str:
    """Empty, or what differs between the results, in one array or in several, by more than rounding may move."""
    lists = [[np.asarray(leaf) for leaf in jax.tree.leaves(tree)] for tree in (one, other)]
    if [leaf.shape for leaf in lists[0]] != [leaf.shape for leaf in lists[1]]:
        lists = [[np.concatenate([leaf.ravel() for leaf in leaves])] for leaves in lists]
    if lists[0][0].size != lists[1][0].size:
        return "other shapes"
    for number, (left, right) in enumerate(zip(*lists, strict=True)):
        if not jax.numpy.issubdtype(left.dtype, np.inexact):
            if not np.array_equal(left, right):
                return f"result {number} differs"
            continue
        unit = max(float(jax.numpy.finfo(leaf.dtype).eps) for leaf in (left, right))
        left, right = left.astype(np.complex128), right.astype(np.complex128)
        scale = np.abs(left[np.isfinite(left)]).max(initial=0)
        if not np.allclose(left, right, rtol=512 * unit, atol=64 * unit * scale, equal_nan=True):
            return f"result {number} is off by {np.nanmax(np.abs(left - right)):.2g} of {scale:.2g}"
    return ""


def not_finite(results: Any) -> int:
    """Elements of float results that are infinite or no number."""
    floats = [np.asarray(leaf) for leaf in jax.tree.leaves(results)]
    return sum(int((~np.isfinite(one)).sum()) for one in floats if one.dtype.kind == "f")


def assigned(compiled: Any) -> int:
    """The bytes of arguments, results and temporaries that XLA assigns, those that are shared once."""
    found = compiled.memory_analysis()
    parts = (found.argument_size_in_bytes, found.output_size_in_bytes, found.temp_size_in_bytes)
    return int(sum(parts) - found.alias_size_in_bytes)


def compiled_for(
    jitted: Any, arguments: Any, device: Any, flags: dict[str, Any] | None = None
) -> tuple[Any, float]:
    """The executable for a device, and the seconds that XLA takes with these flags."""
    place = jax.sharding.SingleDeviceSharding(device)
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), arguments
    )
    lowered = jitted.lower(*shapes)
    start = time.perf_counter()
    compiled = lowered.compile(compiler_options=flags or None)
    return compiled, time.perf_counter() - start


def write(pair: Pair, folder: Path, spec: Path | None) -> None:
    """All files of a pair."""
    facts: dict[str, Any] = {"scale": pair.scale}
    results = {}
    gpu = None if spec is None else gpus_of(spec)[0]
    for side, jitted, arguments in pair.sides():
        base = folder / f"{pair.name}.{side}"
        lowered = jitted.lower(*arguments)
        Path(f"{base}.hlo").write_text(lowered.as_text(dialect="hlo", debug_info=True))
        leaves = [np.asarray(one) for one in jax.tree.leaves(arguments)]
        np.savez(f"{base}.npz", **{f"in_{n}": stored(one) for n, one in enumerate(leaves)})
        host, seconds = compiled_for(jitted, arguments, jax.devices("cpu")[0])
        facts[f"{side} host bytes"] = assigned(host)
        facts[f"{side} host compile s"] = seconds
        large = jax.tree.map(
            lambda x: x * np.asarray(pair.scale, x.dtype) if x.dtype.kind == "f" else x.copy(),
            arguments,
        )
        results[side] = jitted(*jax.tree.map(lambda x: x.copy(), arguments))
        found = jitted(*jax.tree.map(lambda x: x.copy(), large))
        facts[f"{side} not finite"] = not_finite(found)
        if gpu is not None:
            flags = pair.flags if side == "after" else {}
            planned, seconds = compiled_for(jitted, arguments, gpu, flags)
            Path(f"{base}.gpu.hlo").write_text(planned.as_text())
            facts[f"{side} gpu bytes"] = assigned(planned)
            facts[f"{side} gpu compile s"] = seconds
    facts["difference"] = difference(results["before"], pair.same(results["after"]))
    Path(folder / f"{pair.name}.json").write_text(json.dumps(facts))


def gpus_of(spec: Path, topology: str = "1x1x1") -> Any:
    """The GPUs of a description, as XLA compiles for them without having them."""
    from jax.experimental import topologies

    text = re.sub(rf"\n\s*({_UNKNOWN}).*", "", spec.read_text())
    found = topologies.get_topology_desc(platform="cuda", target_config=text, topology=topology)
    return found.devices


def main() -> None:
    """Write the files of the pairs named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", type=Path)
    parser.add_argument("names", nargs="*")
    given = parser.parse_intermixed_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(Path(__file__).parent.glob("programs_*.py")):
        importlib.import_module(path.stem)
    if not given.names:
        print(json.dumps(kinds()))
    for name in given.names:
        pair = made(name)
        with pair.tracing():
            write(pair, given.folder, given.gpu)


if __name__ == "__main__":
    main()
