"""Vision models behind the tools: loading, devices and inference."""

__all__: list[str] = []
