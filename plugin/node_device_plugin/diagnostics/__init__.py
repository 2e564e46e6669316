"""The commands that look at a node as it is: status and doctor. They change nothing."""
