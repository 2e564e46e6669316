# SPDX-License-Identifier: Apache-2.0
"""What a containerd configuration takes in: which files, which of them stands in the way, and a copy without itself."""

from __future__ import annotations

import fnmatch
import posixpath
import tomllib
from collections.abc import Mapping

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.cdi import version_tuple

from . import containerd_config
from .cdi import SPEC_DIRS, Cdi, Refusal
from .toml_edit import key_lines, parsed, tomlkit


def imports(dump: str, path: str, *other_names: str) -> list[str]:
    """What a root file takes in, by the output of ``config dump``; the root file's own names left out.

    containerd 1.7 lists files, in no order; 2.x what is written, which may be relative or a pattern.
    """
    names = _absolute(tomllib.loads(dump).get("imports") or [], path)
    return sorted(name for name in names if name not in (path, *other_names))


def has_relative(text: str) -> bool:
    """Whether it matters in which folder the text stands."""
    return any(not path.startswith("/") for path in parsed(text.replace("\r\n", "\n")).get("imports") or [])


def overridden(texts: Mapping[str, str], version: str) -> str:
    """Why turning CDI on in a root file has no effect, and what to do.

    texts: of the files that it imports, by path.
    """
    whole = version_tuple(version) < (2, 0, 0)
    advice = []
    for path, text in sorted(texts.items()):
        table = containerd_config.cri_table(parsed(text))
        there = Cdi(
            bool(table.get(containerd_config.ENABLE, not whole)), tuple(table.get(containerd_config.DIRS, SPEC_DIRS))
        )
        # Before 2.0 an imported table replaces the root file's, later its keys do.
        if not table or there.suffices:
            continue
        wrong = {} if there.enabled else {containerd_config.ENABLE: True}
        if there.missing_dirs:
            wrong[containerd_config.DIRS] = there.wanted_dirs
        advice.append(f"{' and '.join(key_lines(wrong))} in {path}")
    by = "an imported CRI table replaces its own" if whole else "what it imports overrides it"
    return f"turning CDI on in it has no effect, because {by}: set {', '.join(advice) or 'the same in its imports'}"


def staged(content: str, path: str, real_path: str) -> str:
    """The text for a copy under another name that is to mean what the file would.

    Without an import of the file itself, such as ``config dump`` prints: containerd passes over what it has read, but
    from the copy it would read the old text, which overrides the new one. Raises Refusal.
    """
    given_names = parsed(content).get("imports") or []
    names = _absolute(given_names, path)
    itself = [at for at, name in enumerate(names) if name in (path, real_path)]
    for given, name in zip(given_names, names, strict=True):
        if any(_matches(file, name) for file in (path, real_path)):
            raise Refusal(
                f"its import {given} takes in the file itself, so that a change of it cannot be tried before it is "
                f"written; import a folder of its own, such as conf.d/*.toml"
            )
    if not itself:
        return content
    document = tomlkit().parse(content)
    for at in reversed(itself):
        del document["imports"][at]
    return str(document.as_string())


def _absolute(names: list[str], path: str) -> list[str]:
    """Imports of the file with that path, as containerd resolves them."""
    return [posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) for name in names]


def _matches(path: str, pattern: str) -> bool:
    """As containerd matches imports: a star stands for no slash."""
    return "*" in pattern and pattern.count("/") == path.count("/") and fnmatch.fnmatchcase(path, pattern)
