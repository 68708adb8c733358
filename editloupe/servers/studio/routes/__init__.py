"""Routes of the studio, one module per page. Only `studio/app.py` imports them."""

__all__: list[str] = []
