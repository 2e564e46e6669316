"""The hand-written tables of docs/ say what there is: commands, metrics, playbooks, variables, tags, scenarios."""

from __future__ import annotations

import json
import re
import runpy
import types

import pytest
import the_project as project
import yaml
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_device_plugin.support import kubelet_process
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import node_code
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.fleet import node as fleet_node
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.fleet import resources as fleet_resources
from bench import needs
from documented_blocks import PAGES, ROOT, text_of

from node_device_plugin.cdi import directories
from node_device_plugin.cli import main as command_line
from node_device_plugin.cli import run
from node_device_plugin.cluster import manifests
from node_device_plugin.cluster.manifests import deployment, device_classes
from node_device_plugin.daemon.state import State
from node_device_plugin.declaration import cdi, device_plugin_api, dra_api, names
from node_device_plugin.declaration.model import Attributes, ContainerEdits, Device, Resource
from node_device_plugin.devices.health import cdi_names
from node_device_plugin.kubelet.dra import slices
from node_device_plugin.runtime.configuration import containerd_obstacles
from node_device_plugin.status_api import shapes
from node_device_plugin.support import directory_names
from node_device_plugin.telemetry import metrics


def first_column(page, heading):
    """What stands between backticks in the first cells of the table that has this heading."""
    _, _, rest = text_of(page).partition(f"\n| {heading} |")
    assert rest, f"{page} has no table {heading}"
    rows = rest.partition("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


def test_commands():
    found = []

    def walk(parser, before=()):
        for action in parser._actions:
            for name, inner in (getattr(action, "choices", None) or {}).items() if action.nargs == "A..." else ():
                walk(inner, (*before, name))
        if not any(action.nargs == "A..." for action in parser._actions):
            found.append(" ".join(before))

    walk(command_line.parser())
    assert len(found) > 10
    assert sorted(first_column("docs/commands.md", "command")) == sorted(found)


def test_metrics():
    reloader = types.SimpleNamespace(
        loaded=types.SimpleNamespace(sha256=""), last=types.SimpleNamespace(result="applied")
    )
    resources = types.SimpleNamespace(checked_at=None, served=list)
    text = State(resources, reloader).metrics()
    names = [name.removeprefix(metrics.PREFIX) for name in re.findall(r"^# TYPE (\S+)", text, re.M)]
    assert "devices" in names
    heading = f"metric (each begins with `{metrics.PREFIX}`)"
    assert sorted(first_column("docs/observability.md", heading)) == sorted(names)


def test_playbooks():
    parts = {"verification_table.yml"}
    assert sorted(first_column("docs/playbooks.md", "playbook")) == sorted(project.playbooks() - parts)
    assert all(f"`{part}`" in text_of("docs/playbooks.md") for part in parts)


def test_every_variable_of_the_playbooks():
    rest = {"node_devices_serial", "node_devices_max_fail_percentage"}
    assert rest < project.playbook_variables()
    assert sorted(first_column("docs/playbooks.md", "variable")) == sorted(project.playbook_variables() - rest)
    for name in rest:
        assert f"`{name}`" in text_of("docs/playbooks.md")
        assert f"| `{name}`" in text_of("docs/upgrade.md")


def test_defaults_of_the_playbooks_variables():
    rows = re.findall(r"^\| `(node_devices_\w+)` \|(?: `([^`]*)`)? \|", text_of("docs/playbooks.md"), re.M)
    assert len(rows) == len(project.playbook_variables()) - 2
    for name, default in rows:
        used = re.findall(rf"\b{name} \| default\(([^)]*)\)", project.sources())
        assert {each.strip("'") for each in used} == {default}, name


def test_tags():
    assert sorted(first_column("docs/playbooks.md", "tag")) == sorted(project.tags())


def test_ci_or_the_nightly_run_makes_every_scenario():
    made = project.in_ci() | project.reached_from("nightly", project.targets())
    assert {name for name in project.targets() if name.startswith("scenario-")} <= made


def test_the_steps_of_the_nightly_run():
    steps = project.targets()["nightly"].leads_to - {"system", "dev", "packages", "programs"}
    assert sorted(first_column("docs/testing.md", "step")) == sorted(steps)


def test_scenarios():
    scenarios = [path.parent.name for path in (ROOT / "molecule").glob("*/molecule.yml")]
    assert sorted(first_column("docs/testing.md", "scenario")) == sorted(scenarios)
    # The changelog names those that are gone, too.
    for page in sorted({*PAGES} - {"CHANGELOG.md"}):
        for listed in re.findall(r"[Ss]cenarios? ((?:`\w+`(?:, | and )?)+)", " ".join(text_of(page).split())):
            assert set(re.findall(r"`(\w+)`", listed)) <= set(scenarios), page


@pytest.mark.parametrize(("page", "least"), [("architecture", 20), ("walkthrough", 100), ("extending", 20)])
def test_what_the_architecture_names_is_there(page, least):
    """The walk and the tables name files and directories, which move."""
    # What the example of extending.md creates is not there.
    text = re.sub(r"^Create `[^`]+`:$", "", text_of(f"docs/{page}.md"), flags=re.M)
    names = set(re.findall(r"`(?!github)([\w.-]*\w/[\w./-]*|[\w-]+\.(?:py|yml|j2))`", text))
    tops = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    there = {f"/{path.relative_to(ROOT)}" for top in tops for path in (top, *top.rglob("*"))}
    assert len(names) > least
    assert not [name for name in names if not any(path.endswith(f"/{name.rstrip('/')}") for path in there)]


def test_the_architecture_names_every_directory_and_layer():
    tops = {path.partition("/")[0] for path in project.tracked() if "/" in path and not path.startswith(".")}
    page = text_of("docs/architecture.md")
    named = {name.partition("/")[0] for name in first_column("docs/architecture.md", "directory | contents")}
    assert named == tops
    layers = runpy.run_path(str(ROOT / "plugin/tests/test_layers.py"))["LAYERS"]
    rows = re.findall(r"^\| (\d+) \| ((?:`\w+/`(?:, )?)+) \|", page, re.M)
    found = {name: len(layers) - place for place, names in enumerate(layers) for name in names}
    assert {name: int(layer) for layer, names in rows for name in re.findall(r"\w+", names)} == found


def test_messages_of_the_troubleshooting_page():
    """A reader searches the page for the message that they see, so the code has each quoted message's fixed words."""
    directories = ("plugin/node_device_plugin", "plugins", "playbooks")
    sources = [path for each in directories for path in (ROOT / each).rglob("*") if path.suffix in (".py", ".yml")]
    text = " ".join(path.read_text(encoding="utf-8") for path in sources)
    text = re.sub(r"\s+", " ", re.sub(r'"\s*\n\s*f?"', "", text))
    # Headings, and the first cells of the table of messages. Kubernetes' messages stand between backticks.
    places = re.findall(r"^(?:### .*|\| .*? \|)", text_of("docs/troubleshooting.md"), re.M)
    quoted = [message for place in places for message in re.findall(r'"([^"]+)"', place)]
    # What stands for a name, a number or a path, and what Kubernetes says.
    parts = re.compile(r"…|is unproven: |the client certificate|create on pods|Pending|Too many pods|\S*[\d/]\S*")
    fixed = [words.strip(" ,:") for message in quoted for words in parts.split(message)]
    assert len(quoted) > 50
    assert [words for words in fixed if " " in words and words not in text] == []


def sentence(page, begin):
    """The sentence of a page that begins so, in one line."""
    (found,) = re.findall(rf"{re.escape(begin)}[^.]*(?:\.[^\s][^.]*)*\.", " ".join(text_of(page).split()))
    return found


def test_the_links_that_doctor_checks():
    source = (ROOT / "plugin/node_device_plugin/diagnostics/doctor.py").read_text()
    links = re.findall(r'self\.(?:ok|wrong|warning|unknown)\(\s*"([^"]+)"', source)
    links += re.findall(r'\blink(?:, \w+)? = "([^"]+)"', source)
    rows = text_of("docs/commands.md").partition("\n| link |")[2].partition("\n\n")[0].splitlines()[2:]
    # Without a node, doctor checks no link.
    assert sorted(row.split(" | ")[0].removeprefix("| ") for row in rows) == sorted({*links} - {"node"})


def test_the_size_of_the_code_on_a_node():
    (most,) = re.findall(
        r"less than (\d+) MB in `/var/lib/node-devices/code`", " ".join(text_of("roles/node_tools/README.md").split())
    )
    assert len(node_code.archive()) < int(most) * 1_000_000


def test_the_order_of_known_sockets():
    assert tuple(re.findall(r"^ *(/\S+\.sock)$", text_of("docs/several-runtimes.md"), re.M)) == kubelet_process.SOCKETS


def test_what_the_sandbox_hides_from_the_health_check():
    hidden = re.findall(
        r"`(/[^`]+)`", sentence("docs/declaration.md", "The plugin does not check paths that its sandbox")
    )
    assert hidden
    assert set(hidden) <= set(cdi_names._HIDDEN)


def test_the_oldest_kubelet_and_containerd():
    dotted = [".".join(map(str, each)) for each in (cdi.FIRST_KUBELET, cdi.TESTED_KUBELETS[0])]
    containerd = ".".join(map(str, containerd_obstacles.OLDEST))
    needs = text_of("docs/bare-metal.md").partition("Each node needs:")[2].partition("\n\n1.")[0]
    assert re.findall(r"kubelet ([0-9.]+) or later \(\[tested\]\([^)]*\): ([0-9.]+) and later", needs) == [
        tuple(dotted)
    ]
    assert re.findall(r"containerd ([0-9.]+) or later", needs) == [containerd]
    page = text_of("docs/compatibility.md")
    assert f"A kubelet before {dotted[0]} drops" in page
    assert f"a containerd before {containerd}." in page
    assert f"The oldest tested kubelet is {dotted[1]}." in page
    readme = " ".join(text_of("README.md").split())
    assert f"nodes need containerd {containerd} or later" in readme
    assert f"and kubelet {dotted[0]} or later." in readme
    kubelets, containerds = (
        sorted(tuple(map(int, path.name.rpartition("-")[2].split("."))) for path in (ROOT / "lab/programs").glob(each))
        for each in ("kubernetes-*", "containerd-*")
    )
    ends = ("%d.%d to %d.%d" % (each[0] + each[-1]) for each in (kubelets, containerds))
    assert "The tests run kubelets from {} and containerd from {} ".format(*ends) in readme


def test_what_the_wheels_need():
    targets = json.loads((ROOT / "requirements/node-wheels.json").read_text())
    minors = sorted(int(re.fullmatch(r"cp3(\d+)-\w+", name)[1]) for name in targets)
    pythons = f"Python 3.{minors[0]} to 3.{minors[-1]} "
    machines = " or ".join(sorted({name.partition("-")[2] for name in targets}, reverse=True))
    glibc = ".".join(map(str, max(each["glibc"] for each in targets.values())))
    for page in ("README.md", "docs/bare-metal.md"):
        text = " ".join(text_of(page).split())
        assert pythons in text
        assert f"on {machines} with glibc {glibc} or later" in text


def test_the_page_names_what_the_manifests_need_beside_the_roles_keys():
    specs = yaml.safe_load((ROOT / "roles/device_plugin/meta/argument_specs.yml").read_text())["argument_specs"]
    of_role = specs["main"]["options"]["device_plugin_deployment"]["options"]
    beside = deployment.DEPLOYMENT.keys() - of_role.keys()
    needed = {name for name, field in deployment.DEPLOYMENT.items() if field.required}
    assert beside == set()
    assert needed == {"image"}
    said = sentence("docs/daemonset.md", "Here, `image` has no default")
    assert set(re.findall(r"`(\w+)`", said)) == beside | needed


@pytest.mark.parametrize(
    ("page", "row"),
    [("docs/playbooks.md", r"^\| \[`(\w+)`\]\(\.\./roles/"), ("docs/README.md", r"^- \[(\w+)\]\(\.\./roles/")],
)
def test_pages_list_the_roles_in_the_order_of_a_run(page, row):
    site = (ROOT / "playbooks" / "site.yml").read_text()
    order = list(dict.fromkeys(re.findall(r"name: nodedevices\.kubernetes\.(\w+)\n +rolespec_validate", site)))
    assert re.findall(row, text_of(page), re.MULTILINE) == order


def test_attributes_of_devices():
    of_bus = [slices._camel_case(name) for name in (*Attributes._fields, "numa_node")]
    all_names = [
        dra_api.RESOURCE_ATTRIBUTE,
        dra_api.ID_ATTRIBUTE,
        "path",
        *(slices._STANDARD.get(n, n) for n in of_bus),
    ]
    assert len(all_names) == dra_api.OUR_MOST
    assert sorted(first_column("docs/dra.md", "attribute")) == sorted(all_names)


def test_what_dra_cannot_say():
    keys = [key for key, _default, _why in dra_api._WITHOUT_COUNTERPART]
    named = [name.partition(":")[0] for name in first_column("docs/dra.md", "key")]
    assert sorted(named) == sorted([*keys, "registration", "api"])


def test_limits_of_dra():
    page = " ".join(text_of("docs/dra.md").split())
    assert f"text of at most {names.MAX_ATTRIBUTE_TEXT} bytes" in page
    assert f"A device may have {dra_api.MAX_ATTRIBUTES - dra_api.OUR_MOST} declared attributes" in page
    assert f"A claim can have at most {dra_api.MAX_CLAIMED} devices" in page
    assert f"Kubernetes has {device_classes.MOST_BYTES:,} bytes" in page


def test_sizes_and_limits():
    def fitting(length, numa_node=None):
        device = Device("x" * length, (), ContainerEdits(), {}, required=False, numa_node=numa_node)
        resource = Resource("example.com/x", "example.com/x", (device,), {}, ContainerEdits(), 1)
        return device_plugin_api.LIMIT // device_plugin_api.listed_size(resource, device)

    page = " ".join(text_of("docs/limits.md").split())
    for words in (
        f"| {device_plugin_api.LIMIT:,} bytes, which the kubelet accepts",
        f"{fitting(40):,} devices with ids of 40 characters, or {fitting(63, 0):,} with ids of 63 characters",
        f"| A device's id | {names.MAX_DEVICE_ID} characters;",
        f"| A resource's name | {names._MAX_DOMAIN} characters before the `/`, and {names._MAX_LABEL_NAME} after it",
        f"| Resources of a node | {shapes.MOST_RESOURCES:,}, ",
        f"The plugin may open {run._MOST:,} files, and opens two for each resource |",
        f"| {manifests._LARGEST_CONFIG_MAP:,} bytes: the data of one ConfigMap",
        f"| A CDI spec | {directories._LARGEST:,} bytes |",
        f"| `kubelet_device_plugin_dir` | {names.MAX_DEVICE_PLUGIN_DIR} bytes, ",
        f"| `kubelet_root_dir` | {names.MAX_KUBELET_ROOT_DIR} bytes |",
        f"`make bench` allows {needs.MOST_CPU} % of one CPU",
    ):
        assert words in page
    unit = text_of("roles/device_plugin/templates/node-device-plugin.service.j2")
    for limit, words in (("MemoryMax", "ends it at %siB"), ("TasksMax", "| at most %s |")):
        (most,) = re.findall(rf"^{limit}=(\d+ ?M?)$", unit, re.M)
        assert words % most.replace("M", " M") in page
    (files,) = re.findall(r"^LimitNOFILE=(\d+)$", unit, re.M)
    assert int(files) == run._MOST


def test_where_no_kubeconfig_of_the_dra_driver_may_be():
    said = sentence("docs/dra.md", "The kubeconfig, or a file that it names, is below")
    assert tuple(re.findall(r"`(/[^`]+)`", said)) == directory_names.NEVER_SHOWN


@pytest.mark.parametrize(
    ("heading", "states"), [("a node is", fleet_node.STATES), ("a resource is", fleet_resources.STATES)]
)
def test_states_of_the_report(heading, states):
    assert sorted(first_column("docs/status.md", heading)) == sorted(states)


def test_the_devices_that_every_node_offers():
    shown = re.findall(r"^\| `([^`/]+/[^`]+)` \| .* \| (\d+) \|$", text_of("docs/helm.md"), re.M)
    resources = yaml.safe_load((ROOT / "packaging/kubectl/nodes/_default.yaml").read_text())["resources"]
    assert shown == [(each["name"], str(each.get("replicas", 1))) for each in resources]


def test_the_number_of_recipes():
    (number,) = re.findall(r"\[(\d+) recipes\]", text_of("CHANGELOG.md"))
    assert int(number) == len(list((ROOT / "examples/cookbook").glob("*/declaration.yml")))
