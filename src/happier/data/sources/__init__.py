"""Real images by package: one module per data set, each turning downloaded packages into files and rows."""
