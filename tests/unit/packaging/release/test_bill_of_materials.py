"""The bill of materials. `make release-check` validates it by the schema of CycloneDX."""

import datetime
import hashlib
import io
import json
import sys
import tarfile

import bill_of_materials
import pytest
from checkout import CHECKOUT

DATE = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
LIBC = (
    """Package: libc6
Version: 1:2.41-12+deb13u1
Architecture: amd64
Description: GNU C Library
 with a second line
SHA256: """
    + "a" * 64
)
WHEEL, CHART, BUNDLE = (
    "node_device_plugin-1.2.3-py3-none-any.whl",
    "node-device-plugin-1.2.3.tgz",
    "node-devices-1.2.3.tar",
)
IMAGE, COLLECTION = "node-device-plugin-1.2.3-amd64.tar", "nodedevices-kubernetes-1.2.3.tar.gz"


@pytest.fixture
def files(tmp_path):
    sys.path.insert(0, str(CHECKOUT / "packaging/image"))
    import archives

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for path, text in (("./var/lib/dpkg/status.d/libc6", LIBC), ("./etc/os-release", "NAME=x")):
            member = tarfile.TarInfo(path)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    archives.write(tmp_path / IMAGE, {}, [layer, io.BytesIO(tarfile.NUL * 1024)], "x:1")
    for name in (WHEEL, CHART, BUNDLE, COLLECTION):
        (tmp_path / name).write_text(name)
    return sorted(tmp_path.iterdir())


def test_it_lists_each_file_with_what_it_contains_or_needs(files):
    bill = json.loads(bill_of_materials.document("1.2.3", DATE, files))
    assert bill["metadata"]["timestamp"] == "2026-01-02T03:04:05Z"
    components = {each["bom-ref"]: each for each in bill["components"]}
    assert len(components) == len(bill["components"])
    for name, kind in ((WHEEL, "file"), (BUNDLE, "file"), (IMAGE, "container")):
        assert components[name]["type"] == kind
    sum_of_it = hashlib.sha256(WHEEL.encode()).hexdigest()
    assert components[WHEEL]["hashes"] == [{"alg": "SHA-256", "content": sum_of_it}]
    libc = "pkg:deb/debian/libc6@1:2.41-12%2Bdeb13u1?arch=amd64&distro=trixie"
    assert components[libc]["version"] == "1:2.41-12+deb13u1"
    assert components[libc]["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    needs = {each["ref"]: set(each["dependsOn"]) for each in bill["dependencies"]}
    assert needs["node-devices"] == {WHEEL, CHART, BUNDLE, IMAGE, COLLECTION}
    assert {each.partition("@")[0] for each in needs[WHEEL]} == {
        f"pkg:pypi/{name}" for name in ("grpcio", "protobuf", "pyyaml", "typing-extensions")
    }
    assert needs[IMAGE] == needs[WHEEL] | {libc}
    assert any(each.startswith("pkg:pypi/ansible-core@") for each in needs[COLLECTION])
    assert needs[BUNDLE] == needs[WHEEL] | needs[COLLECTION]
    assert needs[CHART] == set()
    assert set().union(*needs.values()) == components.keys()


def test_the_same_release_has_the_same_bill(files):
    one = bill_of_materials.document("1.2.3", DATE, files)
    assert bill_of_materials.document("1.2.3", DATE, files) == one
    other = bill_of_materials.document("1.2.4", DATE, files)
    assert json.loads(other)["serialNumber"] != json.loads(one)["serialNumber"]
