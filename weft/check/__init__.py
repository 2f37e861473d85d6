"""What a check of a kernel found: as an object, as text, as a page."""

from weft.check.report import Comparison, Launched, Report, Resources

__all__ = ["Comparison", "Launched", "Report", "Resources"]
