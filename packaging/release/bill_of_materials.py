"""Writes a release's bill of materials: its files, and the packages of others that they contain or need.

The format is CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/). The packages' names are purls
(https://github.com/package-url/purl-spec), by which scanners find known vulnerabilities.
"""

from __future__ import annotations

import datetime
import email
import json
import pathlib
import tarfile
import urllib.parse
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from checkout import CHECKOUT, locked_wheels, wheels
from debian_base import RELEASE

_PACKAGES = "var/lib/dpkg/status.d/"
_LICENCE = [{"license": {"id": "Apache-2.0"}}]


class Package(NamedTuple):
    """A package of others. sha256: of its file, or empty."""

    name: str
    version: str
    purl: str
    sha256: str = ""


def locked(lock: str) -> list[Package]:
    """Return the packages of a lock file in requirements/."""
    return [
        Package(each.name, str(each.version), f"pkg:pypi/{each.name}@{each.version}")
        for each in locked_wheels.read_lock(CHECKOUT / "requirements" / lock)
    ]


def debian(image: pathlib.Path) -> Iterator[Package]:
    """Yield the Debian packages that an image's archive contains (packaging/image/debian_base.py)."""
    with tarfile.open(image) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(layer)) as content:
                for member in content:
                    if member.isreg() and member.name.removeprefix("./").startswith(_PACKAGES):
                        yield _of_debian(content.extractfile(member).read())


def _of_debian(paragraph: bytes) -> Package:
    fields = email.message_from_string(paragraph.decode())
    name, version = fields["Package"], urllib.parse.quote(fields["Version"], safe=":~")
    purl = f"pkg:deb/debian/{name}@{version}?arch={fields['Architecture']}&distro={RELEASE}"
    return Package(name, fields["Version"], purl, fields["SHA256"])


def is_image(path: pathlib.Path) -> bool:
    """Return whether a file of a release is an image's archive. The bundle, node-devices-*.tar, is none."""
    return path.match("node-device-plugin-*.tar")


def document(version: str, date: datetime.datetime, files: Sequence[pathlib.Path]) -> bytes:
    """Return the bill of materials. files: the release's other files. date: of the release."""
    of_nodes, of_controllers = locked("node.txt"), locked("controller.txt")
    by_prefix = {
        "node_device_plugin-": of_nodes,
        "nodedevices-": of_controllers,
        "node-devices-": [*of_controllers, *of_nodes],
    }
    needs: dict[str, list[Package]] = {}
    for path in files:
        needs[path.name] = [*of_nodes, *debian(path)] if is_image(path) else []
        for prefix, packages in by_prefix.items():
            if path.name.startswith(prefix):
                needs[path.name] = packages
    by_purl = {each.purl: each for listed in needs.values() for each in listed}
    components = [
        {
            "type": "container" if is_image(path) else "file",
            "bom-ref": path.name,
            "name": path.name,
            "version": version,
            "licenses": _LICENCE,
            "hashes": _hashes(wheels.file_digest(path)),
        }
        for path in files
    ]
    components += [
        {
            "type": "library",
            "bom-ref": each.purl,
            "name": each.name,
            "version": each.version,
            "purl": each.purl,
            **({"hashes": _hashes(each.sha256)} if each.sha256 else {}),
        }
        for _purl, each in sorted(by_purl.items())
    ]
    dependencies = [{"ref": "node-devices", "dependsOn": sorted(needs)}]
    dependencies += [
        {"ref": name, "dependsOn": sorted({each.purl for each in listed})} for name, listed in sorted(needs.items())
    ]
    content: dict[str, Any] = {
        "metadata": {
            "timestamp": date.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": "node-devices",
                "name": "node-devices",
                "version": version,
                "licenses": _LICENCE,
            },
        },
        "components": components,
        "dependencies": dependencies,
    }
    # The serial number names this content, so that the same release has the same number.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    head = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
    }
    return (json.dumps({**head, **content}, indent=1) + "\n").encode()


def _hashes(sha256: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": sha256}]
