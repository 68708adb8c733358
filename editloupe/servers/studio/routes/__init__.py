"""The studio's pages, one module each; `studio/app.py` puts them together, and nobody else takes names from here."""

__all__: list[str] = []
