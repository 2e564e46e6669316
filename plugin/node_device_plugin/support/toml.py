"""Parses TOML with the standard library. Python before 3.11 has no parser, so there tomli takes its place."""

from __future__ import annotations

import functools
import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ("TomlError", "document", "tomllib")

TomlError = tomllib.TOMLDecodeError


@functools.lru_cache(maxsize=32)
def document(text: str) -> dict[str, Any]:
    """The text as data, which the caller must not change: each text is parsed once. Raises TomlError.

    Floats become strings, because nan does not equal itself.
    """
    return tomllib.loads(text, parse_float=str)
