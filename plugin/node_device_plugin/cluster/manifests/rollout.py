"""What tells whether a node's pod runs with what was declared."""

from __future__ import annotations

import hashlib


def sha256_of(text: str) -> str:
    """The hash by which the running plugin knows the bytes of its configuration file."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
