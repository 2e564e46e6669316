"""The command ``node-device-plugin``: main reads the arguments, and each command is the ``run`` of a module.

A command imports its modules inside ``run``, so that a command that only reads a file need not load grpc.
"""
