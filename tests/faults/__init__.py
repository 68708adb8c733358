"""What must hold whatever the server, the files or the user do; seeded, short by default and long under the marker `slow`."""
