"""What a run says where the API server is away, breaks off, or lets the user do nothing: for each node, what to do."""

from __future__ import annotations

import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import daemonset

NODES = ["worker1", "worker2"]
#: Step to the hosts that it concerns.
STEPS = {
    "configure": "worker1",
    "deploy": "worker1, worker2",
    "select": "worker1",
    "wait": "worker1",
    "remove": "worker1",
    "dismantle": "worker1, worker2",
}


@pytest.fixture
def run(cluster, monkeypatch):
    """What a step says: run(step, kubeconfig)."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def run_step(step, kubeconfig):
        action = object.__new__(daemonset.ActionModule)
        declared = {"configuration": {"resources": [{"name": "a.example/b", "devices": []}]}}
        arguments = {"step": step, "kubeconfig": kubeconfig, "declaration": declared, "patience": 0.2}
        action._task = types.SimpleNamespace(args=arguments, check_mode=False)
        result = action.run(None, {"inventory_hostname": "worker1", "ansible_play_hosts": NODES})
        assert result["failed"] is True
        return result["msg"]

    return run_step


@pytest.mark.parametrize(("step", "concerned"), STEPS.items())
def test_an_api_server_that_is_away(run, cluster, unused_server, step, concerned):
    assert run(step, cluster.kubeconfig(server=unused_server)) == (
        f"{concerned}: the API server {unused_server} does not answer: Connection refused: run again when it does"
    )


@pytest.mark.parametrize(("step", "concerned"), STEPS.items())
def test_a_user_who_may_do_nothing(run, cluster, step, concerned):
    said = run(step, cluster.kubeconfig({"token": "nobody-token"}))
    assert said.startswith(f"{concerned}: ")
    assert ' is forbidden: User "nobody" cannot ' in said
    assert ": give this user " in said
    assert "Role" in said.rpartition(" in a ")[2]
