"""Writes log lines in the kubelet's format, so that programs that read kubelet logs can read the stand-in's logs."""

from __future__ import annotations

import logging
import time

_logger = logging.getLogger("kubelet")


def info(verbosity: int, message: str, /, **values: object) -> None:
    """Log a line that a kubelet writes if its ``--v`` is at least ``verbosity``."""
    level = logging.INFO - verbosity
    if _logger.isEnabledFor(level):
        _logger.log(level, "%s", _structured(message, values), stacklevel=2)


def error(message: str, problem: object, /, **values: object) -> None:
    """Log a line about an error."""
    _logger.error("%s", _structured(message, {"err": str(problem), **values}), stacklevel=2)


def write_to_stderr(verbosity: int) -> None:
    """Write lines up to ``verbosity`` to stderr. Without this call, Python's logging configuration applies."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter())
    _logger.addHandler(handler)
    _logger.setLevel(logging.INFO - verbosity)
    _logger.propagate = False


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        severity = "E" if record.levelno >= logging.ERROR else "I"
        moment = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        return "%s%s.%06d %7d %s:%d] %s" % (
            severity,
            moment,
            record.created % 1 * 1e6,
            record.process or 0,
            record.filename,
            record.lineno,
            record.getMessage(),
        )


def _structured(message: str, values: dict[str, object]) -> str:
    words = ['"%s"' % message]
    for key, value in values.items():
        words.append('%s="%s"' % (key, value.replace('"', '\\"')) if isinstance(value, str) else "%s=%s" % (key, value))
    return " ".join(words)
