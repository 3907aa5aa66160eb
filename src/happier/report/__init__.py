"""Data classes -> figures -> one page: how good a model is, and how bad its mistakes are."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from happier.extras import needs_extra

if TYPE_CHECKING:
    from happier.report.collect import ReportOptions
    from happier.report.data import Report
    from happier.report.write import write_report

    Options = ReportOptions

__all__ = ["Options", "Report", "ReportOptions", "write_report"]

# Imported on first access: the explorer takes its colours from this package, and needs no matplotlib.
_PLACES = {
    "Options": ("collect", "ReportOptions"),  # the former name
    "Report": ("data", "Report"),
    "ReportOptions": ("collect", "ReportOptions"),
    "write_report": ("write", "write_report"),
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'happier.report' has no attribute {name!r}")
    module, attribute = _PLACES[name]
    with needs_extra("report"):
        return getattr(import_module(f"happier.report.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
