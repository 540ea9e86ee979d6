"""Programs of the emulator: compiled for the host's processor, cached by content."""

from __future__ import annotations

from pathlib import Path

from hloopt.backends.host_compiler import (
    compile_with,
    find_compiler,
    headers_read_once,
    link_with,
    machine_flags,
    processor,
)
from hloopt.compiled_cache import CompiledCache

__all__ = ["INCLUDE", "build_program", "check_emulator"]

INCLUDE = Path(__file__).parent / "include"

# As on the GPU: nothing contracted, no traps, integers that wrap, no strict aliasing.
_LANGUAGE = (
    "-std=c++17",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fno-exceptions",
    "-fno-rtti",
    "-pthread",
    "-w",
)
# GCC makes fused multiply-adds of complex products side by side, whatever -ffp-contract says.
_FAST = ("-O2", "-ftree-vectorize", "-fno-tree-slp-vectorize")
# Our checks do not see arrays in registers; GCC and Clang have both flags.
_BOUNDS = ("-fsanitize=bounds", "-fsanitize-undefined-trap-on-error")
_CHECKED = ("-O1", "-DHLOOPT_CHECK", *_BOUNDS)

_USER = "the emulator"

_cache = CompiledCache("emulator", "")


def check_emulator() -> None:
    """Raise ``DeviceError`` where the emulator cannot run: no C++ compiler, or no POSIX system."""
    find_compiler(_USER)


def build_program(text: str, *, is_checked: bool, is_optimized: bool = True) -> Path:
    """The executable of a translation unit, out of the cache or compiled now.

    Raises ``DeviceError`` where there is no compiler, or where it refuses the text.
    """
    compiler = find_compiler(_USER)
    flags = (*_LANGUAGE, *machine_flags(), *(_CHECKED if is_checked else _FAST))
    if not is_optimized:
        flags = (*flags, "-O0")
    headers = _headers()
    identity: tuple[str | bytes, ...] = (
        *compiler.command,
        compiler.version,
        *flags,
        processor(),
        *headers,
    )
    runtime_flags = (*_LANGUAGE, *machine_flags(), "-O2")

    def build_runtime(path: Path) -> None:
        compile_with(
            compiler, [*runtime_flags, "-c", "-o", str(path), str(INCLUDE / "runtime.cpp")]
        )

    def build(path: Path) -> None:
        unit = path.with_name("program.cpp")
        unit.write_text(text)
        inputs = [str(unit), "-x", "none", str(runtime)]
        given = [*flags, f"-I{INCLUDE}", "-x", "c++", *inputs, "-o", str(path)]
        with headers_read_once(compiler, flags, INCLUDE / "emulator.h", (INCLUDE,), path.parent):
            link_with(compiler, given)

    runtime = CompiledCache("emulator", ".o").get_or_build(
        ["runtime", *compiler.command, compiler.version, *runtime_flags, processor(), *headers],
        build_runtime,
    )
    return _cache.get_or_build([*identity, text], build)


def _headers() -> list[bytes]:
    return [file.read_bytes() for file in sorted(INCLUDE.iterdir()) if file.is_file()]
