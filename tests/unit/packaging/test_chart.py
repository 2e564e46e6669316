"""The chart, the file for kubectl, the alerts and the dashboard, as far as no program of others is needed."""

from __future__ import annotations

import json
import pathlib
import re
import types

import jsonschema
import pytest
import yaml

from node_device_plugin.cli.main import main
from node_device_plugin.cluster.manifests import monitoring
from node_device_plugin.daemon.state import State
from node_device_plugin.telemetry import metrics

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGING = ROOT / "packaging"
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)[1]


@pytest.fixture
def generator():
    import importlib.machinery

    path = str(ROOT / "tools/generate_packaging")
    module = types.ModuleType("generate_packaging")
    module.__file__ = path
    importlib.machinery.SourceFileLoader("generate_packaging", path).exec_module(module)
    return module


def test_the_example_in_the_help_prints_the_file_for_kubectl(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit):
        main(["manifests", "--help"])
    (example,) = re.findall(r"^  node-device-plugin (.+)$", capsys.readouterr().out, re.M)
    assert main(example.split()) == 0
    _, _, rest = (PACKAGING / "kubectl/node-device-plugin.yaml").read_text().partition("\n")
    assert capsys.readouterr().out == rest


def values():
    return yaml.safe_load((PACKAGING / "chart/values.yaml").read_text())


def test_the_generated_files_are_what_the_generator_writes(generator, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["generate_packaging", "--check"])
    assert generator.main() == 0
    path = PACKAGING / "kubectl/node-device-plugin.yaml"
    stale = {**generator.generated(), path: "another"}
    monkeypatch.setattr(generator, "generated", lambda: stale)
    assert generator.main() == 1
    assert capsys.readouterr().out == (
        "packaging/kubectl/node-device-plugin.yaml: is out of date: run tools/generate_packaging\n"
    )


def test_the_schema_accepts_the_charts_own_values_and_describes_each(generator):
    schema = generator.values()
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(values(), schema)
    assert set(schema["properties"]) - {"global"} == set(values())
    assert all(each["description"] for name, each in schema["properties"].items() if name != "global")


@pytest.mark.parametrize("name", ["argocd.yaml", "flux.yaml"])
def test_the_gitops_examples_have_values_of_the_chart(name, generator):
    documents = list(yaml.safe_load_all((ROOT / "examples/gitops" / name).read_text()))
    spec = documents[-1]["spec"]
    given, path = (
        (spec["source"]["helm"]["valuesObject"], spec["source"]["path"])
        if name == "argocd.yaml"
        else (spec["values"], spec["chart"]["spec"]["chart"])
    )
    jsonschema.validate(given, generator.values())
    assert (ROOT / path / "Chart.yaml").exists()
    text = json.dumps(documents)
    assert "pod-security.kubernetes.io/enforce" in text


def test_the_chart_offers_the_devices_of_the_file_for_kubectl():
    configuration = yaml.safe_load((PACKAGING / "kubectl/nodes/_default.yaml").read_text())
    deployment = yaml.safe_load((PACKAGING / "kubectl/deployment.yaml").read_text())
    # The chart's cdi_owner is plugin by default.
    assert configuration.pop("cdi_owner") == "plugin"
    profile = values()["profiles"]["default"]
    assert profile == {"nodeSelector": deployment["node_selector"], "config": configuration}


def test_versions():
    chart = yaml.safe_load((PACKAGING / "chart/Chart.yaml").read_text())
    deployment = yaml.safe_load((PACKAGING / "kubectl/deployment.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION
    assert deployment["image"] == f"{values()['image']['repository']}:{VERSION}"


def exported():
    reloader = types.SimpleNamespace(
        loaded=types.SimpleNamespace(sha256=""), last=types.SimpleNamespace(result="applied")
    )
    text = State(types.SimpleNamespace(checked_at=None, served=list), reloader).metrics()
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)", text, re.M):
        names |= {f"{name}_{end}" for end in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return names


def test_rules_and_dashboard_use_metrics_that_the_plugin_exports():
    rules = yaml.safe_load((PACKAGING / "chart/files/alert-rules.yaml").read_text())
    assert rules == monitoring.alert_rules()
    dashboard = (PACKAGING / "monitoring/dashboard.json").read_text()
    known = exported()
    for text, least in ((json.dumps(rules), 4), (dashboard, 7)):
        used = set(re.findall(rf"{metrics.PREFIX}\w+", text))
        assert len(used) >= least
        assert used <= known
