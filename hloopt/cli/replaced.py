"""Options of earlier versions, and what to type in place of each."""

from __future__ import annotations

from typing import Final

__all__ = ["REPLACED", "replacement"]

_OPTIMIZE: Final = "It is an option of hloopt optimize; hloopt compare runs both modules."

REPLACED: Final[dict[tuple[str, str], str]] = {
    ("", "--pipeline"): "Type --passes.",
    ("", "--selector"): "Type --kernel MODULE:FUNCTION.",
    ("", "--kernel-rule"): "Type --kernel MODULE:FUNCTION.",
    ("", "--kernel-file"): "Type --kernel FILE.",
    ("", "--rtol"): "Type --tolerance rtol=X.",
    ("", "--atol"): "Type --tolerance atol=X.",
    ("", "--ulp"): "Type --tolerance ulp=N.",
    ("", "--bitwise"): "Type --tolerance bitwise.",
    ("", "--replicas"): "Type --participants N.",
    ("", "--partitions"): "Type --participants 1xN.",
    ("", "--infeed"): "Put infeed_0, ... into the file of --inputs.",
    ("", "--exact"): "Type --rounding exact.",
    ("", "--excess-precision"): "Type --rounding excess.",
    ("", "--strict"): "hloopt check --strict FILE refuses what XLA does not know.",
    ("", "--no-strict"): "Leave it out: only hloopt check is strict.",
    ("bisect", "--check-seconds"): "Type --timeout S.",
    ("bisect", "--frozen"): "It is an option of hloopt optimize and hloopt kernels.",
    ("explain", "--xla"): "Type --xla-dump DUMP.",
    ("bisect", "--seconds"): "Type --timeout S.",
    ("compare", "--seconds"): "Type --timeout S.",
    ("reduce", "--test-seconds"): "Type --timeout S.",
    ("reduce", "--jobs"): "Type --workers N.",
    ("reduce", "--oracle"): "Type --device xla-cpu.",
    ("run", "--spmd"): "Type --participants mpi.",
    ("run", "--no-reference"): "Type --no-verify.",
    ("run", "--reference-seconds"): "Type --no-verify to leave the interpreter out.",
    ("run", "--save-outputs"): "Type --save FILE.npz.",
    ("run", "--outfeed"): "Type --save FILE.npz.",
    ("run", "--save-snapshot"): "Type --save FILE.pb.",
    ("run", "--cold-l2"): "Type --kernels=cold.",
    ("run", "--ignore-callbacks"): "Callbacks whose results are not used are always left out.",
    ("run", "--unchecked"): "The emulator checks every access to memory.",
    ("run", "--against"): "Type hloopt compare FILE FILE.",
    ("run", "--write-lock"): "Type hloopt kernels FILE --write-lock LOCK, then run --lock LOCK.",
    ("run", "--frozen"): "It is an option of hloopt optimize and hloopt kernels.",
    ("run", "--dump-dir"): _OPTIMIZE,
    ("run", "--verify-each"): _OPTIMIZE,
    ("", "--only"): _OPTIMIZE,
    ("", "--fuel"): f"{_OPTIMIZE} hloopt bisect finds the rewrite that matters.",
    ("", "--stop-after"): f"{_OPTIMIZE} hloopt bisect finds the pass that matters.",
}
"""By command, empty for all of them, and option."""


def replacement(command: str, option: str) -> str | None:
    """What to type in place of an option that a command had once; None where it never had it."""
    if option.startswith("--xla_"):
        return "It is a flag of XLA: set XLA_FLAGS for the program that XLA compiles."
    return REPLACED.get((command, option)) or REPLACED.get(("", option))
