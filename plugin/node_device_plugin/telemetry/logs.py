"""Log lines for the journal (systemd reads the priority from the front of a line), for people or for programs."""

from __future__ import annotations

import datetime
import json
import logging
import os

_PRIORITY = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}


class _Json(logging.Formatter):
    """One object a line: time, level, logger (the module), message, and a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        data = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            data["exception"] = self.formatException(record.exc_info)
        return json.dumps(data, ensure_ascii=False)


# Generic for mypy; where it runs, only from Python 3.11 on.
class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to stderr, with the priority in front of each line where stderr is the journal."""

    def __init__(self, journal: bool) -> None:
        super().__init__()
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if not self._journal:
            return text
        prefix = "<%d>" % _PRIORITY[record.levelname]
        return "\n".join(prefix + line for line in text.splitlines())


class Tries:
    """What is tried time and again: how it fails is said once, and again when it fails in another way.

    What is the same as before is said at debug, so that a kubelet that is away for a day does not fill the journal.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said = ""

    def failed(self, level: int, message: str, *values: object) -> None:
        """Say how a try failed. message, values: as logging has them."""
        text = message % values
        self._log.log(logging.DEBUG if text == self._said else level, "%s", text)
        self._said = text

    def went_well(self) -> None:
        """The next failure is news."""
        self._said = ""


def configure(level: str, form: str) -> None:
    """Log to stderr from ``level`` (debug, info, warning, error) on. form: text or json."""
    journal = "JOURNAL_STREAM" in os.environ
    handler = _Handler(journal)
    text = logging.Formatter("%(message)s" if journal else "%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(_Json() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
