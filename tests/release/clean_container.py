"""Runs the commands of pages in a container that has the files of `make release`, but no checkout.

The container has Debian's Python, ssh client and podman. Its nodes are other containers, which podman creates through
the socket of this machine's podman. A script gets the pages' commands by lines of these forms:

    #sh PAGE | HEADING | BLOCKS       the blocks of shell below a heading; without a heading, those of the whole page
    #yaml PAGE | HEADING | BLOCK      a block of YAML
    #text PAGE | HEADING | BLOCK      a block without a language
    #file PATH                        a file of the checkout that is not a user's, such as another program

BLOCKS are a Python index or slice; without them, all blocks. The commands of a checkout become those of the installed
collection, as docs/collection.md tells its readers.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
LAB = CHECKOUT / "lab/roles/lab_node/files"
#: How pip reaches this machine's package index.
OF_PIP = re.compile(r"PIP_\w+|\w+_proxy|SSL_CERT_\w+", re.I)
FILES_OF_PIP = ("/etc/pip.conf", "/etc/ssl/certs", "/usr/local/share/ca-certificates")
LINE = re.compile(r"^#(sh|yaml|text|file) ([^|\n]+?)(?: *\| *([^|\n]*?))?(?: *\| *([-\d:]+))?$", re.M)
#: What docs/collection.md says about the commands of other pages.
INSTALLED = (
    (re.compile(r"\.venv/bin/ansible-playbook"), "$controller/bin/ansible-playbook"),
    (re.compile(r"inventories/mine"), "inventory"),
    (re.compile(r"\bplaybooks/(\w+)\.yml"), r"nodedevices.kubernetes.\1"),
)


def blocks(page: str, heading: str, language: str) -> list[str]:
    """Return the blocks of a language below a heading of a page, also those in lists. Without a heading: all blocks."""
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    if heading:
        (text,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.M | re.S)
    return [textwrap.dedent(block) for _indent, written, block in found if written == language]


def chosen(found: Sequence[str], which: str) -> str:
    """Return the blocks of a Python index or slice. Raises IndexError if there is none."""
    start, colon, stop = which.partition(":")
    if not colon:
        return found[int(start)]
    part = found[int(start) if start else None : int(stop) if stop else None]
    if not part:
        raise IndexError(which)
    return "".join(part)


def installed(commands: str) -> str:
    """Return the commands of a checkout as those of the installed collection."""
    for pattern, replacement in INSTALLED:
        commands = pattern.sub(replacement, commands)
    return commands


def expanded(script: str) -> str:
    """Replace the lines of a script that name a page or a file. Raises ValueError if the page has no such part."""

    def content(line: re.Match[str]) -> str:
        kind, page, heading, which = line.groups("")
        if kind == "file":
            return (CHECKOUT / page).read_text(encoding="utf-8").rstrip("\n")
        try:
            text = chosen(blocks(page, heading, "" if kind == "text" else kind), which or ":")
        except (ValueError, IndexError) as error:
            raise ValueError(f"{page} has no such blocks: {line[0]}") from error
        return (installed(text) if kind == "sh" else text).rstrip("\n")

    return LINE.sub(content, script)


def _arguments(socket: pathlib.Path, programs: Mapping[str, str]) -> list[str]:
    """Return the container's options. socket: of the engine."""
    given = {name: value for name, value in os.environ.items() if OF_PIP.fullmatch(name)}
    given |= {**programs, "CONTAINER_HOST": f"unix://{socket}"}
    mounted = [f"{CHECKOUT}/dist:/release:ro", f"{socket.parent}:{socket.parent}"]
    # The engine mounts the programs into nodes, so they have the same path everywhere.
    same = (*FILES_OF_PIP, *programs.values())
    mounted += [f"{path}:{path}:ro" for path in same if pathlib.Path(path).exists()]
    return [
        # Privileged, because the machine's user may raise the limit of inotify instances.
        *("--rm", "--privileged", "--network=host", "--workdir=/root"),
        *(f"--env={name}={value}" for name, value in given.items()),
        *(f"--volume={volume}" for volume in mounted),
    ]


@contextlib.contextmanager
def _engine_socket() -> Iterator[pathlib.Path]:
    """Let the machine's podman listen on a socket."""
    with tempfile.TemporaryDirectory(prefix="node-devices-engine-") as directory:
        socket = pathlib.Path(directory) / "podman.sock"
        service = subprocess.Popen([LAB / "engine", "system", "service", "--time=0", f"unix://{socket}"])
        try:
            deadline = time.monotonic() + 30
            while not socket.exists():
                if service.poll() is not None or time.monotonic() > deadline:
                    raise OSError("the engine opens no socket: a clean container needs podman")
                time.sleep(0.1)
            yield socket
        finally:
            service.terminate()
            service.wait()


def run(
    script: str, nodes: Sequence[str], evidence: pathlib.Path, programs: Mapping[str, str] = MappingProxyType({})
) -> int:
    """Run a script, and return its exit code. After a failure, keep the nodes' evidence, and destroy them.

    programs: directories of a user's programs, each by its variable, such as KUBERNETES_BIN_DIR. Raises OSError if the
    engine opens no socket.
    """
    image = subprocess.run(
        [LAB / "node_image.py", "--kind=controller", "trixie"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split()[0]
    with _engine_socket() as socket:
        command = [f"{LAB}/engine", "run", *_arguments(socket, programs), image, "bash", "-euxo", "pipefail", "-c"]
        code = subprocess.run([*command, expanded(script)], stdin=subprocess.DEVNULL, check=False).returncode
    if code:
        keep = CHECKOUT / "molecule/shared/evidence.py"
        subprocess.run([sys.executable, keep, evidence, "none", *nodes], check=False)
        subprocess.run([LAB / "engine", "rm", "--force", "--ignore", "--volumes", *nodes], check=False)
    return code
