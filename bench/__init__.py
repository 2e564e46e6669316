"""How fast the plugin is, and how little it needs: ``make bench`` (``python -m bench [NAME ...]`` for some of it).

Each module but the helpers (figures, processes, settings, floor) measures one thing and gives Figures. What is measured
is the process as it runs on a node: its own interpreter, info logs written to a file. The floor is a bare grpc.aio
server in a process of its own that gives the same answers (floor.py); it is measured in turn with the plugin, so that
a busy machine slows both. A figure that misses what is asked for is marked and fails nothing: how busy the machine is
decides it, too.
"""
