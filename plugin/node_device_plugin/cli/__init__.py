"""The command ``node-device-plugin``. ``main`` reads the arguments. Each command is a function in one of the modules.

Each command imports the modules that it needs, so a command that only reads a file does not load grpc.
"""
