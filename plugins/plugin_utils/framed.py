# SPDX-License-Identifier: Apache-2.0
"""Runs a command on the node, and finds its answer in the text around it.

sudo, a shell's start file or a login banner may print text before an answer or after it. Through a terminal, which ssh
uses for sudo, such text and the command's errors are in the same stream as the answer. Modules need no frame, because
Ansible finds a module's result in any text.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, NamedTuple

_CLOSED = re.compile(r"(Shared c|C)onnection to \S+ closed\.")


class Said(NamedTuple):
    """A command's answer. code: its exit code. output, errors: its text, without the text around it."""

    code: int
    output: str
    errors: str


class NoAnswer(Exception):
    """The command did not run to its end. The message has the last lines of the text that came instead."""


def run(action: Any, command: str, given: bytes | None = None) -> Said:
    """Run a shell command on the node, in check mode too. given: its input. Raises NoAnswer."""
    mark = secrets.token_hex(8)
    # A shell's start file may set options, of which `set -x` prints each line.
    script = (
        f"{{ set +eux; }} 2>/dev/null; printf '\\n%s\\n' begin-{mark}; "
        f"{{ said=$({{ {command}; }} 2>&1 1>&3 3>&-); code=$?; }} 3>&1; "
        f'printf \'\\n%s\\n\' "code-{mark} $code" "$said" end-{mark}'
    )
    # Without input, omit the argument, because Ansible uses no terminal for a command with input.
    answer = action._low_level_execute_command(script, **({} if given is None else {"in_data": given}))
    # A terminal ends lines with a carriage return and a newline.
    text = "\n" + answer["stdout"].replace("\r\n", "\n") + "\n"
    found = re.search(rf"\nbegin-{mark}\n(.*)\ncode-{mark} (\d+)\n\n(.*)\n\nend-{mark}\n", text, re.DOTALL)
    if found:
        return Said(int(found[2]), found[1], found[3])
    raise NoAnswer(f"{_last_lines(text, answer.get('stderr') or '')} (exit code {answer['rc']})")


def _last_lines(*texts: str) -> str:
    """Return the last line of each text, without ssh's message about its end."""
    kept = [[line.strip() for line in text.splitlines() if line.strip() and not _CLOSED.match(line)] for text in texts]
    return "; ".join(lines[-1] for lines in kept if lines) or "no text"
