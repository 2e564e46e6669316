"""Finds and checks the devices of this node, and keeps the state of each."""
