"""The parts of priority fusion: what two instructions' kernel would be, who may join, and in which order."""
