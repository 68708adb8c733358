"""What all servers share: access by token and host name, the checks before a request is read, and running until stopped."""

__all__: list[str] = []
