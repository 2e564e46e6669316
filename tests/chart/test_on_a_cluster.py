"""Helm and kubectl on the real API server of KUBERNETES_BIN_DIR: objects alone, because no kubelet runs."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from chart_objects import CHART, ROOT

sys.path.insert(0, str(ROOT / "tests/kubernetes"))
import certificates
import real

from node_device_plugin.cluster.manifests.files import render, to_yaml

SERIAL = {"name": "devices.example.com/serial", "discover": {"paths": ["/dev/serial/by-id/*"]}}
KVM = {"name": "devices.example.com/kvm", "devices": ["/dev/kvm"]}
NAME = "node-device-plugin"
FILE = ROOT / "packaging/kubectl/node-device-plugin.yaml"


class Cluster:
    """kubectl as the administrator."""

    def __init__(self, kubeconfig: pathlib.Path) -> None:
        self.kubeconfig = str(kubeconfig)

    def kubectl(self, *arguments: str) -> str:
        program = shutil.which("kubectl", path=os.environ["KUBERNETES_BIN_DIR"])
        assert program
        done = subprocess.run([program, f"--kubeconfig={self.kubeconfig}", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def objects(self, namespace: str) -> dict[tuple[str, str], Any]:
        """Without those that the cluster itself or Helm makes."""
        kinds = "configmaps,daemonsets,networkpolicies,resourcequotas"
        found = json.loads(self.kubectl("get", kinds, f"--namespace={namespace}", "--output=json"))["items"]
        named = {(each["kind"], each["metadata"]["name"]): each for each in found}
        named.pop(("ConfigMap", "kube-root-ca.crt"), None)
        return named


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not real.programs():
        pytest.fail("KUBERNETES_BIN_DIR has no kube-apiserver and etcd. Build them: make kubernetes")
    directory = tmp_path_factory.mktemp("cluster")
    authority = certificates.Authority(directory)
    with real.serving(directory, authority, {"admin-token": "admin"}) as port:
        of_cluster = {"server": f"https://localhost:{port}", "certificate-authority": str(authority.path)}
        path = directory / "kubeconfig"
        content = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": of_cluster}],
            "users": [{"name": "test", "user": {"token": "admin-token"}}],
        }
        path.write_text(yaml.safe_dump(content))
        real.wait_until_ready(_opener(authority), of_cluster["server"], "admin-token")
        yield Cluster(path)


def _opener(authority: certificates.Authority) -> Any:
    import ssl
    import urllib.request

    tls = ssl.create_default_context(cafile=str(authority.path))
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))


def test_a_release_on_the_real_api_server(helm, cluster):
    def run(*arguments, values=None):
        code, text = helm(*arguments, "--namespace=devices", f"--kubeconfig={cluster.kubeconfig}", values=values)
        assert code == 0, text

    def names():
        return set(cluster.objects("devices"))

    def resources():
        data = cluster.objects("devices")["ConfigMap", NAME]["data"]
        return [each["name"] for each in yaml.safe_load(data["_default"])["resources"]]

    def generation():
        return cluster.objects("devices")["DaemonSet", NAME]["metadata"]["generation"]

    more = {"networkPolicy": {"enabled": True}, "resourceQuota": {"enabled": True}}
    chart = str(CHART)
    cluster.kubectl("create", "namespace", "devices")
    run("install", NAME, chart, values={"profiles": {"default": {"config": {"resources": [SERIAL]}}}, **more})
    first = {(kind, NAME) for kind in ("ConfigMap", "DaemonSet", "NetworkPolicy", "ResourceQuota")}
    assert names() == first
    assert resources() == [SERIAL["name"]]

    changed = {"default": {"config": {"resources": [SERIAL, KVM]}}, "gpu": {"config": {"resources": [KVM]}}}
    run("upgrade", NAME, chart, values={"profiles": changed, **more})
    assert names() == first | {(kind, f"{NAME}-gpu") for kind in ("ConfigMap", "DaemonSet", "NetworkPolicy")}
    assert resources() == [SERIAL["name"], KVM["name"]]
    # The running pods read their configuration again.
    assert generation() == 1

    run("rollback", NAME, "1")
    assert names() == first
    assert resources() == [SERIAL["name"]]
    assert generation() == 1

    run("uninstall", NAME)
    assert names() == set()
    assert json.loads(cluster.kubectl("get", "secrets", "--namespace=devices", "--output=json"))["items"] == []


#: In this order, neither a creation nor a deletion leaves a right without its policy.
GRANT = ["ClusterRole", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ClusterRoleBinding"]
TAINT = {"startupTaint": "example.com/new:NoSchedule"}


class Release:
    """A release of the chart in a namespace of its name."""

    def __init__(self, helm, cluster, namespace):
        self.helm, self.cluster, self.namespace = helm, cluster, namespace
        cluster.kubectl("create", "namespace", namespace)

    def run(self, *arguments, values=None, code=0):
        """Run helm, which must end with this exit code; returns what helm prints."""
        options = f"--namespace={self.namespace}", f"--kubeconfig={self.cluster.kubeconfig}"
        ended, text = self.helm(*arguments, *options, values=values)
        assert ended == code, text
        return text

    def rights(self):
        """The objects of the cluster that give pods rights, by name: each name's kinds, the oldest first."""
        kinds = "validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,clusterrolebindings"
        selected = f"--selector=app.kubernetes.io/instance={NAME}"
        found = json.loads(self.cluster.kubectl("get", kinds, selected, "--output=json"))["items"]
        names = {}
        for each in sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"])):
            names.setdefault(each["metadata"]["name"], []).append(each["kind"])
        return names

    def of_nodes(self):
        """What pods may change of their node object."""
        role = self.cluster.kubectl("get", "clusterrole", f"{NAME}.{self.namespace}", "--output=json")
        return json.loads(role)["rules"][0]["resources"]

    def classes(self):
        found = self.cluster.kubectl("get", "deviceclasses", "--output=name")
        return [each.partition("/")[2] for each in found.split()]

    def pods(self):
        """Whether the pods have a token, and how many more an update makes."""
        spec = self.cluster.objects(self.namespace)["DaemonSet", NAME]["spec"]
        has_token = spec["template"]["spec"].get("serviceAccountName") == NAME
        return has_token, spec["updateStrategy"]["rollingUpdate"].get("maxSurge", 0)


@pytest.fixture
def release(helm, cluster, request):
    return Release(helm, cluster, request.node.name.replace("_", "-")[:40].strip("-"))


def test_node_rights_of_pods(release):
    """The policy is there before the pods have the rights that it limits, also in an upgrade, and all of it goes."""
    chart, name = str(CHART), f"{NAME}.{release.namespace}"
    release.run("install", NAME, chart)
    assert release.rights() == {}
    release.run("upgrade", NAME, chart, values=TAINT)
    assert release.rights() == {name: GRANT}
    assert release.of_nodes() == ["nodes"]
    release.run("upgrade", NAME, chart, values={**TAINT, "nodeCondition": True})
    assert release.of_nodes() == ["nodes", "nodes/status"]
    release.run("upgrade", NAME, chart, values={"nodeCondition": False})
    assert release.rights() == {}
    release.run("rollback", NAME, "3")
    assert release.rights() == {name: GRANT}
    release.run("uninstall", NAME)
    assert release.rights() == {}


def test_another_api_of_a_profile(release):
    """What the driver needs comes with the first resource of the API, and goes with the last one."""

    def values(*resources, **more):
        return {"profiles": {"default": {"config": {"resources": list(resources)}}}, **more}

    chart, name = str(CHART), f"{NAME}.{release.namespace}.resourceslices"
    claimed = {**SERIAL, "api": "dra"}
    release.run("install", NAME, chart, values=values(SERIAL, KVM))
    assert (release.rights(), release.classes(), release.pods()) == ({}, [], (False, 0))
    release.run("upgrade", NAME, chart, values=values(claimed, KVM))
    assert (release.rights(), release.classes()) == ({name: GRANT}, ["serial.devices.example.com"])
    assert release.pods() == (True, 0)
    release.run("upgrade", NAME, chart, values=values(claimed, **TAINT))
    assert release.rights() == {name: GRANT, f"{NAME}.{release.namespace}": GRANT}
    assert release.pods() == (True, 1)
    release.run("rollback", NAME, "1")
    assert (release.rights(), release.classes(), release.pods()) == ({}, [], (False, 0))
    release.run("rollback", NAME, "2")
    assert (release.rights(), release.classes()) == ({name: GRANT}, ["serial.devices.example.com"])
    release.run("uninstall", NAME)
    assert (release.rights(), release.classes()) == ({}, [])


def test_claims_of_a_configmap_that_the_values_do_not_know_are_refused(release):
    text = yaml.safe_dump({"api": "dra", "resources": [SERIAL, {**KVM, "api": "device_plugin"}]})
    create = ["create", "configmap", "theirs", f"--namespace={release.namespace}", f"--from-literal=_default={text}"]
    release.cluster.kubectl(*create)
    profile = {"existingConfigMap": "theirs"}
    said = release.run("install", NAME, str(CHART), values={"profiles": {"default": profile}}, code=1)
    assert f"profiles.default.draResources: add {SERIAL['name']}, which has api: dra in ConfigMap theirs" in said
    profile["draResources"] = [SERIAL["name"]]
    release.run("install", NAME, str(CHART), values={"profiles": {"default": profile}})
    assert release.classes() == ["serial.devices.example.com"]
    release.run("uninstall", NAME)


def test_no_right_is_without_its_policy_while_kubectl_deletes_the_file(cluster, tmp_path):
    (tmp_path / "nodes").mkdir()
    configuration = {"resources": [{**SERIAL, "api": "dra"}]}
    (tmp_path / "nodes/_default.yaml").write_text(yaml.safe_dump(configuration))
    (tmp_path / "deployment.yaml").write_text(yaml.safe_dump({"image": "x", "namespace": "deleted", "name": "deleted"}))
    file = tmp_path / "rendered.yaml"
    file.write_text(to_yaml(render(str(tmp_path / "nodes"), str(tmp_path / "deployment.yaml"))))
    applied = cluster.kubectl("apply", "--server-side", f"--filename={file}").splitlines()
    kinds = [each.partition("/")[0].partition(".")[0] for each in applied]
    grant = [each.lower() for each in GRANT]
    assert kinds == ["namespace", "serviceaccount", *grant, "configmap", "daemonset", "deviceclass"]
    deleted = cluster.kubectl("delete", "--wait=false", f"--filename={file}").splitlines()
    assert [each.partition(" ")[0].partition(".")[0] for each in deleted] == kinds


def test_the_file_for_kubectl_on_the_real_api_server(cluster):
    applied = cluster.kubectl("apply", "--server-side", f"--filename={FILE}").splitlines()
    assert applied == [
        "namespace/node-devices serverside-applied",
        f"configmap/{NAME} serverside-applied",
        f"daemonset.apps/{NAME} serverside-applied",
    ]
    before = cluster.objects("node-devices")
    assert set(before) == {("ConfigMap", NAME), ("DaemonSet", NAME)}
    # The file and the base for Kustomize are the same.
    cluster.kubectl("apply", "--server-side", f"--kustomize={FILE.parent}")
    after = cluster.objects("node-devices")
    versions = [{each["metadata"]["resourceVersion"] for each in found.values()} for found in (before, after)]
    assert versions[0] == versions[1]
    cluster.kubectl("delete", "--wait=false", f"--filename={FILE}")
    assert cluster.objects("node-devices") == {}


def test_the_overlay_of_the_page(cluster, tmp_path):
    page = (ROOT / "docs/helm.md").read_text()
    (overlay,) = [each for each in page.split("```yaml\n")[1:] if "kustomization.yaml" in each.splitlines()[0]]
    text = overlay.partition("```")[0]
    (released,) = yaml.safe_load(text)["resources"]
    (tmp_path / released).write_bytes(FILE.read_bytes())
    (tmp_path / "kustomization.yaml").write_text(text)
    found = {each["kind"]: each for each in yaml.safe_load_all(cluster.kubectl("kustomize", str(tmp_path)))}
    plain = {each["kind"]: each for each in yaml.safe_load_all(FILE.read_text())}
    assert found.keys() == plain.keys()
    (container,) = found["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/node-device-plugin:0.1.0"
    configuration = yaml.safe_load(found["ConfigMap"]["data"]["_default"])
    assert [each["name"] for each in configuration["resources"]] == ["devices.example.com/serial"]
