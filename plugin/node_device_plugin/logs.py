"""Log lines for the journal: systemd reads the priority from the front of a line."""

from __future__ import annotations

import logging
import os

_PRIORITY = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}


class _Formatter(logging.Formatter):
    def __init__(self, journal: bool) -> None:
        super().__init__("%(message)s" if journal else "%(asctime)s %(levelname)s %(message)s")
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if not self._journal:
            return text
        prefix = "<%d>" % _PRIORITY[record.levelname]
        return "\n".join(prefix + line for line in text.splitlines())


def configure(level: str) -> None:
    """Log to stderr from ``level`` (debug, info, warning, error) on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter(journal="JOURNAL_STREAM" in os.environ))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
