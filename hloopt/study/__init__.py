"""Studies: modules by strategies by devices, each cell verified."""
