"""The commands; `editloupe/__main__.py` is where the program begins and ends."""
