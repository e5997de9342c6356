"""The report of an evaluation: one HTML file with everything in it, and charts as images."""

from fle.report.charts import save_density
from fle.report.contents import Contents, Extras, gather
from fle.report.page import write_report

__all__ = ["Contents", "Extras", "gather", "save_density", "write_report"]
