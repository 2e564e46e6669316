"""The chart and the file for kubectl, as a release has them: with its image, and the same bytes each time."""

import io
import tarfile

import kubernetes_files
import yaml
from checkout import CHECKOUT

IMAGE = "registry.example.com/a/node-device-plugin"


def test_both_name_the_released_image():
    made = kubernetes_files.files(IMAGE, "1.2.3")
    assert list(made) == ["node-device-plugin-1.2.3.tgz", "node-device-plugin-1.2.3.yaml"]
    objects = yaml.safe_load_all(made["node-device-plugin-1.2.3.yaml"])
    (daemonset,) = [each for each in objects if each["kind"] == "DaemonSet"]
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    assert container["image"].rpartition(":")[0] == IMAGE
    with tarfile.open(fileobj=io.BytesIO(made["node-device-plugin-1.2.3.tgz"])) as archive:
        assert yaml.safe_load(archive.extractfile("node-device-plugin/values.yaml"))["image"]["repository"] == IMAGE
        chart = CHECKOUT / "packaging/chart"
        assert {member.name: member.mtime for member in archive} == {
            f"node-device-plugin/{path.relative_to(chart)}": 0 for path in chart.rglob("*") if path.is_file()
        }
        assert archive.extractfile("node-device-plugin/Chart.yaml").read() == (chart / "Chart.yaml").read_bytes()


def test_the_bytes_depend_on_nothing_but_the_content():
    one = kubernetes_files.packed("chart", {"a": b"1", "b": b"2"})
    assert one == kubernetes_files.packed("chart", {"b": b"2", "a": b"1"})
    # gzip's own header: neither a name nor a date (RFC 1952, FLG and MTIME).
    assert one[3:8] == bytes(5)
