"""Writing the functions of one instruction: parameters, body, stores.

A family's emitter is called once for each launch of the spec that has its own function, and fills the
body through a ``FunctionWriter``.  It is called twice where vectors are allowed (see ``codegen/loads.py``), so
it must write the same statements each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cache
from math import prod

from hloopt.analysis.code_size import WRITTEN_ANEW, executed_instructions
from hloopt.analysis.index import Index, Symbol
from hloopt.analysis.region import Region, region_of
from hloopt.codegen.device import Uses, names
from hloopt.codegen.elements import Elements
from hloopt.codegen.loads import Loads
from hloopt.codegen.scalars import store
from hloopt.codegen.types import stored_elements
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Array, Cast, Operand, Var
from hloopt.kernel_ir.matrix_steps import device_functions
from hloopt.kernel_ir.scope import Names, Scope, TooLong
from hloopt.kernel_ir.statements import Function, Parameter
from hloopt.kernel_ir.types import INT, LONG, UINT, Type
from hloopt.kernels.plan import KernelStep
from hloopt.kernels.spec import KernelSpec, Launch, LeafPlace
from hloopt.types import ArrayShape, dtype

__all__ = [
    "EmitFunction",
    "FunctionWriter",
    "Pointee",
    "reserved",
    "write_function",
]


@dataclass(frozen=True, slots=True)
class Pointee:
    """What a parameter points to: the memory, how it is used, and the array there."""

    memory: Array
    role: str
    shape: ArrayShape

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self.memory.name


@dataclass
class FunctionWriter:
    """One ``__global__`` function.

    step      the instruction with its spec
    region    what it computes
    launch    the launch that this function is for
    scope     the body's outermost block
    elements  computes elements of the region into the current block
    blocks_per_core  how many blocks a core must have room for at least; 0 leaves it to the assembler, which
                     may spill a few registers to fit one more
    dynamic   bytes of the shared memory that the launch gives which are taken already
    """

    step: KernelStep
    launch: Launch
    region: Region
    uses: Uses
    loads: Loads
    scope: Scope
    pointees: dict[LeafPlace, Pointee]
    scalars: list[Symbol]
    elements: Elements = field(init=False)
    blocks_per_core: int = 0
    dynamic: int = 0

    def __post_init__(self) -> None:
        names = {
            place.number: pointee.memory
            for place, pointee in self.pointees.items()
            if place.kind == "operand"
        }
        # An operand updated in place is read where it is written.
        for operand, result in self.spec.in_place:
            pointee = self.pointees.get(LeafPlace("result", result))
            if pointee is not None:
                names.setdefault(self.region.canonical(operand), pointee.memory)
        self.elements = Elements(self.region, names, self.uses, self.scope, self.loads)

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
        return self.pointees[LeafPlace("result", number)]

    def scratch(self, number: int) -> Pointee:
        """The parameter of scratch buffer ``number``."""
        return self.pointees[LeafPlace("scratch", number)]

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
        value = Cast(self.loads.index_type, Var(text, UINT))
        return self.elements.symbol(value, hint, 0, size - 1)

    def global_thread(self, hint: str = "thread") -> Index:
        """``blockIdx.x * blockDim.x + threadIdx.x``, named."""
        threads, blocks = self.launch.block[0], self.launch.grid[0]
        linear = self.block() * threads + self.thread()
        return self.elements.symbol(linear, hint, 0, threads * blocks - 1)

    def shared(self, kind: Type, dims: Sequence[int], hint: str, *, aligned: bool = False) -> Array:
        """An array that the threads of a block share, at the place where the next statement goes.

        ``aligned`` lets the compiler take several neighbours, up to 16 bytes, in one access.
        """
        align = 16 if aligned else 0
        return self.elements.scope.array(kind, dims, hint, space="shared", align=align)

    def shared_in_launch(self, kind: Type, elements: int, element_bytes: int, hint: str) -> Array:
        """As ``shared``, in the memory that the launch gives, at a multiple of 16 bytes."""
        offset = self.dynamic
        self.dynamic += -(-elements * element_bytes // 16) * 16
        assert self.dynamic <= self.launch.shared, (
            f"{hint} lies outside of {self.launch.shared} bytes"
        )
        scope = self.elements.scope
        return scope.array(kind, (elements,), hint, space="shared", offset=offset)

    def barrier(self) -> None:
        """Wait for the threads of the block."""
        self.elements.scope.barrier()

    def store(self, pointee: Pointee, linear: Operand, value: Operand) -> None:
        """Write one element."""
        for statement in store(pointee.memory, linear, value, pointee.shape.dtype, self.uses):
            self.elements.scope.add(statement)


EmitFunction = Callable[[FunctionWriter], None]


def write_function(
    step: KernelStep,
    launch: Launch,
    emit: EmitFunction,
    uses: Uses,
    *,
    native: bool = False,
) -> Function:
    """The function of a launch; a ``native`` one runs the tasks from ``begin`` to before ``end``.

    Raises ``UnsupportedError`` for an instruction in the region that has no place inside a kernel.
    """
    region = region_of(step.instruction)
    room = WRITTEN_ANEW.of(executed_instructions(step.instruction))
    try:
        return _written(step, launch, region, emit, uses, native, room)
    except TooLong:
        return _written(step, launch, region, emit, uses, native, None)


def _written(
    step: KernelStep,
    launch: Launch,
    region: Region,
    emit: EmitFunction,
    uses: Uses,
    native: bool,
    room: int | None,
) -> Function:
    """A function within ``room`` bytes; without a limit what its blocks have in common is shared."""
    index_type = _index_type(region)
    widest = max(1, step.spec.tile.get("vector", 1))
    loads = Loads(index_type, widest)
    if widest > 1:
        _Body(step, launch, region, Uses(), loads, native, room).write(emit)
        loads = Loads(index_type, widest, frozenset(loads.now))
    return _Body(step, launch, region, uses, loads, native, room).write(emit)


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
        self.names = Names(self.room, reserved())

    def write(self, emit: EmitFunction) -> Function:
        names = self.names
        pointees = {}
        parameters = [
            Parameter(Var(names.fresh(name), LONG)) for name in ("begin", "end") if self.native
        ]
        for argument in self.launch.arguments:
            shape = self._shape(argument.place)
            name = names.fresh(self._hint(argument.place))
            element = self.uses.storage(shape.dtype)
            memory = Array(name, element, (stored_elements(shape),), "global")
            pointees[argument.place] = Pointee(memory, argument.role, shape)
            is_alone = not self._is_shared(argument.place)
            parameters.append(Parameter(memory, is_alone, argument.role == "in"))
        scalars = []
        for number, _ in enumerate(self.launch.scalars):
            symbol = Symbol(names.fresh(f"scalar_{number}"), 0, 2**31 - 1)
            scalars.append(symbol)
            parameters.append(Parameter(Var(symbol.name, INT)))
        scope = Scope(names)
        writer = FunctionWriter(
            self.step, self.launch, self.region, self.uses, self.loads, scope, pointees, scalars
        )
        writer.elements.shares = self.room is None
        emit(writer)
        body = scope.statements()
        for function in device_functions(body):
            self.uses.add(function.partition("<")[0])
        return Function(
            self.step.function + self.launch.function,
            tuple(parameters),
            body,
            0 if self.native else prod(self.launch.block),
            writer.blocks_per_core,
            self.loads.index_type,
        )

    def _is_shared(self, place: LeafPlace) -> bool:
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

    def _shape(self, place: LeafPlace) -> ArrayShape:
        if place.kind == "operand":
            return self.region.operands[place.number]
        if place.kind == "result":
            return self.region.results[place.number].shape
        scratch = self.step.spec.scratch[place.number]
        return ArrayShape(dtype(scratch.dtype), (scratch.elements,))

    def _hint(self, place: LeafPlace) -> str:
        if place.kind == "operand":
            return self.region.operand_name(place.number)
        if place.kind == "result":
            return "result" if len(self.region.results) == 1 else f"result_{place.number}"
        return f"scratch_{place.number}"


def _index_type(region: Region) -> Type:
    """32 bits where every array is counted by them with room for a block's overhang."""
    shapes = [*region.operands, *(result.shape for result in region.results)]
    inner = [leaf for item in region.body for leaf in region.arrays_of(item)]
    most = max((shape.elements for shape in (*shapes, *inner)), default=0)
    return INT if most < 2**31 - 2**22 else LONG


# Words of C++ and of CUDA that an instruction's name could be; what begins with an underscore it cannot.
_WORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class
compl const const_cast constexpr continue decltype default defined delete do double dynamic_cast else enum
explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
nullptr operator or or_eq private protected public register reinterpret_cast return short signed sizeof static
static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union
unsigned using virtual void volatile wchar_t while xor xor_eq threadIdx blockIdx blockDim gridDim warpSize
dynamic_shared min max abs atomicAdd atomicCAS memcpy main"""


_MATH = """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor
fma fmax fmin fmod hypot isfinite isinf isnan ldexp log log10 log1p log2 nearbyint nextafter pow remainder rint
round rsqrt sin sincos sinh sqrt tan tanh trunc"""


@cache
def reserved() -> frozenset[str]:
    """Words of the language, and whatever a kernel may call."""
    math = {name + suffix for name in _MATH.split() for suffix in ("", "f")}
    return frozenset({*_WORDS.split(), *math, *names()})
