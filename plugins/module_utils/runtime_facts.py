# SPDX-License-Identifier: Apache-2.0
"""The container runtime that a node's kubelet uses: socket, then process, executable, version, unit, configuration.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from typing import Callable, NamedTuple

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_process import (
    answer_of,
    listener,
    not_roots_alone,
    option,
    options,
)
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.processes import text_of, written_since
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.runtime_unit import unit_facts
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.writable import obstacle

_NAMES = ("containerd", "crio", "cri-dockerd")
DEFAULT_SOCKET = "/run/containerd/containerd.sock"
#: Of distributions whose kubelet is no process of its own, or stands aside: theirs is used, whoever else runs one. The
#: default's comes last: only Kubernetes uses the others, and it may be the containerd that Docker brought.
SOCKETS = (
    "/run/k3s/containerd/containerd.sock",
    "/run/k3s/cri-dockerd/cri-dockerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    DEFAULT_SOCKET,
)


def likely_socket(sockets=SOCKETS):
    """The CRI socket of a node whose kubelet does not name one; the default's where nobody listens."""
    return next((path for path in sockets if listener(path)[0] is not None), DEFAULT_SOCKET)


class Program(NamedTuple):
    """A runtime's program. name: that it is called by. run: takes its arguments, and that name, as NodeProcess.run."""

    name: str
    run: Callable[..., tuple[str | None, str | None]]

    def answer(self, *arguments):
        """What it prints and None, or None and its last words."""
        return self.run(*arguments, name=self.name)

    def version(self):
        """Its version; None where it does not tell one."""
        found = re.search(r"\bv?(\d+\.\d+\.\d+\S*)", self.answer("--version")[0] or "")
        return found.group(1).rstrip(",") if found else None


def installed(path):
    """How to run the program that a path names, if only root can replace it: see Program."""

    def run(*arguments, name):
        obstacle = not_roots_alone(path)
        return (None, obstacle) if obstacle else answer_of([name, *arguments], executable=path)

    return run


def runtime_facts(path):
    """The container runtime behind a CRI socket."""
    facts = {"socket": path}
    process, problem = listener(path)
    if process is None:
        return dict(facts, problem=problem)
    arguments = process.arguments
    name, executable = names_of(process)
    try:
        cwd = process.working_directory
    except OSError as error:
        return dict(facts, problem="its process %d ended: %s" % (process.pid, (error.strerror or "?").lower()))
    facts.update(pid=process.pid, executable=executable, name=name, **unit_facts(process.unit, name, arguments))
    program = Program(name, process.run)
    facts["version"] = program.version()
    # What the next start runs, where that is another: an upgrade that restarted nothing.
    facts["installed_version"] = (
        Program(name, installed(executable)).version() if process.replaced else facts["version"]
    )
    if name == "crio":
        facts["config"] = crio_config(program, arguments, cwd, process.environment)
    elif name == "containerd":
        facts["config"] = containerd_config(program, arguments, cwd)
    if "config" in facts:
        config = facts["config"]
        # What its files say themselves: `config dump` of 2.2 and later names a folder that nobody reads.
        _patterns, imported = imports_of(config["path"], config["content"], None)
        config["later"] = written_since(process.pid, [config["path"], *imported])
    return facts


def names_of(process):
    """A runtime's name, and its program's path.

    A program of many names says it in its first argument only: k3s is its own containerd, by a link ``containerd`` that
    lies beside it; a wrapper has a name of its own.
    """
    name, executable = os.path.basename(process.executable), process.executable
    called = os.path.basename(process.arguments[0]) if process.arguments else ""
    if name not in _NAMES and called in _NAMES:
        name, beside = called, os.path.join(os.path.dirname(executable), called)
        executable = beside if os.path.exists(beside) else executable
    return name, executable


def path_of(arguments, cwd, default, *names):
    """A path that an option gives, as the process with that working directory understands it."""
    given = option(arguments, *names)
    return os.path.join(cwd, given) if given else default


def file_facts(path):
    """A configuration file."""
    content, real_path = text_of(path), os.path.realpath(path)
    return {
        "path": path,
        # Where the text is, which is what an edit replaces; imports are relative to the name that the daemon was given.
        "real_path": real_path,
        "unwritable": obstacle(real_path),
        "exists": os.path.exists(path),
        "other_names": os.stat(path).st_nlink - 1 if os.path.exists(path) else 0,
        "content": content,
        # As Docker makes one of a path that it is to mount and that is not there.
        "why_no_text": "it is a folder" if os.path.isdir(path) else "it is not UTF-8",
        "sha256": ledgers.sha256(content.encode()) if content is not None else None,
    }


def containerd_config(program, arguments, cwd="/"):
    """containerd's root configuration file, and what the version that runs makes of it."""
    default = "/etc/containerd/config.toml"
    # Go's own flags may have one dash.
    given = path_of(arguments, cwd, None, "--config", "-config", "-c")
    path = given or default
    directory = os.path.dirname(path)
    facts = file_facts(path)
    # Only the default file may be missing, and then `config dump` fails, while the daemon runs with its defaults.
    dump = "dump" if given or facts["exists"] else "default"
    effective, problem = program.answer("--config", path, "config", dump)
    patterns, others = imports_of(path, facts["content"], effective)
    for itself in (path, facts["real_path"]):
        others.pop(itself, None)
    return dict(
        facts,
        effective=effective,
        problem=problem,
        # What k3s and RKE2 generate the root file from.
        files=texts([os.path.join(directory, "config*.toml.tmpl")]),
        imported=others,
        linked_imports=[name for name in others if os.path.islink(name)],
        unreadable_imports=[name for name in found(patterns) if os.path.isfile(name) and text_of(name) is None],
        # `config dump` of 2.x passes over them, and its daemon does not start. Those that an import imports have other
        # folders, which it does not tell: some of these paths nobody means.
        missing_imports=[name for name in patterns if "*" not in name and not os.path.isfile(name)],
        dangling_imports=[name for name in found(patterns) if not os.path.exists(name)],
    )


def imports_of(path, content, effective):
    """The paths and patterns that a root file takes in, and the text of each file that is there, by path.

    What containerd says of them, and what the files say themselves: where containerd refuses them that is all there is,
    and what an import imports, containerd 2 prints without the folder that it is relative to.
    """
    directory = os.path.dirname(path)
    patterns, read, pending = listed(effective, directory), {}, [(directory, content)]
    read.update(texts(patterns))
    seen = {path}
    while pending:
        directory, text = pending.pop()
        for pattern in listed(text, directory):
            patterns += [] if pattern in patterns else [pattern]
            for name, found_text in texts([pattern]).items():
                read[name] = found_text
                if name not in seen:
                    seen.add(name)
                    pending.append((os.path.dirname(name), found_text))
    return patterns, read


def listed(toml, directory):
    """The imports in a text, as containerd resolves those of a file in that folder."""
    return [os.path.normpath(os.path.join(directory, name)) for name in texts_of_list(toml, "imports")]


def texts_of_list(toml, key):
    """A list of texts in what containerd prints, without a TOML parser, which nodes lack."""
    inside = r"(?:\"[^\"\n]*\"|'[^'\n]*'|#[^\n]*|[^\]\"'#])*"
    listed = re.search(rf"(?m)^[ \t]*{key}\s*=\s*\[({inside})\]", toml or "")
    items = re.findall(r"\"([^\"\n]*)\"|'([^'\n]*)'|#[^\n]*", listed.group(1)) if listed else []
    return [one or other for one, other in items if one or other]


def crio_config(program, arguments, cwd="/", environment=None):
    """CRI-O's configuration: a file, and a folder of drop-ins, of which it reads every file of every folder in it.

    environment: of its process, which may say what no option does. ``given_dirs``: what sets its CDI folders otherwise
    than a file, and so overrides all files, as name and value; None for nothing.
    """
    environment = environment or {}
    default = "/etc/crio/crio.conf"
    path = path_of(arguments, cwd, environment.get("CONTAINER_CONFIG") or default, "--config", "-config", "-c")
    default_directory = environment.get("CONTAINER_CONFIG_DIR") or "/etc/crio/crio.conf.d"
    directory = path_of(arguments, cwd, default_directory, "--config-dir", "-config-dir", "-d")
    facts = file_facts(path)
    # Named and not there it is an error; packages since 1.30 have drop-ins alone.
    named = ["--config", path] if path != default or facts["exists"] else []
    effective, problem = program.answer(*named, "--config-dir", directory, "config")
    given = ",".join(options(arguments, "--cdi-spec-dirs", "-cdi-spec-dirs"))
    by_environment = environment.get("CONTAINER_CDI_SPEC_DIRS")
    if given:
        given = "--cdi-spec-dirs=" + given
    elif by_environment:
        given = "CONTAINER_CDI_SPEC_DIRS=" + by_environment
    return dict(
        facts,
        drop_in_directory=directory,
        files=walked(directory),
        effective=effective,
        problem=problem,
        given_dirs=given or None,
    )


def walked(directory):
    """The text of every file below a folder, by path."""
    paths = [os.path.join(top, name) for top, _directories, names in os.walk(directory) for name in names]
    return {path: text for path, text in ((path, text_of(path)) for path in sorted(paths)) if text is not None}


def found(patterns):
    """The files that patterns name, as containerd takes them in: by its own name one that has no star in it.

    Go's patterns match names that begin with a dot, too, and write ``[^`` for all but.
    """
    paths = set()
    for pattern in patterns:
        directory, name = os.path.split(pattern.replace("[^", "[!"))
        if "*" not in pattern:
            paths.update([pattern] if os.path.exists(pattern) else [])
            continue
        for each in glob.glob(directory) if set(directory) & set("*?[") else [directory]:
            names = os.listdir(each) if os.path.isdir(each) else []
            paths.update(os.path.join(each, one) for one in names if fnmatch.fnmatchcase(one, name))
    return sorted(paths)


def texts(patterns):
    """The text of each file, by path."""
    return {path: text for path, text in ((path, text_of(path)) for path in found(patterns)) if text is not None}
