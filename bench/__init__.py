"""Measures the plugin's speed and resource use: ``make bench``, or ``python -m bench NAME ...`` for some measurements.

The function ``measure`` of each measuring module returns Figures. As on a node, the measured process has its own
interpreter and writes info logs to a file. The floor is a bare grpc.aio server in another process that gives the same
answers (floor.py). The measurements alternate between floor and plugin, so that a busy machine slows both. A figure
above its limit is only marked and does not fail the run, because a busy machine may be the cause.
"""
