"""The command ``node-device-plugin``: main reads the arguments, and each command is the ``run`` of a module.

Each ``run`` imports its modules itself, so that commands that only read a file do not load grpc.
"""
