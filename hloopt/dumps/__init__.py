"""Dump directories of XLA: the modules in them, their stages, and what else there is."""

from hloopt.dumps.content import gunzip, is_gzip, read_bytes
from hloopt.dumps.directory import Dump, DumpFile, DumpModule, Stage, counts, read_dump
from hloopt.dumps.names import OWN, DumpName, parse_name, planned_elsewhere, stage_maker
from hloopt.dumps.pick import matching_modules, matching_stages, pick

__all__ = [
    "OWN",
    "Dump",
    "DumpFile",
    "DumpModule",
    "DumpName",
    "Stage",
    "counts",
    "gunzip",
    "is_gzip",
    "matching_modules",
    "matching_stages",
    "parse_name",
    "pick",
    "planned_elsewhere",
    "read_bytes",
    "read_dump",
    "stage_maker",
]
