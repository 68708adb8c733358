"""Wrap the vision models of the tools and metrics, such as detectors, feature models and upscalers."""

__all__: list[str] = []
