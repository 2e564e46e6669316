"""The commands that inspect a node and change nothing: status, doctor, discover and cdi check."""
