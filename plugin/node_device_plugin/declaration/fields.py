"""Rules for single fields. A rule returns the problem with a value, or None or empty text."""

from __future__ import annotations

import functools
import ipaddress
import os
import re
from typing import Any, Callable, Optional

from . import names
from .patterns import fill, pattern_problem, placeholders

Rule = Callable[[Any], Optional[str]]

#: The largest uid or gid. CDI has unsigned 32-bit numbers, and Linux reserves the last for "none".
LARGEST_ID = 2**32 - 2
#: Characters with a special meaning in systemd units or pod mounts.
_SPECIAL = frozenset(":%$;\\'\"")
#: Where runc permits a mount below /proc (checkProcMount in libcontainer).
_IN_PROC = re.compile(
    "/proc/(cpuinfo|diskstats|loadavg|meminfo|net/dev|slabinfo|stat|swaps|uptime|sys/crypto/fips_enabled"
    "|sys/kernel/ns_last_pid)"
)
_ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\$?")
_PATTERN = re.compile(r"[][*?{}]")


def _each(*rules: Rule) -> Rule:
    """A rule that returns the first problem of these rules."""

    def first(value: Any) -> str | None:
        for rule in rules:
            problem = rule(value)
            if problem:
                return problem
        return None

    return first


def form(pattern: str, must: str) -> Rule:
    """A rule: the whole text must match a regular expression. must: the allowed form, in words."""
    compiled = re.compile(pattern)
    return lambda text: None if compiled.fullmatch(text) else f"must be {must}, not {text!r}"


#: With room for a name after the prefix. The empty prefix is the default.
id_prefix = form(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,29})?", "at most 30 letters, digits, '_', '.' and '-'")


def absolute(path: str) -> str | None:
    """The path must be absolute, normalised and printable, and not the root directory."""
    if problem := printable(path):
        return problem
    if path == "/":
        return "must not be the root directory"
    # normpath keeps two leading slashes, as POSIX demands.
    if not path.startswith("/") or path.startswith("//") or os.path.normpath(path) != path:
        return f"must be an absolute path without '.', '..', '//' or a trailing '/', not {path!r}"
    return None


def not_empty(text: str) -> str | None:
    """The text must not be empty or white space."""
    return None if text.strip() else "is empty"


def plain_characters(path: str) -> str | None:
    """The path must have no character that systemd units or pod mounts interpret."""
    odd = sorted(letter for letter in set(path) if letter in _SPECIAL or letter.isspace() or not letter.isprintable())
    named = ", ".join(map(repr, odd))
    return f"must not contain {named}: systemd units or pod mounts interpret these characters" if odd else None


def socket_room(longest: int, path: str) -> str | None:
    """The path must leave room for the name of a socket. longest: maximum bytes of the path."""
    is_short = len(os.fsencode(path)) <= longest
    return (
        None if is_short else "must have at most %d bytes, because the path of a socket below it is limited" % longest
    )


def one_path(path: str) -> str | None:
    """The path must have neither wildcards nor placeholders."""
    message = f"must be one path without wildcards or placeholders, not {path!r}: use discover for patterns"
    return message if _PATTERN.search(path) else None


def _no_directory(name: str) -> str | None:
    """The pattern is for a name, which has no directory."""
    return f"must be a name without '/', not {name!r}" if "/" in name else None


def _not_docker(path: str) -> str | None:
    """The path must not be a list of paths and permissions, which ``docker run --device`` takes."""
    fix = "write {path: IN_CONTAINER, host_path: ON_HOST}, and permissions if needed"
    return f"must be one path, not {path!r}: {fix}" if ":/" in path else None


def _not_of_kernel(path: str) -> str | None:
    """The path of a node in a container must not be in a file system of the kernel, which takes no node."""
    is_refused = path.startswith(("/proc/", "/sys/"))
    return (
        f"must not be below /proc or /sys, where a container can have no device node, not {path!r}"
        if is_refused
        else None
    )


def _not_in_proc(path: str) -> str | None:
    """The path must not be below /proc, except what the runtime permits."""
    is_refused = path.startswith("/proc/") and not _IN_PROC.fullmatch(path)
    return f"must not be below /proc, where the runtime refuses a mount, not {path!r}" if is_refused else None


def no_pattern(template: str) -> str | None:
    """The path may have placeholders but no wildcards."""
    filled = fill(template, dict.fromkeys(placeholders(template), ""))
    message = "must not contain wildcards: only placeholders are replaced here"
    return message if _PATTERN.search(filled) else None


def printable(text: str) -> str | None:
    """The text must be printable, for logs and tables, and have no space at either end."""
    is_plain = text.isprintable() and text == text.strip()
    return None if is_plain else f"must be printable, without leading or trailing spaces, not {text!r}"


def group(gid: int) -> str | None:
    """The number must be the id of a supplementary group, but not 0."""
    return None if 1 <= gid <= LARGEST_ID else "must be between 1 and %d, not %d" % (LARGEST_ID, gid)


def account(value: int | str) -> str | None:
    """The value must be a number, or a name of a user or group that shadow-utils and systemd accept."""
    if not isinstance(value, str) or _ACCOUNT.fullmatch(value):
        return None
    fix = (
        "write the number without quotes (in an expression, add '| int')"
        if value.isdecimal()
        else "use letters, digits, '_', '-' and '.'"
    )
    return f"must be a number or a name, not {value!r}: {fix}"


def assignment(text: str) -> str | None:
    """The text must set an environment variable: NAME=value. The problem quotes nothing, because it may be a secret."""
    name, equals, _value = text.partition("=")
    is_valid = equals and not names.env_name_problem(name)
    return None if is_valid else f"must have the form NAME=value, with a NAME of {names.ENV_NAME}"


def parse_http_address(text: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:9819``, ``[::1]:9819`` or ``:9819`` (all addresses of the node).

    Raises ValueError with the allowed forms. A host name is an error, because its resolution would
    decide who has access.
    """
    host, separator, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not separator or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ValueError(f"must be empty or ADDRESS:PORT, such as 127.0.0.1:9819, [::1]:9819 or :9819, not {text!r}")
    if not host:
        return "", int(port)
    try:
        address = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        address = None
    if address is None or bracketed != (address.version == 6):
        raise ValueError(f"{host!r} is not an IP address: host names are not allowed, and IPv6 addresses need brackets")
    return str(address), int(port)


def http_address_problem(text: str) -> str | None:
    """The problem with an address of the server, or None. An empty address turns the server off."""
    try:
        if text:
            parse_http_address(text)
    except ValueError as error:
        return str(error)
    return None


host_node_path = _each(one_path, absolute, _not_docker)
node_path = _each(host_node_path, _not_of_kernel)
mount_path = _each(absolute, _not_in_proc)
path_pattern = _each(absolute, pattern_problem)
path_template = _each(absolute, functools.partial(pattern_problem, is_template=True))
container_path = _each(absolute, no_pattern, _not_of_kernel)
exclusion = _each(not_empty, pattern_problem)
driver = _each(exclusion, _no_directory)
directory = _each(plain_characters, absolute)
device_plugin_directory = _each(directory, functools.partial(socket_room, names.MAX_DEVICE_PLUGIN_DIR))
device_id = _each(not_empty, printable)
permissions = form(r"(?!.*(.).*\1)[rwm]+", "made of r, w and m, each at most once")
mode = form(r"0?[0-7]{3}", 'three octal digits such as "0660"')
bus_id = form(r"[0-9A-Fa-f]{4}", "four hexadecimal digits, in quotes")
subsystem = form(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", "the name of a directory in /sys/class or /sys/bus, e.g. video4linux")
class_code = form(r"([0-9A-Fa-f]{2}){1,3}", "two, four or six hexadecimal digits")
