"""HTTP clients of the providers: requests, retries, errors, secrets and rate limits."""

__all__: list[str] = []
