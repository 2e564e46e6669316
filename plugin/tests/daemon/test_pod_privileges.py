"""What depends on the process that serves: an unprivileged pod may open no device of its host."""

from pathlib import Path

import pytest

from node_device_plugin.cli.main import main
from node_device_plugin.daemon import pod_privileges
from node_device_plugin.declaration import DeclarationError, parse_configuration

PROBED = [{"name": "example.com/dev", "health": {"open": True}}, {"name": "example.com/other"}]


@pytest.mark.parametrize(
    ("capabilities", "environ", "refused"),
    [
        ("00000000a80425fb", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, True),
        ("000001ffffffffff", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False),
        ("0000000000000000", {}, False),
    ],
)
def test_an_unprivileged_pod_may_not_probe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capabilities: str, environ: dict[str, str], refused: bool
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nCapEff:\t%s\n" % capabilities)
    found = []
    try:
        pod_privileges.refuse_open_probes(parse_configuration({"resources": PROBED}), str(status))
    except DeclarationError as error:
        found = [problem.where for problem in error.problems]
    assert found == ["resources[0] (example.com/dev).health.open"] * refused


@pytest.fixture
def powerless_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process, as one of a pod without capabilities."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr(pod_privileges, "_is_privileged", lambda status: False)


@pytest.fixture
def probing(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text("resources:\n- {name: example.com/dev, health: {open: true}}\n")
    return str(path)


@pytest.mark.usefixtures("powerless_pod")
def test_validate_answers_the_same_whoever_asks(probing: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--config", probing]) == 0
    assert "valid: 1 resource," in capsys.readouterr().out


@pytest.mark.usefixtures("powerless_pod")
def test_what_this_process_may_not_do_is_refused_as_it_starts(probing: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--config", probing]) == 1
    assert (
        "resources[0] (example.com/dev).health.open: an unprivileged pod cannot open devices" in capsys.readouterr().err
    )
