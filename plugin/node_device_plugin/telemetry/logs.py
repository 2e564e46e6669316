"""Writes log lines as text or JSON. In the journal, each line begins with a priority prefix for systemd."""

from __future__ import annotations

import datetime
import json
import logging
import os
import re
from collections.abc import MutableMapping
from typing import Any

#: Keyword arguments of the logging module. All other keyword arguments are values of a line.
_OF_LOGGING = {"exc_info", "stack_info", "stacklevel", "extra"}
_AMBIGUOUS = re.compile(r'[\s"=]|^$')
_PRIORITY = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}


class Log(logging.LoggerAdapter):  # type: ignore[type-arg]
    """A logger of constant messages with values, e.g. ``log.info("registered", resource=name)``."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def process(self, msg: str, kwargs: MutableMapping[str, Any]) -> tuple[str, MutableMapping[str, Any]]:
        """Append the values to the message, and pass both separately for JSON."""
        values = {key: _plain(kwargs.pop(key)) for key in list(kwargs) if key not in _OF_LOGGING}
        text = " ".join([msg, *(f"{key}={_quoted(value)}" for key, value in values.items())])
        return text, {**kwargs, "extra": {"event": msg, "values": values}}


def _plain(value: object) -> Any:
    return value if isinstance(value, (bool, int, float, str, list)) else str(value)


def _quoted(value: Any) -> str:
    """The value without quotes if it is an unambiguous text of one line, otherwise as JSON."""
    if isinstance(value, str) and value.isprintable() and not _AMBIGUOUS.search(value):
        return value
    return json.dumps(value, ensure_ascii=not str(value).isprintable())


class _Json(logging.Formatter):
    """Formats a line as one object: time, level, logger (module), message, values, exception."""

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


# mypy treats StreamHandler as generic, but at run time it is generic only from Python 3.11 on.
class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to stderr. If stderr is the journal, each line begins with its priority."""

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
    """Logs the failures of a repeated action. A failure that repeats the last one is logged at debug.

    Therefore a kubelet that is unavailable for a day does not fill the journal.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._last = ""

    def failed(self, level: int, message: str, **values: Any) -> None:
        """Log why a try failed. message, values: see ``Log``."""
        now = self._log.process(message, dict(values))[0]
        self._log.log(logging.DEBUG if now == self._last else level, message, **values)
        self._last = now

    def went_well(self) -> None:
        """Log the next failure at its own level again."""
        self._last = ""


def configure(level: str, form: str) -> None:
    """Log to stderr at ``level`` (debug, info, warning, error) and above. form: text or json."""
    journal = "JOURNAL_STREAM" in os.environ
    handler = _Handler(journal)
    text = logging.Formatter("%(message)s" if journal else "%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(_Json() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
