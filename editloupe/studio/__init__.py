"""The web page on this machine: judge one edit, look through runs, read traces, label edits."""
