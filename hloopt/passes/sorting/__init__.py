"""Sorts: operands, comparators and what is sorted already."""
