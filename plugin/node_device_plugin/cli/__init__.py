"""The command ``node-device-plugin``: main reads the arguments, and each command is the ``run`` of a module.

A command imports what it needs inside ``run``: the commands that only read a file shall not wait for grpc.
"""
