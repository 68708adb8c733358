"""Reading model replies: sections, tags, tool calls and the final answer."""

__all__: list[str] = []
