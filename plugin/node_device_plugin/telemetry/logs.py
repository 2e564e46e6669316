"""Log lines for the journal (systemd reads the priority from the front of a line), for people or for programs."""

from __future__ import annotations

import datetime
import json
import logging
import os
import re
from collections.abc import MutableMapping
from typing import Any

#: What a call of a logger takes besides keys and values.
_OF_LOGGING = {"exc_info", "stack_info", "stacklevel", "extra"}
_AMBIGUOUS = re.compile(r'[\s"=]|^$')
_PRIORITY = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}


class Log(logging.LoggerAdapter):  # type: ignore[type-arg]
    """A logger whose lines are a constant message with keys and values: ``log.info("registered", resource=name)``."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def process(self, msg: str, kwargs: MutableMapping[str, Any]) -> tuple[str, MutableMapping[str, Any]]:
        """Write the values behind the message, and keep both apart for JSON."""
        values = {key: _plain(kwargs.pop(key)) for key in list(kwargs) if key not in _OF_LOGGING}
        text = " ".join([msg, *(f"{key}={_quoted(value)}" for key, value in values.items())])
        return text, {**kwargs, "extra": {"event": msg, "values": values}}


def _plain(value: object) -> Any:
    return value if isinstance(value, (bool, int, float, str, list)) else str(value)


def _quoted(value: Any) -> str:
    """Bare if that has one reading and one line."""
    if isinstance(value, str) and value.isprintable() and not _AMBIGUOUS.search(value):
        return value
    return json.dumps(value, ensure_ascii=not str(value).isprintable())


class _Json(logging.Formatter):
    """One object a line: time, level, logger (the module), message, its values, and a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        data = {
            **getattr(record, "values", {}),
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": getattr(record, "event", None) or record.getMessage(),
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
    """Something that is tried again and again: logs how it fails once, and again when it fails in another way.

    A failure that repeats the last one is logged at debug. A kubelet that is away for a day does not fill the journal.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._last = ""

    def failed(self, level: int, message: str, **values: Any) -> None:
        """Log how a try failed. message, values: as ``Log`` has them."""
        now = self._log.process(message, dict(values))[0]
        self._log.log(logging.DEBUG if now == self._last else level, message, **values)
        self._last = now

    def went_well(self) -> None:
        """The next failure is news."""
        self._last = ""


def configure(level: str, form: str) -> None:
    """Log to stderr from ``level`` (debug, info, warning, error) on. form: text or json."""
    journal = "JOURNAL_STREAM" in os.environ
    handler = _Handler(journal)
    text = logging.Formatter("%(message)s" if journal else "%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(_Json() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
