"""Creates another release of this checkout: a copy with another version and optionally a fault.

Usage: release.py CHECKOUT FOLDER VERSION [FAULT]
       release.py CHECKOUT FOLDER COMMIT

COMMIT: complete hash of a commit. The release is then the checkout of that commit.
"""

import io
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

PARTS = (
    "ansible.cfg",
    "galaxy.yml",
    "LICENSE",
    "meta",
    "playbooks",
    "plugin",
    "plugins",
    "pyproject.toml",
    "README.md",
    "requirements",
    "roles",
)
PACKAGE = "plugin/node_device_plugin/"
#: Maps each fault to its file, the text in that file, and the replacement.
FAULTS = {
    "does_not_start": (
        PACKAGE + "daemon/main.py",
        "    stop = asyncio.Event()\n",
        '    raise OSError("this release has a fault")\n',
    ),
    "never_registers": (
        PACKAGE + "kubelet/device_plugin/registration.py",
        "            if await self._register(path, kubelet, asked):\n",
        "            if not path:\n",
    ),
    "loses_a_device": (
        PACKAGE + "devices/health/nodes.py",
        "    for node in device.nodes:\n        try:\n",
        '    for node in device.nodes:\n        if device.id == "crand2":\n            return "lost"\n        try:\n',
    ),
}


def main(checkout, directory, version, fault=None):
    checkout, directory = pathlib.Path(checkout), pathlib.Path(directory)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    if re.fullmatch("[0-9a-f]{40}", version):
        export(checkout, directory, version)
    else:
        copy_with(checkout, directory, version, fault)
    link = directory / ".ansible/collections/ansible_collections/nodedevices/kubernetes"
    link.parent.mkdir(parents=True)
    link.symlink_to(directory)


def export(checkout, directory, commit):
    done = subprocess.run(["git", "-C", checkout, "archive", commit], capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode().strip()
        sys.exit(f"{checkout} has no commit {commit} ({said}): if it is a shallow clone, run git fetch --unshallow")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(directory, filter="data")


def copy_with(checkout, directory, version, fault):
    for part in PARTS:
        copy = shutil.copytree if (checkout / part).is_dir() else shutil.copy2
        copy(checkout / part, directory / part)
    project = directory / "pyproject.toml"
    text, count = re.subn(r'(?m)^version = ".*"$', 'version = "%s"' % version, project.read_text())
    assert count == 1
    project.write_text(text)
    if fault:
        name, before, after = FAULTS[fault]
        text = (directory / name).read_text()
        assert text.count(before) == 1, (name, before)
        (directory / name).write_text(text.replace(before, after))


if __name__ == "__main__":
    main(*sys.argv[1:])
