"""Dots and convolutions: dimension numbers, merging, taking apart."""
