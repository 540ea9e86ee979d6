"""What arrives of JAX's programs in every form of StableHLO, beside JAX's own HLO and results.

    python -m tests.frameworks.stablehlo_board [NAME...] [--back]

Each program of ``programs.py`` is lowered by the Python that HLOOPT_XLA_PYTHON names, as text without and with
locations, bytecode and portable artifact.  Each form is read; its canonical hash is compared with that of JAX's own
HLO, which lacks the devices and has decompositions of composites twice; and it is run with the arguments of the
program, and its results are compared with JAX's by the judge.  With ``--back`` each module is written as StableHLO
and read again as well.  Ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import hloopt
from hloopt.ir import Module, edit, walk
from hloopt.ir.canonical import fingerprint
from hloopt.runtime.inputs import load_expected, load_inputs
from hloopt.runtime.xla_form import make_for_xla
from hloopt.stablehlo.conversion import write_stablehlo
from tests.oracle.oracle import python

FORMS = ("mlir", "debug.mlir", "bytecode", "mlir.bc")
OPEN = "open.mlir.bc"
LOWERED = Path(__file__).with_name("lowered.py")


def lower(folder: Path, *names: str) -> list[str]:
    """Write programs in all forms; their names."""
    command = [python(), str(LOWERED), str(folder), *names]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return sorted(path.name.removesuffix(".json") for path in folder.glob("*.json"))


def comparable(module: Module) -> str:
    """The hash of a module without the devices, and without computations that nothing calls."""
    for name in ("num_partitions", "replica_count"):
        module.attributes.pop(name, None)
    for computation in reversed(walk.callees_first(module)):
        if computation is not module.entry and not computation.callers:
            edit.remove_computation(computation)
    return fingerprint(module)


def runs_equal(module: Module, arrays: Path) -> bool:
    """Whether the results for the program's arguments are those that JAX computed."""
    inputs, expected = load_inputs(arrays, module), load_expected(arrays, module)
    report = hloopt.run(module, inputs=inputs, expected=expected, repeat=1)
    return report.passed


def judge(folder: Path, name: str, *, back: bool) -> dict[str, str]:
    """What is said of each form: ``same``, or what is not."""
    base = folder / name
    facts = json.loads(Path(f"{base}.json").read_text())
    own = comparable(hloopt.read(Path(f"{base}.hlo")))
    found = {}
    forms = [*FORMS, OPEN] if "shapes" in facts else FORMS
    for form in forms:
        try:
            shapes = facts.get("shapes") if form == OPEN else None
            module = hloopt.read(Path(f"{base}.{form}"), shapes=shapes)
            hloopt.verify(module)
            devices = module.attributes.get("num_partitions", 1)
            problems = [] if devices == facts["devices"] else [f"{devices} devices"]
            if form in {"mlir", "mlir.bc", OPEN} and not runs_equal(module, Path(f"{base}.npz")):
                problems.append("runs otherwise")
            if form != OPEN and comparable(module) != own:
                problems.append("another module")
        except hloopt.HlooptError as error:
            problems = [str(error).split("\n")[0]]
        found[form] = ", ".join(problems) or "same"
    if back:
        found["back"] = round_trip(Path(f"{base}.debug.mlir"), Path(f"{base}.npz"))
    return found


def kept(module: Module) -> dict[str, object]:
    """What has to be the same after StableHLO and back; XLA simplifies while it converts, so the text is not."""
    text = module.to_text(metadata=False)
    names = [one.metadata and one.metadata.fields.get("op_name") for one in module.entry.parameters]
    return {
        "header": {key: str(value) for key, value in module.attributes.items()},
        "parameters": [
            (str(one.shape), name) for one, name in zip(module.entry.parameters, names, strict=True)
        ],
        "shardings": Counter(re.findall(r" sharding=\{.*?\}|xla\.sdy\.\w+=\"[^,]*", text)),
    }


def round_trip(path: Path, arrays: Path) -> str:
    """Whether a module is the same after StableHLO and back, as text and as a portable artifact."""
    module = hloopt.read(path)
    make_for_xla(module)
    own = kept(module)
    problems = []
    for form in ("stablehlo", "mlir.bc"):
        try:
            again = hloopt.read(write_stablehlo(module, form), name=f"{path.stem}.{form}")
            problems += [what for what, value in kept(again).items() if value != own[what]]
            if not runs_equal(again, arrays):
                problems.append("runs otherwise")
        except hloopt.HlooptError as error:
            problems.append(str(error).split("\n")[0])
    return ", ".join(dict.fromkeys(problems)) or "same"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--back", action="store_true")
    parser.add_argument("--folder", help="where the programs lie already")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(given.folder or made)
        names = given.names
        if not given.folder:
            names = lower(folder, *given.names)
        elif not names:
            names = sorted(path.name.removesuffix(".json") for path in folder.glob("*.json"))
        for name in names:
            said = judge(folder, name, back=given.back)
            counts.update(f"{form}: {what == 'same'}" for form, what in said.items())
            wrong = {form: what for form, what in said.items() if what != "same"}
            print(f"{name:28} {wrong or 'same'}", flush=True)
    for key, count in sorted(counts.items()):
        print(f"{count:4} {key.replace('True', 'same').replace('False', 'not the same')}")
    return int(any(key.endswith("False") for key in counts))


if __name__ == "__main__":
    sys.exit(main())
