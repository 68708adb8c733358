"""The judge: judging, closing, settings and set-ups, panels and cascades."""
