"""A small encoder and some images."""

from noisy_images import encoder, manifest  # noqa: F401 - fixtures
