"""What can be looked at: zoom, differences, objects, text; pure vision, no LMM."""
