"""One module a page."""

__all__ = ["annotate", "judge", "pictures", "runs", "trace"]
