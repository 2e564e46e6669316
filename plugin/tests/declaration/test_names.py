"""The name rules, against the examples of the Kubernetes and CDI documentation and their limits."""

import pytest

from node_device_plugin.declaration import names


@pytest.mark.parametrize(
    "name",
    [
        "example.com/serial",
        "myplugin.io/mydevice-1",
        "github.com.ihcsim/crand",
        "a/b",
        "x.y/A_b.c-9",
        "d" * 60 + "/" + "n" * 63,
    ],
)
def test_good_resource_names(name: str) -> None:
    assert names.resource_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cpu", "form domain/name"),
        ("a/b/c", "form domain/name"),
        ("kubernetes.io/x", "kubernetes.io"),
        ("sub.kubernetes.io/x", "kubernetes.io"),
        ("requests.example.com/x", "requests."),
        ("Example.com/x", "lower-case DNS"),
        ("-a.com/x", "lower-case DNS"),
        ("/x", "lower-case DNS"),
        ("d" * 245 + "/x", "244"),
        ("a.com/", "at most 63"),
        ("a.com/" + "n" * 64, "at most 63"),
        ("a.com/x-", "begin and end with"),
        ("a.com/x\n", "begin and end with"),
    ],
)
def test_bad_resource_names(name: str, says: str) -> None:
    assert says in (names.resource_name_problem(name) or "")


@pytest.mark.parametrize("kind", ["vendor.com/class", "ab/cd", "nvidia.com/gpu", "a_-.b/c.d_e1"])
def test_good_kinds(kind: str) -> None:
    assert names.cdi_kind_problem(kind) is None


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("v/class", "crashes containerd"),
        ("vendor/c", "crashes containerd"),
        ("v/a/b", "crashes containerd"),
        ("/class", "begin with a letter"),
        ("vendor/", "begin with a letter"),
        ("1/class", "begin with a letter"),
        ("vendor", "vendor/class"),
        ("3com.com/nic", "begin with a letter"),
        ("vendor.com/1class", "begin with a letter"),
        ("vendor.com/class-", "end with"),
        ("vendor.com/cl ss", "contain only"),
    ],
)
def test_bad_kinds(kind: str, says: str) -> None:
    assert says in (names.cdi_kind_problem(kind) or "")


def test_device_names() -> None:
    for good in ("kvm0", "0", "a:b", "GPU-fef8089b", "dev0_1.2"):
        assert names.cdi_device_problem(good) is None
    for bad in ("/node1/dev1/1", "", "-a", "a-", "a b", "a=b"):
        assert "not a valid CDI device name" in (names.cdi_device_problem(bad) or "")
