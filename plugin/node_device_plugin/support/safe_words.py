# SPDX-License-Identifier: Apache-2.0
"""Shows a runtime's messages and log lines without text that may come from its configuration.

A message may quote any value of the configuration, escaped or in part, and containerd 1.7 logs its whole configuration
when it starts. Therefore only known words are shown: the words of errors, names of settings, small numbers, and paths
that the caller names.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable

#: What a message has instead of other words.
HIDDEN = "(hidden)"
#: Most lines of a log that are shown.
_LINES = 15
# The words of error messages of containerd, CRI-O, their TOML parsers, Go and systemd.
_WORDS = """
    a aborted activating active after again all allowed_devices already an and any application argument arguments array
    as asynchronous at auth auto-restart bad base_runtime_spec be because before bin_dir bool boolean boot both bug but
    by can can't cannot cause cdi cdi_spec_dirs channel character characters check child class client closed cni code
    column command complete conf_dir conf_template config config_path configs configuration configured conmon connect
    connection container containerd containerd.runtimes containers context control conversion convert convertible core
    correct corresponding could counter create created creating cri cri-dockerd cri-o crio crun daemon damaged data
    datetime deadline decode decoding default default_runtime default_runtime_name deprecated details device
    device_ownership_from_security_context dial directory disabled disabled_plugins does down drop_infra_ctr dump dumped
    duplicate duplicated duration each either empty enable_cdi enable_selinux enabled end ended ending endpoint
    endpoints enough eof equal error errors exceeded exec executable executing exist existing exists exit exited expect
    expected expecting extra failed failure false fatal field file files find first float for format found from get
    goroutine got group grpc handler handling has have headers hook hooks hooks_dir host id idle image images import
    imports in inactive index initialise initialize initializing inline input insecure_registries instead int integer
    interface internal into invalid invoking io.containerd.x.vx is it its job jobs key keys killed last later less level
    library limit line link list listen listening load loaded loading locate lock log logged main map marshal
    max_concurrent_downloads memory message metadata migration mirrors missing mode module monitor_path more mount msg
    must name named namespace need needs network new newline next no non not nothing null number object of offline on
    only open opening operation option options or other out overlayfs override panic parent parse parser parsing patch
    path permission permissions please plugin plugins pod pods position privileged problem process processing provided
    proxy queued quickly quoted range read reading received recover refused registry registry.configs registry.mirrors
    removed repeated replaced request requested required required_plugins requires resource restart result root row rpc
    run runc running runtime runtime_path runtime_root runtime_type runtimes sandbox sandbox_image schedule scheduled
    section see select semantics server service set setting settings shim shutdown signal size skip snapshotter socket
    spec start started starting state status step stop stopped stopping storage stream stream_idle_timeout
    stream_server_address string strings struct such support supported syntax system systemd systemd_cgroup t table
    tables target tcp text than the there time timeout to token toml too tree true try type unable undecoded undefined
    unescaped unexpected unit unix unknown unmarshal unmarshalling unrecognised unrecognized unsupported until update
    uri use used user using valid validate validating value values version volume wait waiting warning was when while
    with without write writing wrong you
"""
_KNOWN = frozenset(
    [*_WORDS.split(), *(word.lower() for number in errno.errorcode for word in os.strerror(number).split())]
)
_LEVEL = re.compile(r"\blevel=(\w+)")
#: Levels of lines that say what a program does, for example with which configuration it starts.
_TALK = ("trace", "debug", "info")
_TIME = re.compile(r'\btime="[^"]*"\s*|^\d{4}-\d\d-\d\d[T ]\S+\s+')
#: A word between the marks that programs put around it.
_WORD = re.compile(r"[^\s\"'`(){}\[\],;:=\\|<>]+")
_NUMBER = re.compile(r"\d{1,4}|0/[A-Z]+|1/FAILURE|2/[A-Z]+")
_PLUGIN_ID = re.compile(r"io\.containerd\.[a-z]{1,20}\.v\d\.[a-z-]{1,20}")
_TOGETHER = re.compile(r"\(hidden\)(?:[\s\"'`(){}\[\],;:=\\|<>]*\(hidden\))+")


def message(text: str, known: Iterable[str] = ()) -> str:
    """Return a message with only known words. known: further words, for example the file's path."""
    # Longest first, because one path may begin with another.
    kept = sorted(filter(None, known), key=len, reverse=True)
    # A known word may be a part of another, such as containerd of a plugin's name.
    parts = re.split(r"(?<![\w.-])({})".format("|".join(map(re.escape, kept))), text) if kept else [text]
    shown = "".join(part if part in kept else _WORD.sub(_shown, part) for part in parts)
    return _TOGETHER.sub(HIDDEN, shown)


def lines(log: str, known: Iterable[str] = ()) -> str:
    """Return the last lines of a log that tell of a problem, with only known words. known: as in `message`."""
    shown = []
    for line in log.splitlines():
        level = _LEVEL.search(line)
        # A stack's lines name no cause.
        if (level and level.group(1) in _TALK) or line.startswith(("\t", "goroutine ")):
            continue
        safe = message(_TIME.sub("", line, count=1), known)
        if len(_WORD.findall(safe.replace(HIDDEN, ""))) > 1:
            shown.append(safe)
    return "\n".join(shown[-_LINES:])


def _shown(found: re.Match[str]) -> str:
    word = found.group()
    plain = word.strip(".!?").lower()
    is_known = plain in _KNOWN or _NUMBER.fullmatch(word) or _PLUGIN_ID.fullmatch(word)
    return word if is_known or not any(map(str.isalnum, word)) else HIDDEN
