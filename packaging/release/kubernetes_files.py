"""Packs the Helm chart and the file for kubectl with the name of the released image."""

from __future__ import annotations

import gzip
import io
import tarfile

from checkout import CHECKOUT
from image_building import NAME

#: The image's name in the checkout: the image that `make image` builds.
_LOCAL = f"{NAME}/node-device-plugin"


def files(image: str, version: str) -> dict[str, bytes]:
    """Return the content of the chart's archive and of the file for kubectl, by file name. image: without a tag."""
    chart = CHECKOUT / "packaging/chart"
    manifests = CHECKOUT / "packaging/kubectl/node-device-plugin.yaml"
    contents = {str(path.relative_to(chart)): path.read_bytes() for path in chart.rglob("*") if path.is_file()}
    contents["values.yaml"] = named(contents["values.yaml"], image)
    return {
        f"node-device-plugin-{version}.tgz": packed("node-device-plugin", contents),
        f"node-device-plugin-{version}.yaml": named(manifests.read_bytes(), image),
    }


def named(content: bytes, image: str) -> bytes:
    """Return a file that names another image than the local one."""
    return content.replace(_LOCAL.encode(), image.encode())


def packed(chart: str, contents: dict[str, bytes]) -> bytes:
    """Return a chart's archive, as `helm package` writes it, but without dates."""
    result = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", fileobj=result, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path, content in sorted(contents.items()):
            member = tarfile.TarInfo(f"{chart}/{path}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return result.getvalue()
