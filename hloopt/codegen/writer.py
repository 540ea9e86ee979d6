"""Writing the functions of one instruction: parameters, body, stores.

A family's emitter is called once for each launch of the spec that has a function of its own, and fills the
body through a ``FunctionWriter``.  It is called twice where vectors are allowed (see ``codegen/loads.py``), so
it must write the same statements each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from hloopt.analysis.code_size import WRITTEN_ANEW, executed_instructions
from hloopt.analysis.index import Index, Symbol
from hloopt.analysis.region import Region, region_of
from hloopt.codegen.device import Uses
from hloopt.codegen.elements import Elements, Pointers
from hloopt.codegen.loads import Loads
from hloopt.codegen.scalars import store
from hloopt.codegen.scope import Names, Scope, TooLong
from hloopt.dataclass import dataclass
from hloopt.kernels.plan import KernelStep
from hloopt.kernels.spec import KernelSpec, Launch, Place
from hloopt.types import ArrayShape, dtype

__all__ = ["EmitFunction", "FunctionWriter", "Pointee", "write_function"]


@dataclass(frozen=True, slots=True)
class Pointee:
    """What a parameter points to: its C name, how it is used, and the array there."""

    name: str
    role: str
    shape: ArrayShape


@dataclass
class FunctionWriter:
    """One ``__global__`` function.

    step      the instruction with its spec
    region    what it computes
    launch    the launch that this function is for
    scope     the body's outermost block
    elements  computes elements of the region into the current block
    blocks_per_core  how many blocks a core shall have room for at least; 0 leaves it to the assembler, which
                     may spill a few registers to fit one more
    dynamic   bytes of the shared memory that the launch gives which are taken already
    """

    step: KernelStep
    launch: Launch
    region: Region
    uses: Uses
    loads: Loads
    scope: Scope
    pointees: dict[Place, Pointee]
    scalars: list[Symbol]
    elements: Elements = field(init=False)
    blocks_per_core: int = 0
    dynamic: int = 0

    def __post_init__(self) -> None:
        names = {
            place.number: pointee.name
            for place, pointee in self.pointees.items()
            if place.kind == "operand"
        }
        # An operand updated in place is read where it is written.
        for operand, result in self.spec.in_place:
            pointee = self.pointees.get(Place("result", result))
            if pointee is not None:
                names.setdefault(self.region.canonical(operand), pointee.name)
        self.elements = Elements(self.region, Pointers(names), self.uses, self.scope, self.loads)

    @property
    def spec(self) -> KernelSpec:
        """The spec the function is part of."""
        return self.step.spec

    @property
    def tile(self) -> dict[str, int]:
        """The kernel's parameters."""
        return dict(self.spec.tile)

    def result(self, number: int) -> Pointee:
        """The parameter of result leaf ``number``."""
        return self.pointees[Place("result", number)]

    def scratch(self, number: int) -> Pointee:
        """The parameter of scratch buffer ``number``."""
        return self.pointees[Place("scratch", number)]

    def thread(self, axis: str = "x") -> Index:
        """``threadIdx.x`` as an index."""
        return self._builtin(f"threadIdx.{axis}", self.launch.block["xyz".index(axis)])

    def block(self, axis: str = "x") -> Index:
        """``blockIdx.x`` as an index."""
        return self._builtin(f"blockIdx.{axis}", self.launch.grid["xyz".index(axis)])

    def _builtin(self, text: str, size: int) -> Index:
        if size == 1:
            return Index(0)
        hint = text.replace("Idx.", "_")
        # Not unsigned as they are: differences of indices may be negative.
        return self.elements.symbol(f"({self.loads.index_type}){text}", hint, 0, size - 1)

    def global_thread(self, hint: str = "thread") -> Index:
        """``blockIdx.x * blockDim.x + threadIdx.x``, named."""
        threads, blocks = self.launch.block[0], self.launch.grid[0]
        linear = self.block() * threads + self.thread()
        return self.elements.symbol(linear, hint, 0, threads * blocks - 1)

    def shared(
        self, type_name: str, dims: Sequence[int], hint: str, *, aligned: bool = False
    ) -> str:
        """``__shared__ T name[A][B];`` at the place where the next statement goes; returns the name.

        ``aligned`` lets the compiler take several neighbours, up to 16 bytes, in one access.
        """
        name = self.scope.names.fresh(hint)
        kind = f"__align__(16) {type_name}" if aligned else type_name
        self.elements.scope.line(f"__shared__ {kind} {name}{''.join(f'[{d}]' for d in dims)};")
        return name

    def shared_in_launch(self, type_name: str, elements: int, element_bytes: int, hint: str) -> str:
        """As ``shared``, in the memory that the launch gives, at a multiple of 16 bytes."""
        line = self.elements.scope.line
        if not self.dynamic:
            line("extern __shared__ __align__(16) unsigned char dynamic_shared[];")
        name = self.scope.names.fresh(hint)
        kind = f"{type_name} (*)[{elements}]"
        line(f"{type_name} (&{name})[{elements}] = *({kind})(dynamic_shared + {self.dynamic});")
        self.dynamic += -(-elements * element_bytes // 16) * 16
        assert self.dynamic <= self.launch.shared, (
            f"{hint} lies outside of {self.launch.shared} bytes"
        )
        return name

    def barrier(self) -> None:
        """``__syncthreads();``."""
        self.elements.scope.line("__syncthreads();")

    def store(self, pointee: Pointee, linear: Index | str, value: str) -> None:
        """Write one element."""
        line = store(pointee.name, str(linear), value, pointee.shape.dtype, self.uses)
        self.elements.scope.line(line)


EmitFunction = Callable[[FunctionWriter], None]


def write_function(
    step: KernelStep,
    launch: Launch,
    emit: EmitFunction,
    uses: Uses,
    *,
    native: bool = False,
    issued: set[str] | None = None,
) -> list[str]:
    """The lines of a function; a ``native`` one runs the tasks from ``begin`` to before ``end``.

    The names of its parameters and variables are added to ``issued``.

    Raises ``UnsupportedError`` for an instruction in the region that has no place inside a kernel.
    """
    region = region_of(step.instruction)
    room = WRITTEN_ANEW.of(executed_instructions(step.instruction))
    try:
        body, lines = _written(step, launch, region, emit, uses, native, room)
    except TooLong:
        body, lines = _written(step, launch, region, emit, uses, native, None)
    if issued is not None:
        issued.update(body.names.issued)
    return lines


def _written(
    step: KernelStep,
    launch: Launch,
    region: Region,
    emit: EmitFunction,
    uses: Uses,
    native: bool,
    room: int | None,
) -> tuple[_Body, list[str]]:
    """A function within ``room`` bytes; without a limit what its blocks have in common is shared."""
    index_type = _index_type(region)
    widest = max(1, step.spec.tile.get("vector", 1))
    loads = Loads(index_type, widest)
    if widest > 1:
        _Body(step, launch, region, Uses(), loads, native, room).write(emit)
        loads = Loads(index_type, widest, frozenset(loads.now))
    body = _Body(step, launch, region, uses, loads, native, room)
    return body, list(body.write(emit))


@dataclass
class _Body:
    step: KernelStep
    launch: Launch
    region: Region
    uses: Uses
    loads: Loads
    native: bool
    room: int | None
    names: Names = field(init=False)

    def __post_init__(self) -> None:
        self.names = Names(self.room)

    def write(self, emit: EmitFunction) -> Iterator[str]:
        names = self.names
        pointees = {}
        parameters = [f"long long {names.fresh(name)}" for name in ("begin", "end") if self.native]
        for argument in self.launch.arguments:
            shape = self._shape(argument.place)
            name = names.fresh(self._hint(argument.place))
            pointees[argument.place] = Pointee(name, argument.role, shape)
            const = "const " if argument.role == "in" else ""
            alone = "" if self._is_shared(argument.place) else " __restrict__"
            parameters.append(f"{const}{self.uses.storage(shape.dtype)}*{alone} {name}")
        scalars = []
        for number, _ in enumerate(self.launch.scalars):
            symbol = Symbol(names.fresh(f"scalar_{number}"), 0, 2**31 - 1)
            scalars.append(symbol)
            parameters.append(f"int {symbol.name}")
        scope = Scope(names)
        writer = FunctionWriter(
            self.step, self.launch, self.region, self.uses, self.loads, scope, pointees, scalars
        )
        writer.elements.shares = self.room is None
        emit(writer)
        threads = self.launch.block[0] * self.launch.block[1] * self.launch.block[2]
        bounds = f"{threads}, {writer.blocks_per_core}" if writer.blocks_per_core else f"{threads}"
        name = self.step.function + self.launch.function
        head = f'extern "C" __global__ void __launch_bounds__({bounds}) {name}('
        if self.native:
            head = f"static void {name}("
        lines = [f"{head}{', '.join(parameters)}) {{"]
        if len(lines[0]) > 112:
            lines = [
                head,
                *(f"    {part}," for part in parameters[:-1]),
                f"    {parameters[-1]}) {{",
            ]
        return iter([*lines, *scope.text(1), "}"])

    def _is_shared(self, place: Place) -> bool:
        """Whether an operand lies where a result does: what is read there may have been written."""
        both = {"operand": (self.step.operands, self.step.results)}
        both["result"] = (self.step.results, self.step.operands)
        if place.kind not in both:
            return False
        own, others = both[place.kind]
        return any(
            other.byte_size
            and other.allocation == own[place.number].allocation
            and other.offset == own[place.number].offset
            for other in others
        )

    def _shape(self, place: Place) -> ArrayShape:
        if place.kind == "operand":
            return self.region.operands[place.number]
        if place.kind == "result":
            return self.region.results[place.number].shape
        scratch = self.step.spec.scratch[place.number]
        return ArrayShape(dtype(scratch.dtype), (scratch.elements,))

    def _hint(self, place: Place) -> str:
        if place.kind == "operand":
            return self.region.operand_name(place.number)
        if place.kind == "result":
            return "result" if len(self.region.results) == 1 else f"result_{place.number}"
        return f"scratch_{place.number}"


def _index_type(region: Region) -> str:
    """32 bits where every array is counted by them with room for a block's overhang."""
    shapes = [*region.operands, *(result.shape for result in region.results)]
    inner = [leaf for item in region.body for leaf in region.arrays_of(item)]
    most = max((shape.elements for shape in (*shapes, *inner)), default=0)
    return "int" if most < 2**31 - 2**22 else "long long"
