"""Rules of simplify, by the op at the root of what they match."""
