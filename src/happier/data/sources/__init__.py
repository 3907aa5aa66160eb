"""Real images from packages: one module per data set, each turning packages into files and rows."""
