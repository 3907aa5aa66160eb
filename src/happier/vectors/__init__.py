"""Vectors of images on disk: generations with checksums, each vector known by its image's content."""
