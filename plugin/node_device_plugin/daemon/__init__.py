"""The running plugin."""
