"""Tests how manifests become pods, and which manifests the stand-in refuses as unsupported."""

import json
import os

import pytest

from kubelet_stand_in import StandInKubelet
from kubelet_stand_in.container_config import container_config, sandbox_config
from kubelet_stand_in.pods import ManifestError, parse_pod
from kubelet_stand_in.static_pods import StaticPods
from node_device_plugin.wire import cri_v1_pb2 as cri


def manifest(name="pod", spec=None, **container):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "test"}},
        "spec": {"containers": [{"name": "main", "image": "busybox", **container}], **(spec or {})},
    }


def parsed(**arguments):
    return parse_pod(manifest(**arguments), "/manifests/pod.yaml", "Node1")


def test_name_uid_and_namespace():
    pod = parsed()
    assert (pod.name, pod.namespace, pod.restart_policy, pod.grace_period) == ("pod-node1", "default", "Always", 30)
    assert len(pod.uid) == 32
    assert pod.uid == parsed().uid
    assert pod.uid != parsed(command=["true"]).uid
    assert pod.uid != parse_pod(manifest(), "/manifests/other.yaml", "Node1").uid


def test_a_host_network_pod_with_volumes_env_and_privileges():
    pod = parsed(
        spec={
            "hostNetwork": True,
            "hostPID": True,
            "volumes": [{"name": "host", "hostPath": {"path": "/srv"}}],
        },
        command=["/bin/echo", "$(GREETING)"],
        args=["$$(GREETING)", "$(UNKNOWN)"],
        env=[{"name": "WHO", "value": "you"}, {"name": "GREETING", "value": "hello $(WHO)"}],
        volumeMounts=[{"name": "host", "mountPath": "/data", "readOnly": True}],
        securityContext={"privileged": True, "runAsUser": 65534},
        workingDir="/tmp",
    )
    sandbox = sandbox_config(pod, "/var/log/pods", 0)
    config = container_config(pod, pod.containers[0], {}, 2)
    assert sandbox.linux.security_context.namespace_options.network == cri.NODE
    assert sandbox.linux.security_context.namespace_options.pid == cri.NODE
    assert sandbox.linux.security_context.privileged
    assert sandbox.hostname == ""
    assert sandbox.log_directory == "/var/log/pods/default_pod-node1_" + pod.uid
    assert sandbox.labels["app"] == "test"
    assert config.log_path == "main/2.log"
    assert list(config.command) == ["/bin/echo", "hello you"]
    assert list(config.args) == ["$(GREETING)", "$(UNKNOWN)"]
    assert list(config.mounts) == [cri.Mount(container_path="/data", host_path="/srv", readonly=True)]
    assert config.linux.security_context.privileged
    assert config.linux.security_context.run_as_user.value == 65534
    assert config.working_dir == "/tmp"


def test_a_pod_without_any_of_roots_powers():
    everything_off = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]},
        "readOnlyRootFilesystem": True,
        "runAsGroup": 7,
    }
    of_pod = {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = parsed(spec={"securityContext": of_pod}, securityContext=everything_off)
    context = container_config(pod, pod.containers[0], {}, 0).linux.security_context
    assert list(context.capabilities.drop_capabilities) == ["ALL"]
    assert list(context.capabilities.add_capabilities) == ["CHOWN"]
    assert context.readonly_rootfs
    assert context.no_new_privs
    assert not context.privileged
    assert context.seccomp.profile_type == cri.SecurityProfile.RuntimeDefault
    # The container's fields override its pod's fields.
    assert (context.run_as_user.value, context.run_as_group.value) == (0, 7)
    assert context.HasField("run_as_user")


def test_a_pod_that_asks_for_nothing_special():
    pod = parsed()
    context = container_config(pod, pod.containers[0], {}, 0).linux.security_context
    assert not context.no_new_privs
    assert not context.readonly_rootfs
    assert context.seccomp.profile_type == cri.SecurityProfile.Unconfined
    assert not context.HasField("run_as_user")
    assert not context.HasField("run_as_group")


def test_variables_out_of_the_pods_own_fields():
    fields = ("metadata.name", "metadata.namespace", "spec.nodeName")
    env = [{"name": f"V{n}", "valueFrom": {"fieldRef": {"fieldPath": each}}} for n, each in enumerate(fields)]
    pod = parsed(env=env, args=["$(V2)"])
    config = container_config(pod, pod.containers[0], {}, 0)
    assert [each.value.decode() for each in config.envs] == ["pod-node1", "default", "Node1"]
    assert list(config.args) == ["Node1"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"spec": {"initContainers": []}}, "spec has initContainers, which the stand-in does not support"),
        ({"spec": {"securityContext": {"fsGroup": 1}}}, "securityContext has fsGroup"),
        ({"securityContext": {"procMount": "Unmasked"}}, "securityContext has procMount"),
        ({"securityContext": {"seccompProfile": {"type": "Localhost"}}}, "expected form: KeyError..Localhost"),
        ({"lifecycle": {}}, "container has lifecycle"),
        ({"imagePullPolicy": "Always"}, "never pulls"),
        ({"spec": {"volumes": [{"name": "a", "emptyDir": {}}]}}, "volume has emptyDir"),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]},
            "env: the stand-in does not support valueFrom with secretKeyRef",
        ),
        ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}, "with status.podIP"),
        ({"resources": {"requests": {"example.com/a": 1}}}, "requests of example.com/a must be equal to its limits"),
        ({"volumeMounts": [{"name": "none", "mountPath": "/a"}]}, "expected form"),
    ],
)
def test_what_the_stand_in_does_not_have_is_refused(arguments, problem):
    with pytest.raises(ManifestError, match=problem):
        parsed(**arguments)


@pytest.mark.parametrize("document", [None, [], "text", {}, {"kind": "Service", "apiVersion": "v1"}])
def test_what_is_no_pod_is_refused(document):
    with pytest.raises(ManifestError):
        parse_pod(document, "", "node")


def test_resources_other_than_extended_ones_are_passed_over():
    pod = parsed(resources={"limits": {"cpu": "100m", "example.com/a": "2"}, "requests": {"memory": "1Mi"}})
    assert pod.requests() == {"example.com/a": 2}


@pytest.fixture
def manifests(short_path):
    path = short_path / "manifests"
    path.mkdir()
    return path


def write(folder, name, content):
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / ".new").write_text(text)
    os.rename(str(folder / ".new"), str(folder / name))


def names(kubelet):
    return sorted(pod.name for pod in kubelet.pods.active())


async def test_the_folder_decides_what_runs(kubelet, manifests, caplog):
    source = StaticPods(str(manifests), kubelet)
    write(manifests, "a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n")
    write(manifests, "b.json", manifest("b"))
    write(manifests, "c.yaml", "{nonsense")
    (manifests / "folder").mkdir()
    await source.look()
    assert names(kubelet) == ["a-node", "b-node"]
    assert caplog.text.count("Could not process manifest file") == 1
    await source.look()
    assert caplog.text.count("Could not process manifest file") == 1
    [before] = [pod.uid for pod in kubelet.pods.active() if pod.name == "b-node"]
    write(manifests, "b.json", manifest("b", command=["true"]))
    (manifests / "a.yaml").unlink()
    await source.look()
    await kubelet.until(lambda: names(kubelet) == ["b-node"])
    [after] = [pod.uid for pod in kubelet.pods.active()]
    assert before != after


async def test_a_folder_that_is_not_there_is_an_empty_one(kubelet, short_path):
    await StaticPods(str(short_path / "nothing"), kubelet).look()
    assert names(kubelet) == []


async def test_what_runs_when_the_kubelet_starts_is_taken_over(folder, manifests):
    kubelet = StandInKubelet(folder)
    write(manifests, "a.json", manifest("a"))
    StaticPods(str(manifests), kubelet).read_first()
    await kubelet.start()
    [(_, status)] = kubelet.pods.pods()
    await kubelet.until(lambda: status.phase == "Running")
    container = status.containers["main"].id
    await kubelet.restart()
    [(_, status)] = kubelet.pods.pods()
    await kubelet.until(lambda: status.phase == "Running")
    assert status.containers["main"].id == container
    await kubelet.stop()


@pytest.mark.parametrize(
    ("policy", "code", "phase"), [("Never", 0, "Succeeded"), ("Never", 3, "Failed"), ("OnFailure", 0, "Succeeded")]
)
async def test_a_pod_ends_for_good(kubelet, manifests, policy, code, phase):
    write(manifests, "a.json", manifest("a", spec={"restartPolicy": policy}))
    await StaticPods(str(manifests), kubelet).look()
    [(_, status)] = kubelet.pods.pods()
    await kubelet.until(lambda: status.phase == "Running")
    kubelet.runtime.exit(status.containers["main"].id, code)
    await kubelet.until(lambda: status.phase == phase)
    assert names(kubelet) == []


@pytest.mark.parametrize(("policy", "code"), [("Always", 0), ("OnFailure", 1)])
async def test_a_container_restarts_at_once_the_first_time_and_later_the_second(kubelet, manifests, policy, code):
    write(manifests, "a.json", manifest("a", spec={"restartPolicy": policy}))
    await StaticPods(str(manifests), kubelet).look()
    [(_, status)] = kubelet.pods.pods()
    await kubelet.until(lambda: status.phase == "Running")
    kubelet.runtime.exit(status.containers["main"].id, code)
    await kubelet.until(lambda: status.containers["main"].restart_count == 1)
    kubelet.runtime.exit(status.containers["main"].id, code)
    await kubelet.until(lambda: status.containers["main"].exit_code is not None)
    with pytest.raises(AssertionError):
        await kubelet.until(lambda: status.containers["main"].restart_count == 2, timeout=0.2)


async def test_a_pod_waits_for_its_image_and_its_volume(kubelet, manifests, short_path):
    volume = {"name": "v", "hostPath": {"path": str(short_path / "late"), "type": "Directory"}}
    write(manifests, "a.json", manifest("a", spec={"volumes": [volume]}))
    images = {}

    async def image(name):
        return images.get(name)

    kubelet.runtime.image = image
    await StaticPods(str(manifests), kubelet).look()
    [(_, status)] = kubelet.pods.pods()
    await kubelet.until(lambda: "is not a Directory" in status.message)
    (short_path / "late").mkdir()
    await kubelet.until(lambda: "ErrImageNeverPull" in status.message)
    images["busybox"] = cri.Image()
    await kubelet.until(lambda: (status.phase, status.message) == ("Running", ""))


async def test_a_volume_is_made_where_it_says_so(kubelet, manifests, short_path):
    volume = {"name": "v", "hostPath": {"path": str(short_path / "made/here"), "type": "DirectoryOrCreate"}}
    write(manifests, "a.json", manifest("a", spec={"volumes": [volume]}))
    await StaticPods(str(manifests), kubelet).look()
    await kubelet.until((short_path / "made/here").is_dir)
