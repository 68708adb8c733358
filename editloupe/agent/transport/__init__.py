"""HTTP clients of the providers, with errors, secrets, rate limits and batch files."""

__all__: list[str] = []
