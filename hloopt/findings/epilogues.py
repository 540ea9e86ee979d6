"""Activations, biases and residuals that read a product's result from memory, as kernels of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.analysis.backend_config import TRITON, backend_kind
from hloopt.cost_models.roofline import product_of
from hloopt.dataclass import dataclass
from hloopt.findings.attention import kernels_of_passes
from hloopt.findings.cublaslt import as_calls, library_product
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.fusion.between import kept_arrays
from hloopt.ir import Computation, Instruction, Module
from hloopt.kernels.costs import KernelCost
from hloopt.numbers import byte_size
from hloopt.ops.traits import PLUMBING
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite.site import sites

__all__ = ["unfused"]

_PART: Final = 0.02
"""The part of a run that the kernels after a product take at least."""
_HLOOPT: Final = FindingRemedy(
    "hloopt",
    "product-fusion makes one kernel of both (hloopt optimize -O3; hloopt.jax runs it within JAX)",
)
_PALLAS: Final = FindingRemedy(
    "model",
    "a Pallas or Triton kernel of the product that computes these ops before it writes its result",
)
_FLAG: Final = FindingRemedy(
    "flag",
    "--xla_gpu_enable_triton_gemm=false: all products become calls of cuBLASLt, which has GELU by tanh, "
    "bias, ReLU and the addition of a matrix in its epilogue (not GELU by erf, SiLU, or what reads the "
    "result twice)",
)


@dataclass(frozen=True)
class _Unfused:
    """A product, and the kernels of the plan that do elementwise work on its result."""

    dot: Instruction
    kernel: Instruction
    readers: tuple[KernelCost, ...]

    @property
    def seconds(self) -> float:
        """Of the readers, in a run."""
        return sum(row.seconds for row in self.readers)


def unfused(subject: Subject) -> Iterator[FindingCandidate]:
    """Products on a GPU after which an elementwise kernel of the same size reads the result."""
    if is_planned(subject.module) or not subject.planner.predictor.target.has_threads:
        return
    rows = {row.instruction: row for row in subject.plan.rows}
    homes: defaultdict[Computation, list[_Unfused]] = defaultdict(list)
    for dot in sites(subject.module, "dot"):
        found = _unfused(subject, dot, rows)
        if found is not None:
            homes[dot.home].append(found)
    for group in homes.values():
        readers = {row.instruction: row for one in group for row in one.readers}
        if sum(row.seconds for row in readers.values()) >= _PART * subject.plan.seconds:
            group.sort(key=lambda one: -one.seconds)
            yield _candidate(subject, group, list(readers.values()))


def _unfused(
    subject: Subject, dot: Instruction, rows: dict[Instruction, KernelCost]
) -> _Unfused | None:
    for kernel in subject.kernels_of([dot]):
        if product_of(kernel) is None:
            continue
        readers = tuple(
            rows[user]
            for user in _readers(kernel)
            if user in rows and _is_elementwise(user) and user.array.elements == dot.array.elements
        )
        if readers:
            return _Unfused(dot, kernel, readers)
    return None


def _readers(kernel: Instruction) -> Iterator[Instruction]:
    """What reads the result, through views of it."""
    for user in kernel.users:
        if user.opcode in PLUMBING | {"bitcast"} and user.opcode != "tuple":
            yield from _readers(user)
        else:
            yield user


def _is_elementwise(kernel: Instruction) -> bool:
    if not kernel.is_array:
        return False
    if kernel.opcode != "fusion":
        return kernel.op.is_elementwise
    return kernel.attributes["kind"] == "kLoop" and kernel.calls.root.op.is_elementwise


def _candidate(
    subject: Subject, found: Sequence[_Unfused], readers: Sequence[KernelCost]
) -> FindingCandidate:
    first = found[0]
    dots = tuple(one.dot for one in found)
    why = _why(subject, first, readers, len(found))
    target = subject.planner.predictor.target.name
    value = _forked(first.dot)
    blocking = () if value is None else tuple(value.users)[:3]
    fused = FindingCandidate(
        dots, why, (_HLOOPT, _PALLAS), kernels_of_passes("product-fusion", target), blocking
    )
    if not (_is_triton(first.kernel) and any(_has_gelu(dot) for dot in dots)):
        return fused
    return FindingCandidate(dots, why, (_FLAG, _HLOOPT), _called, blocking, instead=fused)


def _is_triton(kernel: Instruction) -> bool:
    return kernel.opcode == "fusion" and backend_kind(kernel).startswith(TRITON)


def _has_gelu(dot: Instruction) -> bool:
    product = library_product(dot)
    return product is not None and product.activation == "GELU"


def _why(subject: Subject, first: _Unfused, readers: Sequence[KernelCost], products: int) -> str:
    names = ", ".join(f"%{row.instruction.name}" for row in first.readers[:3])
    seconds = sum(row.seconds for row in readers)
    reason = _refusal(subject, first)
    where = (
        "is a kernel"
        if first.kernel.opcode == "dot"
        else f"is the end of %{first.kernel.name}, or nearly so"
    )
    return (
        f"The product %{first.dot.name} {where}, and {names} "
        f"{'reads' if len(first.readers) == 1 else 'read'} its {byte_size(first.dot.shape.byte_size)} "
        "from memory"
        f"{f': {reason}' if reason else ''}. {_counted(len(readers), 'such kernel')} after "
        f"{_counted(products, 'product')} {'takes' if len(readers) == 1 else 'take'} {seconds * 1e6:.3g} us."
    )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _refusal(subject: Subject, first: _Unfused) -> str:
    """Why the product's kernel ends there; empty where no pass said it."""
    value = _forked(first.dot)
    if value is not None and _is_triton(first.kernel):
        return (
            f"{len(value.users)} ops read %{value.name}, and a Triton kernel takes in what follows a product "
            "only while each value has one reader"
        )
    words = [
        word
        for row in kept_arrays(subject.plan.explanation)
        if (row.kernel.now or row.kernel.name) == first.kernel.name
        for _, edge in row.readers
        for word in edge.words
    ]
    if not words:
        return ""
    word = next((one for one in words if one.decision.code == "gemm-epilogue"), words[-1])
    return f"{word.pass_name} keeps them apart, since {word.decision.reason}"


def _forked(value: Instruction) -> Instruction | None:
    """The first value after a product that several ops read, before any that is not elementwise."""
    while len(value.users) == 1 and not value.is_root:
        value = next(iter(value.users))
        if not value.op.is_elementwise:
            return None
    return value if len(value.users) > 1 else None


def _called(module: Module, places: Sequence[Instruction]) -> bool:
    """Make calls of all products beside those of the places, as the flag does."""
    made = as_calls(places[0].home)
    parse_pipeline("dce").run(module)
    return made
