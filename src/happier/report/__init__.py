"""Data classes -> figures -> one page: how good a model is, and how bad its mistakes are."""

from happier.extras import needs_extra

with needs_extra("report"):
    from happier.report.collect import ReportOptions
    from happier.report.data import Report
    from happier.report.write import write_report

Options = ReportOptions  # the former name

__all__ = ["Options", "Report", "ReportOptions", "write_report"]
