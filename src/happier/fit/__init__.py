"""Anyone's images -> a model, a page about its mistakes and an index: ``happier fit``."""

from happier.extras import needs_extra

with needs_extra("report,search"):
    from happier.fit.clock import Moment
    from happier.fit.fitting import fit
    from happier.fit.options import FitOptions
    from happier.fit.outcome import Fit

__all__ = ["Fit", "FitOptions", "Moment", "fit"]
