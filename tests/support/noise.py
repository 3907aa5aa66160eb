"""Images of noise."""

import numpy as np
from PIL import Image


def write_noise(path, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
