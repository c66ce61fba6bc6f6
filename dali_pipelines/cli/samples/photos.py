"""Photograph-like colour images, as JPEG files in class folders. SYNTHETIC."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from PIL.ImageDraw import ImageDraw

SEED = 20150101

# EXIF orientation, by the number of the image in its class and then by class: one turned or
# mirrored image per class.
TURNED_IMAGE = 3
ORIENTATIONS = (6, 3, 8, 2, 6, 5)


def save_photo(path: Path, number: int) -> None:
    """Write photograph `number` of the class with the name of the folder, at quality 90."""
    import numpy as np
    from PIL import Image

    class_number = list(JPEG_CLASSES).index(path.parent.name)
    random = np.random.default_rng([SEED, 3, class_number, number])
    image = Image.fromarray(_photograph(random, JPEG_CLASSES[path.parent.name], _size(number)))
    exif = Image.Exif()
    if number == TURNED_IMAGE:
        exif[0x0112] = ORIENTATIONS[class_number]
    image.save(path, quality=90, exif=exif)


def _size(number: int) -> tuple[int, int]:
    """Return (width, height): landscape, a quarter portrait, now and then something else."""
    odd_ones = {5: (1024, 1024), 11: (1600, 900), 17: (801, 1203)}
    return odd_ones.get(number % 24, (960, 1280) if number % 4 == 2 else (1280, 960))


def _photograph(
    random: np.random.Generator,
    draw: Callable[[ImageDraw, np.random.Generator, int, int], None],
    size: tuple[int, int],
) -> NDArray[np.uint8]:
    """Return coloured shapes under uneven light, with texture, shape (height, width, 3), uint8."""
    import numpy as np
    from PIL import Image, ImageDraw

    width, height = size
    shapes = Image.new("RGB", (width // 2, height // 2), _colour(random))
    draw(ImageDraw.Draw(shapes), random, width // 2, height // 2)
    # Drawn small and enlarged, for soft edges like those of a lens.
    image = np.array(shapes.resize(size, Image.Resampling.BICUBIC), np.float32)
    image *= 1 + 0.22 * _crop(random, "smooth", size)
    image += random.uniform(8.5, 14.5) * _crop(random, "rough", size)
    image += 8 * _crop(random, "smooth", size) * np.array([1, 0, -1], np.float32)
    return np.clip(image, 0, 255).astype(np.uint8)


def _crop(random: np.random.Generator, name: str, size: tuple[int, int]) -> NDArray[np.float32]:
    """Return a random window of a texture, shape (height, width, 1)."""
    texture = _textures()[name]
    y = random.integers(texture.shape[0] - size[1] + 1)
    x = random.integers(texture.shape[1] - size[0] + 1)
    return texture[y : y + size[1], x : x + size[0], None]


@functools.cache
def _textures() -> dict[str, NDArray[np.float32]]:
    """Return noise, shape (2048, 2048), standard deviation 1, that is weaker at high frequencies.

    The amplitude falls as 1 / f as in photographs (Field 1987, J. Opt. Soc. Am. A 4, 2379), and
    more steeply for light and colour.
    """
    import numpy as np

    random = np.random.default_rng([SEED, 4])
    frequency = np.hypot(np.fft.fftfreq(2048)[:, None], np.fft.rfftfreq(2048))
    frequency[0, 0] = np.inf  # no mean
    textures = {}
    for name, slope in (("rough", 1.0), ("smooth", 2.0)):
        spectrum = np.fft.rfft2(random.standard_normal((2048, 2048)))
        texture = np.fft.irfft2(spectrum / frequency**slope)
        textures[name] = (texture / texture.std()).astype(np.float32)
    return textures


def _colour(random: np.random.Generator) -> tuple[int, int, int]:
    red, green, blue = (int(value) for value in random.integers(40, 216, 3))
    return red, green, blue


def _draw_discs(draw: ImageDraw, random: np.random.Generator, width: int, height: int) -> None:
    for _ in range(18):
        x, y, r = random.uniform(0, width), random.uniform(0, height), random.uniform(15, 110)
        draw.ellipse((x - r, y - r, x + r, y + r), fill=_colour(random))


def _draw_stripes(draw: ImageDraw, random: np.random.Generator, width: int, height: int) -> None:
    colours = _colour(random), _colour(random)
    step, slant = int(random.integers(20, 70)), random.uniform(-1, 1) * height
    for number, x in enumerate(range(-height, width + height, step)):
        corners = [(x, 0), (x + step, 0), (x + step + slant, height), (x + slant, height)]
        draw.polygon(corners, fill=colours[number % 2])


def _draw_tiles(draw: ImageDraw, random: np.random.Generator, width: int, height: int) -> None:
    step = int(random.integers(40, 110))
    for y in range(0, height, step):
        for x in range(0, width, step):
            draw.rectangle((x, y, x + step - 4, y + step - 4), fill=_colour(random))


def _draw_polygons(draw: ImageDraw, random: np.random.Generator, width: int, height: int) -> None:
    for _ in range(14):
        middle = random.uniform(0, 1, 2) * (width, height)
        corners = middle + random.normal(0, 80, (int(random.integers(3, 6)), 2))
        draw.polygon([(float(x), float(y)) for x, y in corners], fill=_colour(random))


def _draw_hills(draw: ImageDraw, random: np.random.Generator, width: int, height: int) -> None:
    for horizon in (0.35, 0.5, 0.65, 0.8):
        phase, waves, swing = random.uniform(0, 6.28), random.uniform(3, 12), random.uniform(8, 40)
        ridge = [
            (x, horizon * height + swing * math.sin(phase + waves * x / width))
            for x in range(0, width + 4, 4)
        ]
        draw.polygon([(0, height), *ridge, (width, height)], fill=_colour(random))


def _draw_skies(draw: ImageDraw, random: np.random.Generator, width: int, height: int) -> None:
    top, bottom = _colour(random), _colour(random)
    for y in range(height):
        mixed = [round(a + (b - a) * y / height) for a, b in zip(top, bottom, strict=True)]
        draw.line((0, y, width, y), fill=(mixed[0], mixed[1], mixed[2]))


JPEG_CLASSES = {
    "discs": _draw_discs,
    "hills": _draw_hills,
    "polygons": _draw_polygons,
    "skies": _draw_skies,
    "stripes": _draw_stripes,
    "tiles": _draw_tiles,
}
