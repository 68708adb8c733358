"""Labels that people give in the studio: the label file, the form, and the order in which edits come."""

__all__: list[str] = []
