"""Build reports of runs and render them as text, Markdown, HTML or JSON."""

from editloupe.evals.report.build import build_leaderboard, build_report
from editloupe.evals.report.report_records import Leaderboard, Report

__all__ = ["Leaderboard", "Report", "build_leaderboard", "build_report"]
