"""An uninstall that refuses devices in use, or waits for their pods, as asked; and says who holds what."""

from __future__ import annotations

import types

import pytest
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import device_holders
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import plugin_cli, preflight

CAMERA, SPEC = "example.com/camera", "/etc/cdi/node-device-plugin_example.com_camera.json"
MINUTE = 60.0


def of(resource, device, pod="viewer", namespace="default"):
    return {"resource": resource, "device": device, "namespace": namespace, "pod": pod, "container": "main"}


def a_node(served=(), spec=True, ours=True):
    """What node_preflight gives; spec: whether there is one with the device cam0; ours: whether that is of ours."""
    return {
        "runtime": {"version": "1.7.24"},
        "device_plugins": {"instance": {"mode": "service", "resources": list(served)} if served else None},
        "cdi_files": [SPEC] if spec else [],
        "spec_devices": [f"{CAMERA}=cam0"] if spec and ours else [],
        "ledger": {
            # As the stand-in's of a throwaway node: not what an uninstall takes away.
            "/opt/other": {"kind": "tree", "owner": "node_tools /opt/other"},
            **({SPEC: {"kind": "file", "owner": "cdi_specs", "before": None}} if ours else {}),
        },
    }


@pytest.fixture
def run(monkeypatch):
    """Runs the action: run.action(policy, node, who holds what each time that it asks, the last of these for ever)."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    clock = types.SimpleNamespace(now=0.0, monotonic=lambda: clock.now, sleep=lambda pause: sleep(pause))
    shown, asked = [], []

    def sleep(pause):
        clock.now += pause

    monkeypatch.setattr(device_holders, "time", clock)
    monkeypatch.setattr(device_holders, "Display", lambda: types.SimpleNamespace(display=shown.append))

    def run_action(policy, node, *answers, check=False, **more):
        action = object.__new__(device_holders.ActionModule)
        monkeypatch.setattr(preflight.Preflight, "look", lambda self, asked: node)
        arguments = {"policy": policy, "command": "/bin/plugin", **more}
        action._task = types.SimpleNamespace(args=arguments, check_mode=check)
        left = list(answers)

        def ask(_action, command):
            assert command[-2:] == ["-o", "json"]
            asked.append(tuple(command[:-2]))
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, Exception):
                raise answer
            return {"source": "kubelet", "held": answer, "allocatable": {}}

        monkeypatch.setattr(plugin_cli, "answer", ask)
        return action.run(None, {"inventory_hostname": "node1"})

    return types.SimpleNamespace(action=run_action, clock=clock, shown=shown, asked=asked)


def test_refuses_and_says_who_holds_what(run):
    held = [of(CAMERA, "cam0"), of(CAMERA, "cam1"), of("example.com/plain", "p0", pod="1f-2e", namespace="")]
    result = run.action("refuse", a_node([CAMERA, "example.com/plain"]), held)
    assert result["failed"] is True
    assert result["changed"] is False
    assert result["msg"] == (
        "Nothing was removed.\nnode1: default/viewer holds example.com/camera (cam0, cam1), pod 1f-2e holds "
        "example.com/plain (p0): end these pods (kubectl drain), or set node_devices_in_use: keep to keep what they "
        "need"
    )
    assert run.clock.now == 0


@pytest.mark.parametrize("policy", ["refuse", "wait"])
def test_what_others_serve_is_nobodys_business(run, policy):
    result = run.action(policy, a_node([CAMERA]), [of("vendor.example/gpu", "gpu-1")])
    assert (result.get("failed"), result["held"], run.clock.now) == (None, [], 0)


def test_a_device_whose_spec_would_stay_counts_although_it_is_not_served_any_more(run):
    assert run.action("refuse", a_node(), [of(CAMERA, "cam0::3")])["failed"] is True
    assert run.action("refuse", a_node(["a/b"], spec=False), [of(CAMERA, "cam0::3")])["held"] == []


def test_a_device_of_the_plugins_own_specs_counts_although_it_is_not_served_any_more(run):
    node = a_node(spec=False)
    name = SPEC.rpartition("/")[2]
    node["cdi_files"] = [f"/run/cdi/{name}"]
    for ours, held in ((True, 1), (False, 0)):
        result = run.action("refuse", node, [{**of(CAMERA, "cam0"), "by_our_cdi": ours}])
        assert len(result["held"]) == held


def test_waits_for_the_pods_end_and_says_so_once(run):
    held = [of(CAMERA, "cam0"), of(CAMERA, "cam1")]
    result = run.action("wait", a_node([CAMERA]), held, held, held[:1], held[:1], [])
    assert (result.get("failed"), result["held"]) == (None, [])
    assert run.clock.now == 8
    assert run.shown == [
        f"node1: waiting up to 10 minutes, because default/viewer holds example.com/camera ({devices})"
        for devices in ("cam0, cam1", "cam0")
    ]


def test_waits_no_longer_than_it_is_told(run):
    result = run.action("wait", a_node([CAMERA]), [of(CAMERA, "cam0")], minutes="1.5")
    assert result["failed"] is True
    assert "default/viewer holds example.com/camera (cam0) after 1.5 minutes: end these pods" in result["msg"]
    assert run.clock.now == 1.5 * MINUTE


def test_check_mode_foretells_it_and_does_not_wait(run):
    assert run.action("refuse", a_node([CAMERA]), [of(CAMERA, "cam0")], check=True)["failed"] is True
    result = run.action("wait", a_node([CAMERA]), [of(CAMERA, "cam0")], check=True)
    assert "failed" not in result
    assert result["warnings"] == [
        "node1: would wait up to 10 minutes, because default/viewer holds example.com/camera (cam0)"
    ]
    assert run.clock.now == 0


def test_a_node_without_anything_of_ours_is_not_asked(run):
    for node in (a_node(ours=False), a_node(spec=False)):
        assert run.action("refuse", node, AssertionError("asked")) == {"changed": False, "held": []}


def test_a_node_that_cannot_say_is_not_touched(run):
    result = run.action("wait", a_node([CAMERA]), plugin_cli.PluginCliMissing("/bin/plugin"))
    assert result["failed"] is True
    assert (
        result["msg"]
        == "Nothing was removed.\nnode1: /bin/plugin is not installed on the node: run role node_tools (site.yml) first"
    )


def test_asks_the_kubelet_where_it_is(run):
    run.action("refuse", a_node(), [], kubelet_root="/k", device_plugin_dir="/d")
    assert run.asked == [("/bin/plugin", "holders", "--kubelet-root", "/k", "--device-plugin-dir", "/d")]


@pytest.mark.parametrize(
    ("policy", "more", "says"),
    [
        ("perhaps", {}, "node_devices_in_use: must be one of keep, refuse, wait, not perhaps"),
        ("wait", {"minutes": "soon"}, "node_devices_in_use_minutes: must be a number of minutes, 0 or more, not soon"),
        ("wait", {"minutes": -1}, "node_devices_in_use_minutes: must be a number of minutes, 0 or more, not -1"),
    ],
)
def test_a_word_that_it_does_not_know_is_refused(run, policy, more, says):
    with pytest.raises(AnsibleError, match=says):
        run.action(policy, a_node(), [], **more)
