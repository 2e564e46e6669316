"""The command ``node-device-plugin``. ``main`` reads the arguments. Each command is the ``run`` of a module.

Each ``run`` imports the modules that it needs, so a command that only reads a file does not load grpc.
"""
