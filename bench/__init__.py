"""Measures how fast the plugin is and how much it needs: ``make bench`` (``python -m bench [NAME ...]`` for a part).

Each module except the helpers (figures, processes, settings, floor) measures one thing and returns Figures. The
measured process runs as on a node: with its own interpreter, and with info logs written to a file. The floor is a bare
grpc.aio server in a process of its own that gives the same answers (floor.py). Floor and plugin are measured in turn,
so that a busy machine slows both. A figure that misses its limit is marked and fails nothing, because a busy machine
can also be the cause.
"""
