"""The objects that a cluster needs for the plugin as a DaemonSet."""

from __future__ import annotations

import hashlib
import pathlib
import re

import pytest
import yaml

from node_device_plugin.cli.main import main
from node_device_plugin.cluster import manifests
from node_device_plugin.cluster.manifests import monitoring
from node_device_plugin.declaration import DeclarationError, parse_configuration
from node_device_plugin.declaration.configuration_file import load

IMAGINARY = {
    "name": "myplugin.io/mydevice-1",
    "devices": [{"id": "dev1-1", "properties": {"value": "/node1/dev1/1"}}],
    "env": {"MYDEVICE_{index}": "{value}"},
}
SERIAL = {"name": "devices.example.com/serial", "discover": {"paths": ["/dev/serial/by-id/*"]}}
#: In this order, neither a creation nor a deletion leaves a right without its policy.
GRANT = ["ClusterRole", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ClusterRoleBinding"]


def configuration(*resources, **settings):
    return parse_configuration({"resources": list(resources), **settings})


def deployment(**given):
    return manifests.parse_deployment({"image": "example.com/plugin:1", **given})


def rendered(*resources, given=None, **settings):
    """Kind to object, for one node."""
    found = manifests.render(deployment(**(given or {})), {"worker": configuration(*resources, **settings)})
    return {manifest.content["kind"]: manifest.content for manifest in found}


def pod(*resources, **settings):
    return rendered(*resources, **settings)["DaemonSet"]["spec"]["template"]["spec"]


def host_paths(*resources, **settings):
    """Host path to whether it may be written; each is mounted where it is on the host."""
    spec = pod(*resources, **settings)
    mounts = {mount["name"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    paths = {}
    for volume in spec["volumes"]:
        if "hostPath" in volume:
            path, mount = volume["hostPath"]["path"], mounts[volume["name"]]
            assert mount["mountPath"] == path
            paths[path] = not mount.get("readOnly", False)
    return paths


def problems(call):
    with pytest.raises(DeclarationError) as caught:
        call()
    return [str(problem) for problem in caught.value.problems]


def test_a_pod_has_none_of_roots_powers():
    spec = pod(IMAGINARY)
    (container,) = spec["containers"]
    assert spec["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)


def test_an_selinux_type_is_the_containers_alone():
    given = {"selinux_type": "container_device_plugin_t"}
    spec = rendered(IMAGINARY, given=given)["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"].pop("seLinuxOptions") == {"type": "container_device_plugin_t"}
    # Nothing else differs.
    assert spec == pod(IMAGINARY)


def test_a_pod_that_tells_its_node_has_a_token_and_nothing_else_more():
    given = {"startup_taint": "a.example/not-ready:NoExecute", "node_condition": True}
    spec = rendered(IMAGINARY, given=given)["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["args"][-3:] == ["--startup-taint", "a.example/not-ready:NoExecute", "--node-condition"]
    assert spec["serviceAccountName"] == "node-device-plugin"
    # An apply removes the name of a former account only by another name.
    spec["serviceAccountName"] = "default"
    (volume,) = [each for each in spec["volumes"] if "projected" in each]
    assert [sorted(each) for each in volume["projected"]["sources"]] == [["serviceAccountToken"], ["configMap"]]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == volume["name"]]
    assert (mount["mountPath"], mount["readOnly"]) == ("/var/run/secrets/kubernetes.io/serviceaccount", True)
    spec["volumes"].remove(volume)
    container["volumeMounts"].remove(mount)
    del container["args"][-3:]
    assert spec == pod(IMAGINARY)


def test_rights_on_node_objects_come_only_with_the_settings_that_need_them():
    kinds = ["Namespace", "ConfigMap", "DaemonSet"]
    assert list(rendered(IMAGINARY)) == kinds
    for given, parts in (
        ({"startup_taint": "a/b:NoSchedule"}, ["nodes"]),
        ({"node_condition": True}, ["nodes/status"]),
        ({"startup_taint": "a/b:NoSchedule", "node_condition": True}, ["nodes", "nodes/status"]),
    ):
        found = rendered(IMAGINARY, given=given)
        # The policy before the pods have the rights, and the rights before the pods.
        assert list(found) == [kinds[0], "ServiceAccount", *GRANT, *kinds[1:]]
        assert found["ClusterRole"]["rules"] == [{"apiGroups": [""], "resources": parts, "verbs": ["patch"]}]


@pytest.mark.parametrize(
    ("tolerations", "more"),
    [
        (None, []),
        ([], [{"key": "a/b", "operator": "Exists", "effect": "NoSchedule"}]),
        ([{"key": "x"}], [{"key": "a/b", "operator": "Exists", "effect": "NoSchedule"}]),
    ],
)
def test_a_pod_tolerates_the_startup_taint(tolerations, more):
    given = {} if tolerations is None else {"tolerations": [{**each, "operator": "Exists"} for each in tolerations]}
    without, with_taint = (
        rendered(IMAGINARY, given={**given, **taint})["DaemonSet"]["spec"]["template"]["spec"]["tolerations"]
        for taint in ({}, {"startup_taint": "a/b:NoSchedule"})
    )
    assert with_taint == without + more


@pytest.mark.parametrize("taint", ["a/b", "a/b:Never", "a b:NoSchedule", "'x:NoSchedule", "a/b=c:NoSchedule"])
def test_what_is_no_startup_taint(taint):
    (problem,) = problems(lambda: deployment(startup_taint=taint))
    assert problem.startswith("startup_taint: ")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("", "must be the name of an SELinux type, such as container_device_plugin_t, not ''"),
        (
            "system_u:system_r:spc_t:s0",
            "must be the name of an SELinux type, such as container_device_plugin_t, not 'system_u:system_r:spc_t:s0'",
        ),
        ("spc_t\n", "must be the name of an SELinux type, such as container_device_plugin_t, not 'spc_t\\n'"),
        ({"type": "spc_t"}, "must be text, not a mapping"),
    ],
)
def test_what_is_no_selinux_type(given, problem):
    assert problems(lambda: deployment(selinux_type=given)) == ["selinux_type: %s" % problem]


def test_the_cpu_is_asked_for_and_not_limited():
    # Admission of the node's pods waits while the plugin waits for its turn.
    (container,) = pod(IMAGINARY)["containers"]
    assert container["resources"]["requests"]["cpu"] == "100m"
    assert "cpu" not in container["resources"]["limits"]


def test_a_pod_sees_of_the_host_what_it_needs_and_writes_where_it_must():
    always = {
        "/var/lib/kubelet/device-plugins": False,
        "/var/lib/kubelet/device-plugins/node-device-plugin": True,
        "/var/lib/kubelet/pod-resources": False,
        "/etc/cdi": False,
        "/var/run/cdi": True,
    }
    assert host_paths(IMAGINARY) == always
    assert host_paths(SERIAL) == {**always, "/dev": False}
    usb = {"name": "a.example/usb", "discover": {"usb": [{"vendor": "0403"}]}}
    assert host_paths(usb) == {**always, "/dev": False}
    udev = {"name": "a.example/udev", "discover": {"udev": [{"subsystem": "tty"}]}}
    assert host_paths(udev) == {**always, "/dev": False, "/run/udev/data": False}
    declared = {"name": "a.example/files", "devices": [{"id": "one", "nodes": [{"path": "/srv/nodes/a/one"}]}]}
    found = {"name": "a.example/found", "discover": {"paths": ["/srv/nodes/*/x", "/var/lib/vendor/x[0-9]"]}}
    assert host_paths(declared, found) == {**always, "/srv/nodes": False, "/var/lib/vendor": False}


def test_directories_of_other_distributions():
    paths = host_paths(
        IMAGINARY,
        kubelet_device_plugin_dir="/var/lib/k0s/kubelet/device-plugins",
        kubelet_root_dir="/var/lib/k0s/kubelet",
        registration="plugins_registry",
        cdi_spec_dirs=["/srv/cdi", "/opt/site/cdi"],
        dynamic_cdi_dir="/opt/site/cdi",
    )
    assert paths == {
        "/var/lib/k0s/kubelet/device-plugins": False,
        "/var/lib/k0s/kubelet/device-plugins/node-device-plugin": True,
        "/var/lib/k0s/kubelet/plugins_registry": True,
        "/var/lib/k0s/kubelet/pod-resources": False,
        "/srv/cdi": False,
        "/opt/site/cdi": True,
    }


@pytest.mark.parametrize("settings", [{"cdi_spec_dirs": ["/etc/cdi", "/etc/cdi", "/var/run/cdi"]}, {}])
@pytest.mark.parametrize("path", ["/etc/cdi/*", "/var/run/cdi/*", "/var/lib/kubelet/device-plugins/*", "/srv/odd/*"])
def test_a_directory_that_is_asked_for_twice_is_mounted_once(settings, path):
    spec = pod({"name": "example.com/odd", "discover": {"paths": [path]}}, **settings)
    (container,) = spec["containers"]
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert len(mounted) == len(set(mounted))
    assert host_paths(**settings)["/var/run/cdi"] is True


def test_nothing_of_the_host_hides_the_configurations():
    resource = {"name": "example.com/odd", "discover": {"paths": ["/etc/node-device-plugin/devices/*"]}}
    assert problems(lambda: rendered(resource, cdi_spec_dirs=["/etc/node-device-plugin", "/var/run/cdi"])) == [
        "worker: cdi_spec_dirs: /etc/node-device-plugin is the directory of a pod's configuration: choose another "
        "directory",
        "worker: resources[0] (example.com/odd): has devices in /etc/node-device-plugin/devices, which the image "
        "hides from the pod: move the devices",
    ]


def test_a_node_reads_its_own_file_and_follows_its_changes(tmp_path):
    objects = rendered(SERIAL, given={"name": "other"})
    text = objects["ConfigMap"]["data"]["worker"]
    file = tmp_path / "worker"
    file.write_text(text)
    loaded = load(str(file))
    assert loaded.configuration == configuration(SERIAL, http_address=":9819")
    assert loaded.sha256 == manifests.sha256_of(text) == hashlib.sha256(text.encode()).hexdigest()
    spec = objects["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    directory = "/etc/node-device-plugin"
    default = ["--default-config", f"{directory}/{manifests.DEFAULT}"]
    assert container["args"] == ["run", "--config", f"{directory}/$(NODE_NAME)", *default]
    assert container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    (mount,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == "/etc/node-device-plugin"]
    assert "subPath" not in mount
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == mount["name"]]
    assert volume["configMap"] == {"name": "other"}


def test_another_configuration_changes_no_pod():
    one, other = (
        rendered({**SERIAL, "env": {"SERIAL_{index}": text}})["DaemonSet"] for text in ("{path}", "{host_path}")
    )
    assert one == other


@pytest.mark.parametrize(
    ("overlap", "kubelets_overlap", "expected"),
    [("auto", False, False), ("auto", True, True), ("never", True, False), ("always", False, True)],
)
def test_two_instances_overlap_where_every_kubelet_takes_both(overlap, kubelets_overlap, expected):
    ground = manifests.common_ground({"worker": configuration(IMAGINARY)})
    given = deployment(overlap=overlap, max_unavailable="3")
    spec = manifests.daemon_set(given, ground, kubelets_overlap).content["spec"]
    container = spec["template"]["spec"]["containers"][0]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    sockets = {container[kind]["exec"]["command"][-3] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    volumes = {each["name"]: each for each in spec["template"]["spec"]["volumes"]}
    assert manifests.pods_overlap(spec["template"]["spec"]) is expected
    assert environment["NODE_DEVICE_PLUGIN_INSTANCE"] == f"DaemonSet {given.namespace}/{given.name}"
    update = {"maxSurge": 1, "maxUnavailable": 0} if expected else {"maxSurge": 0, "maxUnavailable": 3}
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": update}
    if expected:
        # Another instance may have the node's own socket.
        assert sockets == {environment["NODE_DEVICE_PLUGIN_INSTANCE_SOCKET"]} == {"/node-device-plugin/status.sock"}
        assert environment["NODE_DEVICE_PLUGIN_OVERLAP"] == "true"
        assert "emptyDir" in volumes["instance"]
        assert {"name": "instance", "mountPath": "/node-device-plugin"} in container["volumeMounts"]
    else:
        assert sockets == {"/var/lib/kubelet/device-plugins/node-device-plugin/status.sock"}
        assert set(environment) == {"NODE_NAME", "NODE_DEVICE_PLUGIN_INSTANCE"}
        assert "instance" not in volumes


def test_without_a_cluster_nobody_knows_the_kubelets():
    update = rendered(IMAGINARY)["DaemonSet"]["spec"]["updateStrategy"]["rollingUpdate"]
    assert update == {"maxSurge": 0, "maxUnavailable": "10%"}


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ([], False),
        (["v1.37.0"], True),
        (["v1.37.2", "v1.38.0+k3s1", "v1.37.1-gke.100", "v1.37.0-eks-1a2b3c", "v2.0.0"], True),
        (["v1.37.2", "v1.36.9"], False),
        (["v1.37.2", ""], False),
        (["v1.37.0-rc.1"], False),
        (["v1.37.0-alpha.3"], False),
        (["nonsense"], False),
    ],
)
def test_kubelets_that_take_two_sockets_of_a_resource(versions, expected):
    assert manifests.overlaps(versions) is expected


def test_probes_ask_the_plugins_own_socket():
    (container,) = pod(IMAGINARY, http_address="127.0.0.1:8080", kubelet_device_plugin_dir="/k/dp")["containers"]
    asked = {kind: container[kind]["exec"]["command"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {tuple(command[:-3]) for command in asked.values()} == {
        ("/opt/node-device-plugin/bin/python", "-I", "-m", "node_device_plugin.status_api.probe")
    }
    socket, instance = "/k/dp/node-device-plugin/status.sock", "/k/dp/node-device-plugin/instance"
    assert {kind: command[-3:] for kind, command in asked.items()} == {
        "startupProbe": [socket, "/healthz", instance],
        "livenessProbe": [socket, "/healthz", instance],
        "readinessProbe": [socket, "/readyz", instance],
    }


def test_a_pod_has_ten_minutes_to_wait_for_the_end_of_another_instance():
    """Until then Kubernetes does not restart it."""
    startup = pod(IMAGINARY)["containers"][0]["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 10 * 60


def test_scrapers_find_the_port():
    (container,) = pod(IMAGINARY, http_address="127.0.0.1:8080")["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]
    assert "127.0.0.1" not in rendered(IMAGINARY, http_address="127.0.0.1:8080")["ConfigMap"]["data"]["worker"]


def test_what_is_read_only_is_so_below_too():
    (container,) = pod(SERIAL)["containers"]
    of_hosts = [mount for mount in container["volumeMounts"] if mount["name"] != "configurations"]
    assert {mount.get("recursiveReadOnly") for mount in of_hosts if mount.get("readOnly")} == {"IfPossible"}
    assert not [mount for mount in of_hosts if "recursiveReadOnly" in mount and not mount.get("readOnly")]


def test_which_nodes():
    nodes = {name: configuration(IMAGINARY) for name in ("b", "a")}
    ours = manifests.render(deployment(name="ours"), nodes)[2].content["spec"]["template"]["spec"]
    assert ours["nodeSelector"] == {"nodedevices.kubernetes/device-plugin": "ours"}
    assert "affinity" not in ours
    one = manifests.render(deployment(), {"a": configuration(IMAGINARY)})[2]
    assert one == manifests.render(deployment(), nodes)[2]
    default = {manifests.DEFAULT: configuration(IMAGINARY)}
    of_pool = manifests.render(deployment(node_selector={"pool": "gpu"}), default)[2].content
    spec = of_pool["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"pool": "gpu"}
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    # A node that a play has labelled for another DaemonSet belongs to that DaemonSet.
    label = {"key": "nodedevices.kubernetes/device-plugin"}
    assert [term["matchExpressions"] for term in terms] == [
        [{**label, "operator": "DoesNotExist"}],
        [{**label, "operator": "In", "values": ["node-device-plugin"]}],
    ]


@pytest.mark.parametrize(
    ("selector", "says"),
    [
        ([1], "node_selector: must be a mapping, not a list"),
        ("pool=gpu", "node_selector: must be a mapping, not text"),
        ({"pool": None}, "node_selector.pool: must be text, not nothing"),
        ({"pool": 1}, "node_selector.pool: must be text, not a number (write it in quotes, so that YAML reads text)"),
        ({"pool": True}, "node_selector.pool: must be text, not true (write it in quotes, so that YAML reads text)"),
        ({"pool": ["a"]}, "node_selector.pool: must be text, not a list"),
        ({"-x": "a"}, "node_selector.-x: '-x' is not a label or taint key"),
        ({"a/b/c": "a"}, "node_selector.a/b/c: 'a/b/c' is not a label or taint key"),
        ({"pool": "a b"}, "node_selector.pool: 'a b' is not a label or taint value"),
        ({"pool": "x" * 64}, f"node_selector.pool: '{'x' * 64}' is not a label or taint value"),
        ({"pool": "a,b=c"}, "node_selector.pool: 'a,b=c' is not a label or taint value"),
    ],
)
def test_a_selector_that_kubernetes_would_refuse(selector, says):
    (said,) = problems(lambda: deployment(node_selector=selector))
    assert said.startswith(says), said


def test_a_label_without_a_value_selects_a_pool():
    given = deployment(node_selector={"node-role.kubernetes.io/gpu": ""})
    assert given.selector == {"node-role.kubernetes.io/gpu": ""}
    assert deployment(node_selector={}, name="ours").selector == {"nodedevices.kubernetes/device-plugin": "ours"}


@pytest.mark.parametrize("label", ["nodedevices.kubernetes/device-plugin", "app.kubernetes.io/managed-by"])
def test_a_label_of_ours_selects_no_pool(label):
    (said,) = problems(lambda: deployment(node_selector={label: "x"}))
    assert said.startswith(f"node_selector.{label}: is reserved")


def test_the_namespace_lets_hostpath_in():
    labels = rendered(IMAGINARY)["Namespace"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_nodes_that_one_daemonset_cannot_serve():
    nodes = {
        "a": configuration(IMAGINARY),
        "b": configuration(IMAGINARY, kubelet_root_dir="/srv/kubelet", http_address=":1234"),
        "c": configuration({**SERIAL, "health": {"open": True}}, http_address=""),
    }
    assert problems(lambda: manifests.render(deployment(), nodes)) == [
        "c: http_address: is empty, but a rollout reads the pods' metrics there: set an address",
        "b: kubelet_root_dir: is /srv/kubelet, but on a /var/lib/kubelet: all nodes of a DaemonSet must have "
        "the same value, so give nodes that differ another DaemonSet (name)",
        "b: http_address: must have the same port as on a",
        "c: resources[0] (devices.example.com/serial).health.open: an unprivileged pod cannot open devices of its "
        "host, so every device would be unhealthy: remove health.open, or run the plugin as a service",
    ]


CAMERA = {"name": "example.com/camera", "api": "dra", "devices": [{"id": "one", "nodes": ["/dev/video0"]}]}


def test_the_driver_of_claims_has_a_token_and_the_directory_of_drivers_and_nothing_else_more():
    plain, by_claims = ({**CAMERA, "api": api} for api in ("device_plugin", "dra"))
    assert host_paths(by_claims) == {**host_paths(plain), "/var/lib/kubelet/plugins_registry": True}
    assert host_paths(by_claims, kubelet_root_dir="/srv/kubelet").keys() >= {"/srv/kubelet/plugins_registry"}
    found = rendered(by_claims, IMAGINARY)
    spec = found["DaemonSet"]["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    assert [each["name"] for each in spec["volumes"] if "projected" in each] == ["service-account"]
    assert found["ServiceAccount"]["automountServiceAccountToken"] is False
    assert pod(plain, IMAGINARY)["serviceAccountName"] == "default"


def test_the_driver_has_the_rights_that_it_uses():
    found = manifests.rights(deployment(), ["b.example.com", "a.example.com"])
    assert [each.content["kind"] for each in found] == ["ServiceAccount", *GRANT]
    assert found[1].content["rules"] == [
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceslices"],
            "verbs": ["list", "watch", "create", "update", "delete"],
        },
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    ]
    policy = found[2].content["spec"]
    assert policy["matchConstraints"]["resourceRules"][0]["operations"] == ["CREATE", "UPDATE", "DELETE"]
    assert "each.spec.driver in ['a.example.com', 'b.example.com']" in policy["validations"][2]["expression"]


def test_each_resource_with_claims_has_its_device_class():
    other = {**CAMERA, "name": "example.com/other", "devices": [{"id": "other", "nodes": ["/dev/video1"]}]}
    nodes = {"a": configuration(CAMERA, IMAGINARY), "b": configuration(CAMERA, other)}
    found = [each.content for each in manifests.render(deployment(name="gpu"), nodes)]
    classes = {each["metadata"]["name"]: each for each in found if each["kind"] == "DeviceClass"}
    assert {name: each["spec"]["extendedResourceName"] for name, each in classes.items()} == {
        "camera.example.com": "example.com/camera",
        "other.example.com": "example.com/other",
    }
    # A play keeps the class as long as the DaemonSet.
    annotations = classes["camera.example.com"]["metadata"]["annotations"]
    assert annotations == {"nodedevices.kubernetes/nodes": '["node-devices/gpu"]'}


def test_a_resource_with_two_drivers_is_refused():
    nodes = {"a": configuration(CAMERA), "b": configuration(CAMERA, dra={"driver": "d.example.com"})}
    with pytest.raises(DeclarationError, match=r"dra\.driver: is d\.example\.com for some nodes and node"):
        manifests.render(deployment(), nodes)


def test_both_kinds_of_rights_have_a_role_and_a_policy_each():
    both = manifests.rights(deployment(startup_taint="a/b:NoSchedule"), ["a.example.com"])
    names = [(each.content["kind"], each.content["metadata"]["name"]) for each in both]
    of_node, of_slices = manifests.grant_names(deployment())
    assert names == [
        ("ServiceAccount", "node-device-plugin"),
        *((kind, of_node) for kind in GRANT),
        *((kind, of_slices) for kind in GRANT),
    ]
    assert (of_node, of_slices) == (
        "node-device-plugin.node-devices",
        "node-device-plugin.node-devices.resourceslices",
    )


def test_argo_cd_too_creates_the_policies_before_the_rights():
    """Argo CD orders the objects of a wave by kind, the policies last: gitops-engine/pkg/sync/sync_tasks.go."""

    def wave(content):
        return int(content["metadata"].get("annotations", {}).get("argocd.argoproj.io/sync-wave", "0"))

    both = [each.content for each in manifests.rights(deployment(startup_taint="a/b:NoSchedule"), ["a.example.com"])]
    waves = {kind: {wave(content) for content in both if content["kind"] == kind} for kind in GRANT}
    assert waves == dict(zip(GRANT, ({0}, {-1}, {-1}, {0})))


def test_pods_of_all_nodes_have_one_configuration_of_the_driver():
    """A pod learns its node from the kubelet, and has a token instead of the node's kubeconfig."""
    texts = {
        manifests.configuration_text(configuration(CAMERA, dra={"node": each, "kubeconfig": f"/etc/{each}"}))
        for each in ("a", "b")
    }
    (text,) = texts
    assert manifests.read_configuration_text(text).dra == configuration(CAMERA).dra
    assert '"driver": "d.example.com"' in manifests.configuration_text(configuration(dra={"driver": "d.example.com"}))


@pytest.mark.parametrize(
    ("resources", "overlap", "kubelets_overlap", "expected"),
    [
        ([CAMERA], "auto", False, "claims"),
        ([CAMERA], "auto", True, "true"),
        ([CAMERA], "always", False, "true"),
        ([CAMERA], "never", True, None),
        ([CAMERA, IMAGINARY], "auto", False, None),
        ([CAMERA, IMAGINARY], "auto", True, "true"),
        ([], "auto", False, None),
    ],
)
def test_pods_that_serve_claims_alone_overlap_on_each_kubelet(resources, overlap, kubelets_overlap, expected):
    nodes = {"worker": configuration(*resources), "other": configuration(*resources[:1])}
    ground = manifests.common_ground(nodes)
    spec = manifests.daemon_set(deployment(overlap=overlap), ground, kubelets_overlap).content["spec"]
    environment = {each["name"]: each.get("value") for each in spec["template"]["spec"]["containers"][0]["env"]}
    assert environment.get("NODE_DEVICE_PLUGIN_OVERLAP") == expected
    assert spec["updateStrategy"]["rollingUpdate"]["maxSurge"] == (1 if expected else 0)


@pytest.mark.parametrize("path", ["/dongle", "/usr/lib/dongle", "/proc"])
def test_devices_where_the_image_has_its_own_files(path):
    resource = {"name": "a.example/files", "devices": [{"id": "one", "nodes": [{"path": path}]}]}
    (problem,) = problems(lambda: rendered(resource))
    assert problem.endswith("which the image hides from the pod: move the devices")


def test_more_than_a_config_map_takes():
    devices = [{"id": "d%d" % number, "properties": {"p": "x" * 500}} for number in range(999)]
    many = {"name": "a.example/many", "devices": devices, "env": {"MANY_{index}": "{p}"}}
    nodes = {"worker%d" % number: configuration(many) for number in range(2)}
    (problem,) = problems(lambda: manifests.render(deployment(), nodes))
    assert re.match(r"nodes: have configurations of 1\d{6} bytes, but a ConfigMap holds at most 1048576", problem)


def test_what_is_wrong_with_a_deployment():
    raw = {
        "image": "",
        "namespace": "Node",
        "max_unavailable": 0,
        "tolerations": [{"operator": "Exists", "value": "x"}, {"value": "x"}],
        "registry": "x",
    }
    wrong = problems(lambda: manifests.parse_deployment(raw))
    assert [problem.split(":")[0] for problem in wrong] == [
        "registry",
        "image",
        "namespace",
        "max_unavailable",
        "tolerations[0].value",
        "tolerations[1].key",
    ]


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ({"limits": {"memory": "lots"}}, "limits.memory: must be a quantity such as 96Mi or 100m, not 'lots'"),
        ({"requests": {"cpu": "-1"}}, "requests.cpu: must be a quantity such as 96Mi or 100m, not '-1'"),
        ({"requests": {"cpu": "0.1 "}}, "requests.cpu: must be a quantity such as 96Mi or 100m, not '0.1 '"),
        (
            {"requests": {"cpu": 1}},
            "requests.cpu: must be text, not a number (write it in quotes, so that YAML reads text)",
        ),
        # The other one is the default.
        (
            {"limits": {"memory": "32Mi"}},
            "requests.memory: 64Mi is more than limits.memory (32Mi), which Kubernetes refuses: change one of them",
        ),
        (
            {"requests": {"memory": "0.1Gi"}},
            "requests.memory: 0.1Gi is more than limits.memory (96Mi), which Kubernetes refuses: change one of them",
        ),
    ],
)
def test_resources_that_the_api_server_would_refuse_after_the_rest_is_written(resources, problem):
    assert problems(lambda: deployment(resources=resources)) == ["resources.%s" % problem]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"resources": {"requests": {"cpus": "1"}}},
            "resources.requests.cpus: is not a resource of a container; known",
        ),
        ({"resources": {"limits": {"memory": "1e9999999"}}}, "resources.limits.memory: must be a quantity such as"),
        (
            {"tolerations": [{"key": "", "value": "x"}]},
            "tolerations[0].key: is missing: only operator Exists works without a key",
        ),
        ({"tolerations": [{"key": "a b"}]}, "tolerations[0].key: 'a b' is not a label or taint key: "),
        ({"tolerations": [{"key": "A.example/b"}]}, "tolerations[0].key: 'A.example/b' is not a label or taint key"),
        ({"tolerations": [{"key": "a", "value": "x y"}]}, "tolerations[0].value: 'x y' is not a label or taint val"),
        (
            {"priority_class": "High!"},
            "priority_class: must be lower-case letters, digits, and '-' or '.' (not at an end), not",
        ),
        ({"image_pull_secrets": ["a", ""]}, "image_pull_secrets[1]: must be lower-case letters, digits, and '-' or"),
        (
            {"image_pull_secrets": [1]},
            "image_pull_secrets[0]: must be text, not a number (write it in quotes, so that YAML reads text)",
        ),
        ({"monitoring_labels": {"a b": "c"}}, "monitoring_labels.a b: 'a b' is not a label or taint key: "),
        ({"monitoring_labels": {"a": "x" * 64}}, "monitoring_labels.a: 'xxx"),
        (
            {"monitoring_labels": {"app.kubernetes.io/managed-by": "helm"}},
            "monitoring_labels.app.kubernetes.io/managed-by: is reserved, because it marks the objects of this project",
        ),
    ],
)
def test_what_the_api_server_would_refuse_after_the_rest_is_written(given, problem):
    (found,) = problems(lambda: deployment(**given))
    assert found.startswith(problem)


def test_names_that_it_takes():
    deployment(
        tolerations=[
            {"key": "", "operator": "Exists"},
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
            {"key": "dedicated", "value": ""},
            {"key": "a" * 63, "value": "B_1.x"},
        ],
        priority_class="",
        image_pull_secrets=["registry.example.com"],
        monitoring_labels={"release": "prometheus", "app.kubernetes.io/instance": "theirs"},
        resources={"limits": {"ephemeral-storage": "1Gi", "example.com/x": "1", "hugepages-2Mi": "2Mi"}},
    )


def test_resources_that_it_takes():
    given = {"requests": {"cpu": "0.1", "memory": "64M"}, "limits": {"memory": "64Mi", "cpu": "1"}}
    assert deployment(resources=given).resources == given
    assert deployment(resources={"limits": {}}).resources["limits"] == {}


def test_the_alerts_are_those_of_the_documentation():
    text = (pathlib.Path(__file__).parents[3] / "docs" / "observability.md").read_text()
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    (documented,) = [block for block in blocks if isinstance(block, list)]
    assert documented == [{"alert": name, **rule} for name, rule in monitoring.ALERTS.items()]
    objects = rendered(IMAGINARY, given={"alert_rules": True, "pod_monitor": True, "monitoring_labels": {"of": "us"}})
    assert objects["PrometheusRule"]["spec"]["groups"][0]["rules"] == documented
    assert objects["PodMonitor"]["metadata"]["labels"]["of"] == "us"
    pods = objects["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert objects["PodMonitor"]["spec"]["selector"]["matchLabels"] == pods


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "worker.yaml").write_text(yaml.safe_dump({"resources": [IMAGINARY]}))
    (tmp_path / "deployment.yaml").write_text("image: example.com/plugin:1\n")
    return tmp_path


def test_the_command(folder, capsys):
    assert main(["manifests", str(folder / "nodes"), "--deployment", str(folder / "deployment.yaml")]) == 0
    text = capsys.readouterr().out
    wanted = manifests.render(deployment(), {"worker": configuration(IMAGINARY)})
    assert list(yaml.safe_load_all(text)) == [manifest.content for manifest in wanted]
    for manifest in wanted:
        assert "# " + manifest.why.split("\n")[0] in text
    arguments = ["manifests", str(folder / "nodes"), "--deployment", str(folder / "deployment.yaml"), "-o", "json"]
    assert main(arguments) == 0
    assert yaml.safe_load(capsys.readouterr().out)["items"] == [manifest.content for manifest in wanted]


def test_the_command_says_which_file_is_wrong(folder, capsys):
    (folder / "nodes" / "other.yaml").write_text("resources: [{name: 1}]\n")
    (folder / "deployment.yaml").write_text("images: x\n")
    assert main(["manifests", str(folder / "nodes"), "--deployment", str(folder / "deployment.yaml")]) == 1
    said = capsys.readouterr().err
    assert "nodes/other.yaml: resources[0].name: must be text, not a number" in said
    assert "deployment.yaml: image: is missing" in said
    assert main(["manifests", str(folder / "none"), "--deployment", str(folder / "none.yaml")]) == 1
    said = capsys.readouterr().err
    assert said.count("No such file or directory") == 1


@pytest.mark.parametrize("name", ["", ".hidden", "Worker", "worker 2", "worker-2~"])
def test_a_file_that_is_named_after_no_node(folder, capsys, name):
    (folder / "nodes" / ("%s.yaml" % name)).write_text("resources: []\n")
    assert main(["manifests", "--deployment", str(folder / "deployment.yaml"), str(folder / "nodes")]) == 1
    expected = "%s/nodes/%s.yaml: %r is not a node name: use a lower-case DNS name of at most 253 characters\n"
    assert capsys.readouterr().err == "node-device-plugin: " + expected % (folder, name, name)


@pytest.mark.parametrize("image", ["", " ", " a", "a b", "a\n"])
def test_an_image_is_one_word(image):
    (problem,) = problems(lambda: manifests.parse_deployment({"image": image}))
    assert problem == "image: must be an image name without spaces, not %r" % image


def test_an_image_is_text_and_is_there():
    assert problems(lambda: manifests.parse_deployment({})) == ["image: is missing"]
    assert problems(lambda: manifests.parse_deployment({"image": ["a"]})) == ["image: must be text, not a list"]


def test_a_file_that_would_be_passed_over_is_said(folder, capsys):
    (folder / "nodes" / "worker-2.yml").write_text("resources: []\n")
    assert main(["manifests", "--deployment", str(folder / "deployment.yaml"), str(folder / "nodes")]) == 1
    said = capsys.readouterr().err
    assert said == "node-device-plugin: %s/nodes/worker-2.yml: is ignored: rename it to NODE.yaml\n" % folder


@pytest.mark.parametrize("name", ["1e3", "7e12", "089", "0o17", "1e-3", "y", "n"])
def test_names_that_kubectl_would_read_as_numbers_or_as_yes(folder, capsys, name):
    """Seen with an API server, whose YAML is kubectl's: a key of the ConfigMap was 1000 for the node 1e3."""
    (folder / "nodes" / "worker.yaml").rename(folder / "nodes" / f"{name}.yaml")
    (folder / "deployment.yaml").write_text(
        yaml.safe_dump({"image": "example.com/plugin:1", "name": name, "tolerations": [{"key": name, "value": name}]})
    )
    assert main(["manifests", "--deployment", str(folder / "deployment.yaml"), str(folder / "nodes")]) == 0
    text = capsys.readouterr().out
    scalars = [event for event in yaml.parse(text) if isinstance(event, yaml.ScalarEvent) and event.value == name]
    assert len(scalars) >= 8
    assert {scalar.style for scalar in scalars} == {"'"}
    config_map = next(each for each in yaml.safe_load_all(text) if each["kind"] == "ConfigMap")
    assert list(config_map["data"]) == [name]


def test_a_node_whose_etc_nobody_can_write_runs_its_pod_too():
    assert "/etc/cdi" in host_paths(SERIAL)
    found = host_paths(SERIAL, cdi_spec_dirs=["/var/run/cdi"], cdi_owner="plugin")
    assert not [path for path in found if path.startswith("/etc/")]
    assert found["/var/run/cdi"]


def test_a_node_without_the_directory_of_another_nodes_devices_runs_its_pod_too():
    nodes = [{"path": "/dev/odd", "host_path": "/srv/a/b"}]
    odd = {"name": "example.com/odd", "devices": [{"id": "odd0", "nodes": nodes}]}
    found = manifests.render(deployment(), {"one": configuration(odd), "two": configuration(SERIAL)})
    (daemon_set,) = (each.content for each in found if each.content["kind"] == "DaemonSet")
    volumes = daemon_set["spec"]["template"]["spec"]["volumes"]
    kinds = {each["hostPath"]["path"]: each["hostPath"]["type"] for each in volumes if "hostPath" in each}
    # A hostPath of type Directory keeps the pod from starting where it is not there.
    assert kinds["/srv/a"] == "DirectoryOrCreate"
    assert kinds["/dev"] == "Directory"
