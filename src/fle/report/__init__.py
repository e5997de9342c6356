"""Pages of an evaluation and of a comparison, one HTML file each, and charts as images."""

from fle.report.charts import save_density
from fle.report.comparison_page import write_comparison
from fle.report.contents import Contents, Extras, gather
from fle.report.page import write_report

__all__ = ["Contents", "Extras", "gather", "save_density", "write_comparison", "write_report"]
