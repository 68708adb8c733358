"""EdiVal-Agent: chains of edits judged by objects, with checks a detector can make."""
