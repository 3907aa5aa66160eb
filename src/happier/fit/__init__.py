"""Anyone's images -> a model, a page about its mistakes and an index: ``happier fit``."""

from happier.fit.fitting import Fit, FitOptions, fit

__all__ = ["Fit", "FitOptions", "fit"]
