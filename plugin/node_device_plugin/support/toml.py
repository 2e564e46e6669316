"""Imports the standard library's TOML parser. Python before 3.11 has none, so there tomli takes its place."""

import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ("tomllib",)
