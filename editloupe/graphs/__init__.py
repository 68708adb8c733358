"""In what order: the LangGraph state machines."""
