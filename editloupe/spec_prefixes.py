"""How the specs of judges that answer together begin; by themselves, since tables know them without loading any judge."""

PANEL, CASCADE = "panel:", "cascade:"
