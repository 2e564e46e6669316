# SPDX-License-Identifier: Apache-2.0
"""Reads facts about the kubelet's container runtime, for example its version, unit and configuration."""

from __future__ import annotations

import functools
import glob
import os
import re

from .node_device_plugin.support import safe_words
from .node_device_plugin.support.bounded_reads import text_of
from .node_device_plugin.support.kubelet_process import likely_socket, socket_path
from .node_device_plugin.support.node_process import (
    answer_of,
    command_of,
    listener,
    not_roots_alone,
    option,
    options,
    properties,
    stat_of,
)
from .writable import obstacle

_NAMES = ("containerd", "crio", "cri-dockerd")
_CONFIG = ("--config", "-config", "-c")
#: Maps a runtime to its options for configuration and CDI directories. Each option is a tuple of its spellings.
_READS = {
    "containerd": (_CONFIG,),
    "crio": (_CONFIG, ("--config-dir", "-config-dir", "-d"), ("--cdi-spec-dirs", "-cdi-spec-dirs")),
}
#: The facts that the controller needs. The others have texts of the runtime's configuration, or come from them.
_SHOWN = ("socket", "problem", "pid", "name", "version", "unit")


def socket_of(given, kubelet):
    """Return the path of the runtime's socket. given: the user's, or None. kubelet: its facts, or None."""
    return socket_path(given) or (kubelet or {}).get("cri_socket") or likely_socket()


def shown(runtime):
    """Return a runtime's facts without anything from its configuration."""
    return {name: runtime[name] for name in _SHOWN if name in runtime}


def version_of(answer):
    """Return a program's version; None if the program prints no version. answer: runs it, and returns an Answer."""
    found = re.search(r"\bv?(\d+\.\d+\.\d+\S*)", answer("--version")[0] or "")
    return found.group(1).rstrip(",") if found else None


def installed(path):
    """Return a function such as NodeProcess.run, which runs the file at ``path`` if no other user can replace it."""

    def run(*arguments, name):
        obstacle = not_roots_alone(path)
        return (None, obstacle) if obstacle else answer_of([name, *arguments], executable=path)

    return run


def runtime_facts(path, with_config=True):
    """Return the facts of the container runtime behind a CRI socket. with_config: also texts of its configuration."""
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
    answer = functools.partial(process.run, name=name)
    facts["version"] = facts["installed_version"] = version_of(answer)
    if process.replaced:
        # After an upgrade without a restart, the next start runs another version.
        facts["installed_version"] = version_of(functools.partial(installed(executable), name=name))
    if not with_config:
        return facts
    if name == "crio":
        facts["config"] = crio_config(answer, arguments, cwd, process.environment)
    elif name == "containerd":
        facts["config"] = containerd_config(answer, arguments, cwd)
    return facts


def unit_facts(unit, name, arguments):
    """Return the facts of a runtime's unit. unit: its name; None if the runtime has no unit.

    name: the runtime's name. arguments: its command line. In the result, ``kill_mode`` (see systemd.kill(5)) is None if
    unknown. ``next_start`` lists the options that the next start changes, each with its values now and then.
    """
    said = properties(unit, "KillMode", "ExecStart") if unit else {}
    then = command_of(said.get("ExecStart", ""))
    # Only the processes tell what a wrapper or a variable stands for.
    is_known = then and os.path.basename(then[0]) == name and not any("$" in word for word in then)
    reads = _READS.get(name, ()) if is_known else ()
    changes = [(names[0], options(arguments, *names), options(then, *names)) for names in reads]
    next_start = [change for change in changes if change[1] != change[2]]
    return {"unit": unit, "kill_mode": said.get("KillMode") or None, "next_start": next_start}


def started_at(pid):
    """Return a process's start in seconds since 1970, see proc(5); None if the process has ended.

    The result can be wrong by about a second.
    """
    fields, boot = stat_of(pid), text_of("/proc/stat")
    if not fields or not boot:
        return None
    booted = next(int(line.split()[1]) for line in boot.splitlines() if line.startswith("btime "))
    return booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def written_since(pid, paths):
    """Return the files that someone wrote after a process's start. The process may not have read their new content."""
    start = started_at(pid)
    # Two seconds cover the error of the start time.
    return [path for path in paths if start and os.path.exists(path) and os.stat(path).st_mtime > start + 2]


def names_of(process):
    """Return a runtime's name and its program's path.

    If a program has several names, argv[0] is the name. For example, k3s runs as containerd through a link
    ``containerd`` beside its executable. If the link exists, the link is the path, else the executable.
    """
    name, executable = os.path.basename(process.executable), process.executable
    called = os.path.basename(process.arguments[0]) if process.arguments else ""
    if name not in _NAMES and called in _NAMES:
        name, beside = called, os.path.join(os.path.dirname(executable), called)
        executable = beside if os.path.exists(beside) else executable
    return name, executable


def path_of(arguments, cwd, default, *names):
    """Return an option's path, resolved in the process's working directory; ``default`` if the option is not given."""
    given = option(arguments, *names)
    return os.path.join(cwd, given) if given else default


def file_facts(path):
    """Return the facts of a configuration file."""
    content, real_path = text_of(path), os.path.realpath(path)
    return {
        "path": path,
        # An edit must replace the real file. Imports are relative to `path`.
        "real_path": real_path,
        "unwritable": obstacle(real_path),
        "exists": os.path.exists(path),
        "other_names": os.stat(path).st_nlink - 1 if os.path.exists(path) else 0,
        "content": content,
        # If a mount source is missing, Docker creates a directory at its path.
        "why_no_text": "it is a directory" if os.path.isdir(path) else "it is not UTF-8",
    }


def containerd_config(answer, arguments, cwd="/"):
    """Return the facts of containerd's root configuration file, and the running version's effective configuration.

    answer: see `version_of`. The caller has loaded the plugin's code (module_utils/node_code.py).
    """
    from node_device_plugin.runtime.configuration import containerd_imports

    default = "/etc/containerd/config.toml"
    # Go's flag package also accepts one dash.
    given = path_of(arguments, cwd, None, *_CONFIG)
    path = given or default
    directory = os.path.dirname(path)
    facts = file_facts(path)
    # If the default file is missing, the daemon runs with its defaults, but `config dump` fails. Without the file of
    # --config, no daemon starts.
    dump = "dump" if given or facts["exists"] else "default"
    effective, problem = answer("--config", path, "config", dump)
    imports = containerd_imports.read(facts)
    return dict(
        facts,
        is_given=bool(given),
        effective=effective,
        imports=imports,
        problem=problem and safe_words.message(problem, (path, *imports.paths)),
        # k3s and RKE2 generate the root file from these templates.
        files=texts_of(glob.glob(os.path.join(glob.escape(directory), "config*.toml.tmpl"))),
    )


def crio_config(answer, arguments, cwd, environment):
    """Return the facts of CRI-O's configuration file and drop-in directory. CRI-O reads the directory recursively.

    answer: see `version_of`. environment: the process's environment, whose variables replace missing options.
    ``given_dirs`` in the result: the option or variable, as name=value, that sets the CDI directories and overrides all
    files; None if neither is set.
    """
    default = "/etc/crio/crio.conf"
    path = path_of(arguments, cwd, environment.get("CONTAINER_CONFIG") or default, *_CONFIG)
    default_directory = environment.get("CONTAINER_CONFIG_DIR") or "/etc/crio/crio.conf.d"
    directory = path_of(arguments, cwd, default_directory, "--config-dir", "-config-dir", "-d")
    facts = file_facts(path)
    # If the file of --config is missing, CRI-O fails. Packages since 1.30 have only drop-ins.
    named = ["--config", path] if path != default or facts["exists"] else []
    effective, problem = answer(*named, "--config-dir", directory, "config")
    given = ",".join(options(arguments, "--cdi-spec-dirs", "-cdi-spec-dirs"))
    by_environment = environment.get("CONTAINER_CDI_SPEC_DIRS")
    if given:
        given = "--cdi-spec-dirs=" + given
    elif by_environment:
        given = "CONTAINER_CDI_SPEC_DIRS=" + by_environment
    files = texts_of(os.path.join(top, name) for top, _directories, names in os.walk(directory) for name in names)
    return dict(
        facts,
        drop_in_directory=directory,
        files=files,
        effective=effective,
        problem=problem and safe_words.message(problem, (path, directory, *files)),
        given_dirs=given or None,
    )


def texts_of(paths):
    """Return the texts of the files that have a text, by path."""
    texts = {path: text_of(path) for path in sorted(paths)}
    return {path: text for path, text in texts.items() if text is not None}
