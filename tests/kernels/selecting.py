"""Kernels made up for the tests of selection: three that run anything, one that runs additions, one nothing."""

from __future__ import annotations

from collections.abc import Callable

from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module
from hloopt.kernels.kernel import NO, YES, Efficiency, Kernel, Site, Verdict
from hloopt.kernels.spec import Argument, KernelSpec, Launch, LeafPlace, Tile
from hloopt.targets import Target

__all__ = ["DEVICE", "MADE_UP", "TEXT", "by_name", "made_up"]

DEVICE = Target(
    name="d1", title="a device", kind="cuda", capability=(9, 0), cores=10, fpus_per_core=100,
    clock_ghz=1.0, memory_bandwidth=1_000_000_000_000, memory_size=1 << 30, l2_size=1 << 20,
    warp_size=32, threads_per_block=1024, threads_per_core=2048, registers_per_core=65536,
    registers_per_block=65536, shared_per_block=49152, shared_per_block_optin=49152,
    shared_per_core=65536, grid_limit=(2**31 - 1, 65535, 65535),
)  # fmt: skip

TEXT = """HloModule m

ENTRY main {
  x = f32[1024] parameter(0)
  y = f32[1024] parameter(1)
  sum = f32[1024] add(x, y), metadata={op_name="jit(f)/add"}
  minus = f32[1024] negate(sum), metadata={op_name="jit(f)/neg"}
  ROOT both = (f32[1024], f32[1024]) tuple(sum, minus)
}
"""


def made_up(
    name: str,
    fits: Callable[[Site], Verdict],
    wanted: Callable[[Site], Verdict],
    memory: float = 1.0,
) -> Kernel:
    """A kernel with a tile of one parameter, ``threads``, from 1 to 1024."""

    def spec(site: Site, tile: Tile) -> KernelSpec:
        threads = tile["threads"]
        if not 1 <= threads <= 1024:
            raise UsageError(f"{name}: threads is {threads}; a block has 1 to 1024")
        blocks = -(-site.region.results[0].shape.elements // threads)
        reads = [Argument(LeafPlace("operand", number), "in") for number in site.region.read]
        writes = [
            Argument(LeafPlace("result", number), "out")
            for number, _ in enumerate(site.region.results)
        ]
        launch = Launch("", (blocks, 1, 1), (threads, 1, 1), (*reads, *writes))
        return KernelSpec(name, tile, (launch,))

    return Kernel(
        name,
        f"made up: {name}",
        fits,
        wanted,
        lambda site: {"threads": site.limits.loop_threads},
        spec,
        efficiency=lambda site, spec: Efficiency(memory, reason=f"{memory} of the bandwidth"),
    )


def _adds(site: Site) -> Verdict:
    opcode = site.region.instruction.opcode
    return YES("it adds") if opcode == "add" else NO(f"{opcode} is no add")


MADE_UP = (
    made_up(
        "never", lambda site: NO("1024 elements are more than loop_unroll, 4"), lambda site: YES()
    ),
    made_up("adder", _adds, lambda site: YES("additions go there")),
    made_up("slow", lambda site: YES(), lambda site: NO("it is slow"), 0.25),
    made_up("quick", lambda site: YES(), lambda site: NO("nobody asked")),
)


def by_name(module: Module, name: str) -> Instruction:
    """An instruction of the entry."""
    return module.entry.by_name[name]
