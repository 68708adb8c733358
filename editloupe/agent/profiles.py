"""What a model family is like: how it calls tools, how it counts positions, what it takes."""

from __future__ import annotations

from editloupe.types import Record


class Profile(Record):
    """The habits of one model family; a part of the keys of the units it judges."""

    family: str
    provider: str
    """Whose interface the model is asked by."""
    pattern: str
    """Matched against the model's name, ignoring case; a name may have an owner before a slash."""
    native_tools: bool
    """Whether the family calls tools by its provider's function calling; else by the papers' text protocol."""
    per_mille: bool = False
    """Positions in thousandths of each side instead of pixels of the picture as sent."""
    temperature: bool = True
    """Whether temperature 0 is accepted; reasoning models refuse it."""
    max_image_bytes: int = 15_000_000
    """Largest encoded picture that is sent."""
    max_long_side: int | None = None
    """Longest side of a picture in pixels, however many others are in the request; None where only the user's setting counts."""
    max_request_bytes: int | None = None
    """What the pictures of one request may come to, in base64; None where the provider sets no limit worth watching."""
    structured_output: bool = False
    """Whether the provider can be told to answer in JSON."""
    reasons: bool = True
    """Whether the family reasons by itself before it replies; else a reply held to JSON begins with written reasoning."""


RULES_PROFILE = Profile(family="Embedded rules", provider="rules", pattern=r"", native_tools=True)
"""Of the embedded judge, which no provider has."""
