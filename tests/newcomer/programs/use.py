"""What the page about Python says, typed for another program."""

from __future__ import annotations

import numpy as np

import hloopt

with open("ranker.hlo") as file:  # noqa: PTH123 - as the page has it
    module = hloopt.parse(file.read(), name="ranker.hlo")
hloopt.verify(module)
better = hloopt.optimize(module, pipeline="O2")
arrays = np.load("ranker.npz")
inputs = [arrays[name] for name in arrays if name.startswith("in_")]
outputs = hloopt.compile(better, device="cpu").run(inputs)
reference = hloopt.evaluate(module, inputs)
print(
    all(np.allclose(one, other, atol=1e-5) for one, other in zip(outputs, reference, strict=True))
)
print(hloopt.run(module, "cpu", pipeline="O2", seed=7).verdict)
