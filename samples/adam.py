"""A step of Adam over 24 small arrays, one after the other.  ``python samples/adam.py`` dumps it; needs JAX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from dumping import Program, main

SHAPES = ((7, 5), (11,), (3, 4, 2), ()) * 6
RATE, DECAY, DECAY_OF_SQUARES = 1e-3, 0.9, 0.999


def adam(parameters: Any, means: Any, squares: Any, gradients: Any, count: Any) -> Any:
    """New parameters, running means and running means of squares, and the number of steps."""
    count = count + 1
    step = RATE * jnp.sqrt(1 - DECAY_OF_SQUARES**count) / (1 - DECAY**count)
    new: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for parameter, mean, square, gradient in zip(
        parameters, means, squares, gradients, strict=True
    ):
        mean = DECAY * mean + (1 - DECAY) * gradient
        square = DECAY_OF_SQUARES * square + (1 - DECAY_OF_SQUARES) * gradient * gradient
        new[0].append(parameter - step * mean / (jnp.sqrt(square) + 1e-8))
        new[1].append(mean)
        new[2].append(square)
    return *new, count


def flat(*arrays: Any) -> Any:
    """``adam`` on arrays in a row, as a program that is compiled has them."""
    parts = [arrays[24 * part : 24 * part + 24] for part in range(4)]
    return adam(*parts, arrays[-1])


def inputs() -> list[Any]:
    draw = np.random.default_rng(0)
    arrays = [draw.standard_normal(shape, np.float32) for shape in 4 * SHAPES]
    arrays[48:72] = [array * array for array in arrays[48:72]]
    return [*arrays, np.float32(3)]


if __name__ == "__main__":
    main({"adam": Program(flat, inputs())}, Path(__file__).parent)
