"""Records the behaviour of a kubelet towards plugins and pods, or compares a kubelet with the transcripts.

    python -m kubelet_stand_in.transcripts record [--kubelet FILE] [--directory DIR] [SCENARIO ...]
    python -m kubelet_stand_in.transcripts check  [--kubelet FILE] [--directory DIR] [SCENARIO ...]

Both commands run as root on a lab node with a container runtime and a busybox image. They stop the node's own kubelet
and plugin, move the device plugin directory away, and restore all of this at the end. They refuse to run on any other
machine.

DIR/SCENARIO.json is the behaviour of the stand-in and of most kubelets. If a minor version of Kubernetes differs, its
behaviour is in DIR/MINOR/SCENARIO.json, for example DIR/1.37/handover.json. `check` prefers this file for a kubelet of
this minor version. `record` writes this file if both the kubelet's minor version and its behaviour differ from those in
DIR/SCENARIO.json.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import difflib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from . import lab_node
from .kubelet_under_test import KubeletUnderTest
from .on_node import OnNode
from .scenarios import CDI_DEVICES, CDI_KIND, SCENARIOS
from .story import Story

#: Systemd units that would interfere with a scenario.
_SERVICES = ("node-device-plugin.service", "kubelet.service")
_CDI_SPEC = "/etc/cdi/node-device-plugin-transcripts.json"


async def run(name: str, kubelet: KubeletUnderTest, image: str) -> list[dict[str, Any]]:
    """Run one scenario on a fresh kubelet. Returns the scenario's steps."""
    story = Story(kubelet, image)
    await kubelet.fresh()
    try:
        await SCENARIOS[name](story)
    finally:
        await story.end()
    # Convert to JSON types, as in a transcript file.
    steps: list[dict[str, Any]] = json.loads(json.dumps(story.steps))
    return steps


def read(directory: str, name: str, version: str = "") -> dict[str, Any]:
    """A transcript: ``kubelet`` (its version), ``record`` (the command), ``steps``. Raises OSError, ValueError.

    version: output of the kubelet's --version; empty for the stand-in's transcript.
    """
    of_minor = os.path.join(directory, minor_of(version), name + ".json")
    path = of_minor if version and os.path.exists(of_minor) else os.path.join(directory, name + ".json")
    with open(path, encoding="utf-8") as file:
        document: dict[str, Any] = json.load(file)
    return document


def minor_of(version: str) -> str:
    """The minor version, e.g. 1.37 for ``Kubernetes v1.37.2``; empty if ``version`` has none."""
    found = re.search(r"\bv(\d+\.\d+)", version)
    return found.group(1) if found else ""


def record(directory: str, name: str, version: str, steps: list[dict[str, Any]]) -> None:
    """Write the common transcript, or the transcript of the kubelet's minor version if they differ."""
    own = os.path.join(directory, minor_of(version))
    try:
        common = read(directory, name)
    except FileNotFoundError:
        common = {"kubelet": version}
    if minor_of(common["kubelet"]) == minor_of(version):
        write(directory, name, version, steps)
    elif difference(common["steps"], steps):
        os.makedirs(own, exist_ok=True)
        write(own, name, version, steps)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(own, name + ".json"))


def write(directory: str, name: str, version: str, steps: list[dict[str, Any]]) -> None:
    """Write a transcript."""
    command = "python -m kubelet_stand_in.transcripts record --kubelet KUBELET %s" % name
    head = "".join('"%s": %s,\n' % item for item in (("kubelet", json.dumps(version)), ("record", json.dumps(command))))
    with open(os.path.join(directory, name + ".json"), "w", encoding="utf-8") as file:
        file.write('{%s"steps": %s}\n' % (head, _steps_as_text(steps)))


def difference(expected: list[dict[str, Any]], seen: list[dict[str, Any]]) -> list[str]:
    """The lines of a unified diff between two lists of steps; empty if they are equal."""
    before, after = (_steps_as_text(steps).splitlines() for steps in (expected, seen))
    return list(difflib.unified_diff(before, after, "recorded", "seen", lineterm="", n=8))


def _steps_as_text(steps: list[dict[str, Any]]) -> str:
    """The steps as JSON, with one line for each change of a step."""
    return "[\n%s\n]" % ",\n".join(
        "  {%s}" % ",\n   ".join("%s: %s" % (json.dumps(key), json.dumps(step[key], sort_keys=True)) for key in step)
        for step in steps
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 if a kubelet differs from its transcript or a scenario fails, otherwise 0."""
    parser = argparse.ArgumentParser(prog="transcripts", description="Record a kubelet's behaviour, or check it.")
    parser.add_argument("mode", choices=("record", "check"))
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="default: all of %s" % ", ".join(SCENARIOS))
    parser.add_argument("--kubelet", default="/usr/local/bin/kubelet", metavar="FILE")
    parser.add_argument("--runtime", default="/run/containerd/containerd.sock", metavar="SOCKET")
    parser.add_argument("--image", default="localhost/node-devices/busybox:lab", help="an image with a shell")
    parser.add_argument("--directory", default=".", metavar="DIR", help="where the transcripts are")
    parser.add_argument("--log", default="/tmp/transcripts-kubelet.log", metavar="FILE", help="the kubelet's output")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.scenarios) - set(SCENARIOS))
    if unknown:
        parser.error("unknown scenario %s" % ", ".join(unknown))
    if lab_node.refuse_elsewhere("transcripts"):
        return 1
    version = subprocess.run([options.kubelet, "--version"], check=True, stdout=subprocess.PIPE).stdout.decode().strip()
    print("kubelet: %s" % version, flush=True)
    with _node_to_itself(), _cdi_spec():
        return asyncio.run(_all(options, version))


async def _all(options: argparse.Namespace, version: str) -> int:
    failed = []
    kubelet = OnNode(options.kubelet, options.runtime, options.log)
    try:
        for name in options.scenarios or SCENARIOS:
            begun = time.monotonic()
            problem: Sequence[str] = ()
            try:
                steps = await run(name, kubelet, options.image)
                if options.mode == "record":
                    record(options.directory, name, version, steps)
                else:
                    problem = difference(read(options.directory, name, version)["steps"], steps)
            except (AssertionError, RuntimeError, OSError, ValueError) as error:
                problem = [str(error)]
            print("%s %s (%.1f s)" % ("FAILED" if problem else "ok", name, time.monotonic() - begun), flush=True)
            if problem:
                failed.append(name)
                print("\n".join(problem), flush=True)
    finally:
        await kubelet.close()
    return 1 if failed else 0


@contextlib.contextmanager
def _node_to_itself() -> Iterator[None]:
    """Stop this node's kubelet and plugin before the block, and start them again afterwards."""
    active = [
        unit
        for unit in _SERVICES
        if subprocess.run(["systemctl", "is-active", "--quiet", unit], check=False).returncode == 0
    ]
    aside = OnNode.directory + ".put-aside"
    for unit in active:
        subprocess.run(["systemctl", "stop", unit], check=True)
    try:
        if os.path.exists(OnNode.directory):
            os.rename(OnNode.directory, aside)
        yield
    finally:
        if os.path.exists(aside):
            os.rename(aside, OnNode.directory)
        for unit in reversed(active):
            subprocess.run(["systemctl", "start", unit], check=True)


@contextlib.contextmanager
def _cdi_spec() -> Iterator[None]:
    """Create the CDI devices that a scenario names, because a runtime may resolve the names."""
    spec = {
        "cdiVersion": "0.3.0",
        "kind": CDI_KIND,
        "devices": [{"name": device, "containerEdits": {"env": ["RESOLVED=yes"]}} for device in CDI_DEVICES],
    }
    os.makedirs(os.path.dirname(_CDI_SPEC), exist_ok=True)
    with open(_CDI_SPEC, "w") as file:
        json.dump(spec, file)
    try:
        yield
    finally:
        os.unlink(_CDI_SPEC)


if __name__ == "__main__":
    sys.exit(main())
