"""Reductions cut and regrouped into such as one block of a kernel finishes."""
