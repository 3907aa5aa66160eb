"""Data classes -> figures -> one page: how good a model is, and how bad its mistakes are."""

from happier.report.collect import Options
from happier.report.data import Report
from happier.report.write import write_report

__all__ = ["Options", "Report", "write_report"]
