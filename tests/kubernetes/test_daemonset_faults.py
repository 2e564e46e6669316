"""What a run says where the API server is away, breaks off, or lets the user do nothing: for each node, what to do."""

from __future__ import annotations

import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import daemonset

NODES = ["worker1", "worker2"]
#: State to the hosts that it concerns.
STATES = {
    "configured": "worker1",
    "deployed": "worker1, worker2",
    "selected": "worker1",
    "ready": "worker1",
    "removed": "worker1",
    "absent": "worker1, worker2",
}


@pytest.fixture
def run(cluster, monkeypatch):
    """What the module says: run(state, kubeconfig)."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def run_state(state, kubeconfig):
        action = object.__new__(daemonset.ActionModule)
        declared = {"configuration": {"resources": [{"name": "a.example/b", "devices": []}]}}
        arguments = {"state": state, "kubeconfig": kubeconfig, "declaration": declared, "timeout": 0.2}
        action._task = types.SimpleNamespace(
            args=arguments, check_mode=False, get_play=lambda: types.SimpleNamespace(strategy="linear")
        )
        result = action.run(None, {"inventory_hostname": "worker1", "ansible_play_hosts": NODES})
        assert result["failed"] is True
        return result["msg"]

    return run_state


@pytest.mark.parametrize(("state", "concerned"), STATES.items())
def test_an_api_server_that_is_away(run, cluster, unused_server, state, concerned):
    assert run(state, cluster.kubeconfig(server=unused_server)) == (
        f"{concerned}: the API server {unused_server} does not answer: Connection refused: "
        "retry when the API server answers"
    )


@pytest.mark.parametrize(("state", "concerned"), STATES.items())
def test_a_user_who_may_do_nothing(run, cluster, state, concerned):
    said = run(state, cluster.kubeconfig({"token": "nobody-token"}))
    assert said.startswith(f"{concerned}: ")
    assert ' is forbidden: User "nobody" cannot ' in said
    assert ": give this user " in said
    assert "Role" in said.rpartition(" in a ")[2]
