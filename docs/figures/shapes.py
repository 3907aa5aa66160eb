"""A small world of drawn shapes, family > shape > item: free to show, in a tree that can be seen."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

Points = list[tuple[float, float]]

LEVELS = ("family", "shape", "item")
COLOURS = {
    "red": "#d63031",
    "orange": "#ee8130",
    "yellow": "#f1c40f",
    "green": "#27a050",
    "teal": "#16a3a3",
    "blue": "#2962ff",
    "violet": "#8e44ad",
    "pink": "#ec6ba8",
}
PER_CLASS = 8
SIZE = 96


def _ring(corners: int, *, inner: float = 1.0, wide: float = 1.0) -> Points:
    """Corners on a circle, every second one at the inner radius."""
    turns = (2 * math.pi * n / corners - math.pi / 2 for n in range(corners))
    radii = (1.0 if n % 2 == 0 else inner for n in range(corners))
    return [(wide * r * math.cos(t), r * math.sin(t)) for t, r in zip(turns, radii, strict=True)]


# Outlines within the unit circle.
SHAPES: dict[str, dict[str, Points]] = {
    "round": {
        "circle": _ring(72),
        "ellipse": _ring(72, wide=0.55),
        "half moon": [(x, y) for x, y in _ring(72) if y >= -0.01],
    },
    "angular": {
        "square": [(-0.78, -0.78), (0.78, -0.78), (0.78, 0.78), (-0.78, 0.78)],
        "triangle": _ring(3),
        "bar": [(-1.0, -0.32), (1.0, -0.32), (1.0, 0.32), (-1.0, 0.32)],
    },
    "pointed": {
        "star": _ring(10, inner=0.45),
        "spark": _ring(8, inner=0.32),
        "sun": _ring(24, inner=0.72),
    },
}


def outline(shape: str) -> Points:
    """The outline of a shape within the unit circle."""
    return next(shapes[shape] for shapes in SHAPES.values() if shape in shapes)


def draw(shape: str, colour: str, rng: np.random.Generator) -> Image.Image:
    """One image: the shape somewhere, turned and scaled, in about its colour, on a light ground."""
    scale = 3  # drawn larger and scaled down: smooth edges
    ground = tuple(int(v) for v in rng.integers(228, 256, 3))
    image = Image.new("RGB", (SIZE * scale, SIZE * scale), ground)
    radius = SIZE * scale * rng.uniform(0.28, 0.42)
    middle = SIZE * scale * (0.5 + rng.uniform(-0.08, 0.08, 2))
    turn = rng.uniform(-0.5, 0.5)
    turned = [
        (
            middle[0] + radius * (x * math.cos(turn) - y * math.sin(turn)),
            middle[1] + radius * (x * math.sin(turn) + y * math.cos(turn)),
        )
        for x, y in outline(shape)
    ]
    tone = [int(COLOURS[colour][i : i + 2], 16) for i in (1, 3, 5)]
    shifted = tuple(int(v) for v in np.clip(np.array(tone) + rng.integers(-14, 15, 3), 0, 255))
    ImageDraw.Draw(image).polygon(turned, fill=shifted)
    return image.resize((SIZE, SIZE), Image.Resampling.LANCZOS)


def write_folder(folder: Path, *, per_class: int = PER_CLASS, seed: int = 0) -> int:
    """Write ``folder/<family>/<shape>/<colour> <shape>/<n>.png``; returns the number of images."""
    rng = np.random.default_rng(seed)
    written = 0
    for family, shapes in SHAPES.items():
        for shape in shapes:
            for colour in COLOURS:
                place = folder / family / shape / f"{colour} {shape}"
                place.mkdir(parents=True)
                for number in range(per_class):
                    draw(shape, colour, rng).save(place / f"{number}.png")
                    written += 1
    return written
