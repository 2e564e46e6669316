"""Tells without parsing whether a file may be a CDI spec of a wanted kind: YAML of a megabyte takes a second."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

#: In double quotes, an escape may stand for a character of a kind, and an escaped line break for nothing (YAML 1.2.2,
#: 5.7 and 7.3.1; RFC 8259, 7). YAML 1.1 has more line breaks: U+0085, U+2028 and U+2029.
_ESCAPED = re.compile(rb"\\[xuU/\r\n\xc2\xe2]")
#: The zero bytes of UTF-16 and UTF-32, and all ways to write the tag of base64 (YAML 1.2.2, 6.8.2 and 6.9.1).
_ENCODED = (b"\0", b"!!", b"!<", b"%TAG")


def kinds_of(names: Iterable[str]) -> frozenset[str]:
    """The kinds of fully qualified CDI names."""
    return frozenset(name.partition("=")[0] for name in names)


def may_have(content: bytes, kinds: Collection[str]) -> bool:
    """Whether the content of a file may give one of these kinds. If not, it gives none of them, however it is written.

    A kind is ASCII text without line breaks. So a file that gives the kind contains it byte for byte, unless the file
    escapes or encodes it.
    """
    marks = (*(kind.encode() for kind in kinds), *_ENCODED)
    return any(mark in content for mark in marks) or _ESCAPED.search(content) is not None
