"""What the chart has beside `manifests`, and what Helm refuses."""

from __future__ import annotations

import json
import re
from itertools import chain

import pytest
import yaml
from chart_objects import CHART, ROOT, in_list

CONFIG = {"resources": [{"name": "devices.example.com/serial", "discover": {"paths": ["/dev/serial/by-id/*"]}}]}


@pytest.fixture
def objects(helm):
    """The chart's objects by kind and name: objects(values, options of helm)."""

    def of(values, *options):
        code, text = helm("template", "mine", str(CHART), "--namespace", "devices", *options, values=values)
        assert code == 0, text
        found = chain.from_iterable(map(in_list, yaml.safe_load_all(text)))
        return {(each["kind"], each["metadata"]["name"]): each for each in found}

    return of


def spec(objects, name="mine-node-device-plugin"):
    return objects["DaemonSet", name]["spec"]["template"]["spec"]


def terms(objects):
    affinity = spec(objects)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return affinity["nodeSelectorTerms"]


def test_lint(helm):
    code, text = helm("lint", "--strict", str(CHART))
    assert code == 0, text


def test_the_values_of_the_page(objects):
    page = (ROOT / "docs/helm.md").read_text()
    given = [yaml.safe_load(each) for each in re.findall(r"```yaml\n(# my-values\.yaml\n.*?)```", page, re.S)]
    found = [set(objects(values)) for values in given]
    sets = [{name for kind, name in each if kind == "DaemonSet"} for each in found]
    keys = "gpu", "cameras", "video"
    assert sets == [{"mine-node-device-plugin", f"mine-node-device-plugin-{key}"} for key in keys]
    accounts = [{name.rpartition("-")[2] for kind, name in each if kind == "ServiceAccount"} for each in found]
    # Only claims and the startup taint need rights.
    assert accounts == [set(), {"cameras"}, {"plugin", "video"}]


def test_names(objects):
    def names(values):
        return {name for _, name in objects(values)}

    assert names({}) == {"mine-node-device-plugin"}
    assert names({"nameOverride": "plugin"}) == {"mine-plugin"}
    assert names({"nameOverride": "mine"}) == {"mine"}
    assert names({"fullnameOverride": "devices"}) == {"devices"}
    assert names({"profiles": {"gpu": {"config": CONFIG}}}) == {
        "mine-node-device-plugin",
        "mine-node-device-plugin-gpu",
    }
    assert names({"profiles": {"default": None, "gpu": {"config": CONFIG}}}) == {"mine-node-device-plugin-gpu"}


def test_the_image(objects):
    def image(**given):
        return spec(objects({"image": given}))["containers"][0]["image"]

    assert image() == "localhost/node-devices/node-device-plugin:0.1.0"
    assert image(repository="r.example/a", tag="7") == "r.example/a:7"
    digest = f"sha256:{'0a' * 32}"
    assert image(repository="r.example/a", tag="7", digest=digest) == f"r.example/a@{digest}"


def test_an_affinity_narrows_the_nodes_and_keeps_those_of_other_daemonsets_out(objects):
    fargate = {"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["fargate"]}
    arm = {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]}
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]}
    label = "nodedevices.kubernetes/device-plugin"
    free = {"key": label, "operator": "DoesNotExist"}
    ours = {"key": label, "operator": "In", "values": ["mine-node-device-plugin"]}

    def with_terms(*given, **more):
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(given)}}
        return objects({"profiles": {"default": {"affinity": {"nodeAffinity": required}, **more}}})

    assert terms(objects({})) == [{"matchExpressions": [free]}, {"matchExpressions": [ours]}]
    assert terms(with_terms({"matchExpressions": [fargate]}, arm)) == [
        {"matchExpressions": [fargate, free]},
        {"matchExpressions": [fargate, ours]},
        {"matchExpressions": [*arm["matchExpressions"], free]},
        {"matchExpressions": [*arm["matchExpressions"], ours]},
    ]
    assert terms(with_terms(by_name)) == [
        {"matchExpressions": [free], **by_name},
        {"matchExpressions": [ours], **by_name},
    ]
    # Without a selector, the label of a profile's nodes selects them already.
    alone = with_terms(arm, nodeSelector=None)
    assert terms(alone) == [arm]
    assert spec(alone)["nodeSelector"] == {label: "mine-node-device-plugin"}


def test_a_label_chooses_the_profile_and_the_default_gets_the_rest(objects):
    label, of_roles = "karpenter.sh/nodepool", "nodedevices.kubernetes/device-plugin"
    profiles = {"gpu": {"config": CONFIG}, "arm": {"config": CONFIG, "nodeSelector": {"kubernetes.io/arch": "arm64"}}}
    found = objects({"profileLabel": label, "defaultProfile": "default", "profiles": profiles})

    def absent(key):
        return {"key": key, "operator": "DoesNotExist"}

    def is_in(key, value):
        return {"key": key, "operator": "In", "values": [value]}

    def placed(name):
        pod = spec(found, name)
        required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        return pod["nodeSelector"], [term["matchExpressions"] for term in required["nodeSelectorTerms"]]

    name = "mine-node-device-plugin"
    assert placed(f"{name}-gpu") == (
        {label: "gpu"},
        [[absent(of_roles)], [is_in(of_roles, f"{name}-gpu")]],
    )
    assert placed(f"{name}-arm")[0] == {label: "arm", "kubernetes.io/arch": "arm64"}
    assert placed(name) == (
        {"kubernetes.io/os": "linux"},
        [
            [one, other]
            for one in (absent(of_roles), is_in(of_roles, name))
            for other in (absent(label), is_in(label, "default"))
        ],
    )
    # Without a default, the profile `default` is one like the others.
    found = objects({"profileLabel": label, "profiles": profiles})
    assert placed(name)[0] == {"kubernetes.io/os": "linux", label: "default"}


def test_a_configmap_of_somebody_else(objects):
    given = {"settings": {"kubelet_root_dir": "/srv/kubelet"}, "profiles": {"default": {"existingConfigMap": "theirs"}}}
    found = objects(given)
    assert {kind for kind, _ in found} == {"DaemonSet"}
    volumes = {each["name"]: each for each in spec(found)["volumes"]}
    assert volumes["configurations"]["configMap"]["name"] == "theirs"
    assert volumes["pod-resources"]["hostPath"]["path"] == "/srv/kubelet/pod-resources"


def test_settings_hold_in_all_profiles_unless_a_profile_has_its_own(objects):
    profiles = {"default": {"config": {"recovery_delay": 0}}, "gpu": {"config": CONFIG}}
    found = objects({"settings": {"recovery_delay": 7, "http_address": ":9000"}, "profiles": profiles})
    name = "mine-node-device-plugin"
    read = {key: yaml.safe_load(found["ConfigMap", key]["data"]["_default"]) for key in (name, f"{name}-gpu")}
    assert {each["http_address"] for each in read.values()} == {":9000"}
    assert [each["recovery_delay"] for each in read.values()] == [0, 7]
    assert spec(found)["containers"][0]["ports"] == [{"name": "http", "containerPort": 9000}]


@pytest.mark.parametrize(("version", "surge"), [("1.37.2", 0), ("1.39.9-gke.1", 0), ("1.40.0", 1), ("1.40.1-gke.7", 1)])
def test_pods_overlap_where_no_kubelet_can_be_too_old(objects, version, surge):
    found = objects({}, "--kube-version", version)
    update = found["DaemonSet", "mine-node-device-plugin"]["spec"]["updateStrategy"]["rollingUpdate"]
    assert update["maxSurge"] == surge
    assert update["maxUnavailable"] == (0 if surge else "10%")


def test_labels_and_annotations_of_the_pods(objects):
    found = objects({"podLabels": {"team": "edge"}, "podAnnotations": {"sidecar.istio.io/inject": "false"}})
    daemon_set = found["DaemonSet", "mine-node-device-plugin"]
    selected = daemon_set["spec"]["selector"]["matchLabels"]
    assert daemon_set["spec"]["template"]["metadata"] == {
        "annotations": {"sidecar.istio.io/inject": "false"},
        "labels": {**selected, "team": "edge"},
    }


def test_probes_and_the_security_context(objects):
    given = {
        "probes": {"liveness": {"failureThreshold": 9}},
        "securityContext": {"seccompProfile": {"type": "Unconfined"}},
    }
    container = spec(objects({**given, "selinuxType": "container_device_plugin_t"}))["containers"][0]
    liveness = container["livenessProbe"]
    assert (liveness["periodSeconds"], liveness["failureThreshold"], liveness["timeoutSeconds"]) == (10, 9, 10)
    assert container["startupProbe"]["failureThreshold"] == 600
    assert container["securityContext"] == {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "Unconfined"},
        "seLinuxOptions": {"type": "container_device_plugin_t"},
    }


def test_the_security_context_cannot_be_removed(helm):
    code, text = helm("template", "mine", str(CHART), values={"securityContext": None})
    assert code != 0
    assert "securityContext: do not remove it, because the container would then have capabilities" in text


def test_a_quota_admits_the_priority(objects):
    quota = objects({"resourceQuota": {"enabled": True, "pods": 5}})["ResourceQuota", "mine-node-device-plugin"]["spec"]
    assert quota["hard"] == {"pods": "5"}
    (expression,) = quota["scopeSelector"]["matchExpressions"]
    assert expression["values"] == ["system-node-critical"]


def test_a_policy_lets_only_these_peers_in(objects):
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    found = objects({"networkPolicy": {"enabled": True, "from": peers}})
    policy = found["NetworkPolicy", "mine-node-device-plugin"]["spec"]
    daemon_set = found["DaemonSet", "mine-node-device-plugin"]["spec"]
    assert policy["podSelector"] == daemon_set["selector"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"ports": [{"port": "http"}], "from": peers}]
    assert "egress" not in policy
    # The plugin calls the API server.
    for value in ({"startupTaint": "a/b:NoSchedule"}, {"nodeCondition": True}, {"settings": {"api": "dra"}}):
        found = objects({"networkPolicy": {"enabled": True}, **value})
        assert found["NetworkPolicy", "mine-node-device-plugin"]["spec"]["policyTypes"] == ["Ingress"]


RESOURCE = CONFIG["resources"][0]


@pytest.mark.parametrize(
    ("values", "place", "problem"),
    [
        ({"imgae": {}}, "", "'imgae' not allowed"),
        ({"image": {"digest": "sha256:1"}}, "/image/digest", "does not match pattern"),
        ({"settings": {"resources": []}}, "/settings", "'resources' not allowed"),
        ({"profiles": {"gpu": {"nodeSelector": {}}}}, "/profiles/gpu", "missing property 'config'"),
        ({"podLabels": {"app.kubernetes.io/name": "x"}}, "/podLabels/app.kubernetes.io~1name", "false schema"),
        ({"profiles": {"GPU": {"config": CONFIG}}}, "/profiles", "'GPU' not allowed"),
        ({"securityContext": {"runAsUser": 1000}}, "/securityContext", "additional properties 'runAsUser' not allowed"),
        ({"probes": {"startup": {"periodSeconds": 0}}}, "/probes/startup/periodSeconds", "minimum: got 0, want 1"),
        ({"maxUnavailable": 0}, "/maxUnavailable", "minimum: got 0, want 1"),
        # The roles set this label to the name of a DaemonSet.
        ({"profileLabel": "nodedevices.kubernetes/device-plugin"}, "/profileLabel", "'not' failed"),
        ({"profileLabel": "a b"}, "/profileLabel", "does not match pattern"),
        ({"startupTaint": "a/b"}, "/startupTaint", "does not match pattern"),
        ({"startupTaint": "a' || true || 'b:NoSchedule"}, "/startupTaint", "does not match pattern"),
        ({"overlap": "yes"}, "/overlap", "must be one of 'auto', 'always', 'never'"),
        ({"config": {"http_address": ""}}, "/config/http_address", "does not match pattern"),
        ({"config": {"log_level": "loud"}}, "/config/log_level", "must be one of"),
        ({"resource": {"replicas": 0}}, "/config/resources/0/replicas", "minimum: got 0, want 1"),
        ({"resource": {"replica": 2}}, "/config/resources/0", "'replica' not allowed"),
        ({"resource": {"name": 'a/b" || "c'}}, "/config/resources/0/name", "does not match pattern"),
        ({"config": {"dra": {"driver": "a', 'b"}}}, "/config/dra/driver", "does not match pattern"),
        ({"profile": {"draResources": ["a/b"]}}, "", "'existingConfigMap' required"),
        ({"resource": {"name": None}}, "/config/resources/0", "missing property 'name'"),
        ({"resource": {"discover": {"path": []}}}, "/config/resources/0/discover", "'path' not allowed"),
        ({"profile": {"tolerations": [{"operator": "Has"}]}}, "/tolerations/0/operator", "must be one of"),
        ({"profile": {"affinity": {"podAffinity": {}}}}, "/affinity", "'podAffinity' not allowed"),
    ],
)
def test_helm_refuses_what_the_schema_knows_and_names_the_field(helm, values, place, problem):
    of_profile = {"profile": {}, "config": {}, "resource": {}}
    of_profile.update({key: values.pop(key) for key in list(values) if key in of_profile})
    if any(of_profile.values()):
        resource = {key: each for key, each in {**RESOURCE, **of_profile["resource"]}.items() if each is not None}
        config = {"resources": [resource], **of_profile["config"]}
        values = {"profiles": {"default": {"config": config, **of_profile["profile"]}}}
        place = f"/profiles/default{place}"
    code, text = helm("template", "mine", str(CHART), values=values)
    assert code
    assert f"at '{place}': " in text
    assert problem in text


@pytest.mark.parametrize(
    ("discover", "needed"),
    [({"paths": ["/dev/a", "/srv/nodes/*"]}, "/srv/nodes"), ({"udev": [{"subsystem": "tty"}]}, "/run/udev/data")],
)
def test_a_pattern_in_a_directory_that_no_pod_sees_is_refused(helm, objects, discover, needed):
    profile = {"config": {"resources": [{**RESOURCE, "discover": discover}]}}
    code, text = helm("template", "mine", str(CHART), values={"profiles": {"gpu": profile}})
    assert code
    assert f"profiles.gpu.deviceDirectories: add the directory of {needed}" in text
    assert f"which {RESOURCE['name']} needs" in text
    objects({"profiles": {"gpu": {**profile, "deviceDirectories": ["/dev", needed]}}})


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"defaultProfile": "default"}, "defaultProfile: set profileLabel too"),
        ({"defaultProfile": "gpu", "profileLabel": "a/b"}, "defaultProfile: gpu is not in profiles: default"),
    ],
)
def test_a_default_without_a_label_or_a_profile_is_refused(helm, values, problem):
    code, text = helm("template", "mine", str(CHART), values=values)
    assert code
    assert problem in text


CLAIMED = {"resources": [{**RESOURCE, "api": "dra"}]}


def test_a_resource_of_two_profiles_has_one_class(objects):
    found = objects({"settings": {"api": "dra"}, "profiles": {key: {"config": CONFIG} for key in ("default", "gpu")}})
    (name,) = [name for kind, name in found if kind == "DeviceClass"]
    users = found["DeviceClass", name]["metadata"]["annotations"]["nodedevices.kubernetes/nodes"]
    assert json.loads(users) == ["devices/mine-node-device-plugin", "devices/mine-node-device-plugin-gpu"]


def test_profiles_with_two_drivers_for_one_resource_are_refused(helm):
    profiles = {"gpu": {"config": CLAIMED}, "arm": {"config": {**CLAIMED, "dra": {"driver": "d.example.com"}}}}
    code, text = helm("template", "mine", str(CHART), values={"profiles": profiles})
    assert code
    assert "profiles.gpu: dra.driver is nodedevices.kubernetes, but another profile has d.example.com" in text


def test_claims_of_a_configmap_of_somebody_else(objects):
    """The chart cannot read which API serves its resources."""
    names = [f"devices.example.com/{each}" for each in ("camera", "b", "c", "d", "e")]
    # The config of the profile has as many resources, and counts for nothing.
    given = {
        "settings": {"dra": {"driver": "d.example.com"}},
        "profiles": {"default": {"existingConfigMap": "theirs", "draResources": names}},
    }
    found, name = objects(given), "mine-node-device-plugin"
    assert spec(found, name)["serviceAccountName"] == name
    assert "plugins-registry" in {each["name"] for each in spec(found, name)["volumes"]}
    # Others of its resources may be device plugins.
    assert found["DaemonSet", name]["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0
    of_config = objects({"profiles": {"default": {"config": CLAIMED}}})
    assert {kind for kind, _ in found} == {kind for kind, _ in of_config} - {"ConfigMap"}
    assert len([name for kind, name in found if kind == "DeviceClass"]) == len(names)
    (selector,) = found["DeviceClass", "camera.devices.example.com"]["spec"]["selectors"]
    assert 'device.driver == "d.example.com"' in selector["cel"]["expression"]
