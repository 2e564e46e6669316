"""Tests the resource names that a kubelet accepts. The transcript of registration has a real kubelet's answers."""

import pytest

from kubelet_stand_in.names import is_extended_resource


@pytest.mark.parametrize(
    "name",
    ["example.com/a", "a/b", "a1.b-c/A_b.C-1", "github.com.ihcsim/crand", "example.com/" + "a" * 63, "a" * 244 + "/a"],
)
def test_taken(name):
    assert is_extended_resource(name)


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "/a",
        "example.com/",
        "a/b/c",
        "example.kubernetes.io/a",
        "example.com/kubernetes.io/a",
        "requests.example.com/a",
        "Example.com/a",
        "example..com/a",
        "example.com/-a",
        "example.com/a-",
        "example.com/" + "a" * 64,
        "a" * 245 + "/a",
        "example.com/a\n",
    ],
)
def test_refused(name):
    assert not is_extended_resource(name)
