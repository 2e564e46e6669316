"""The rooms of the package and their layers: imports go down only (docs/architecture.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import node_device_plugin

ROOT = Path(node_device_plugin.__file__).parent
#: From the top. Rooms of one layer do not import each other.
LAYERS = (
    {"cli"},
    {"diagnostics", "verification"},
    {"daemon"},
    {"status_api"},
    {"kubelet"},
    {"cluster"},
    {"devices", "cdi", "runtime"},
    {"telemetry"},
    {"declaration"},
    {"support", "wire"},
)
#: What a room may import of its own layer, by prefix.
BESIDE = {"devices": "cdi."}


class Import(NamedTuple):
    """One import inside the package: dotted names below it."""

    importer: str
    imported: str


def imports(root: Path) -> Iterator[Import]:
    """Every import of the package by itself, wherever it stands in a module."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        package = parts[:-1]
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom):
                continue
            if node.level:
                base = list(package[: len(package) - node.level + 1])
            elif node.module and node.module.partition(".")[0] == root.name:
                base = []
            else:
                continue
            below = (node.module or "").split(".") if node.module else []
            target = base + (below if node.level else below[1:])
            for alias in node.names:
                yield Import(".".join(parts), ".".join([*target, alias.name]))


def layer_of(room: str) -> int:
    return next(number for number, rooms in enumerate(LAYERS) if room in rooms)


def problems(root: Path) -> list[str]:
    """Imports that go up, or beside without being allowed to."""
    found = []
    for importer, imported in imports(root):
        above, below = importer.partition(".")[0], imported.partition(".")[0]
        if above == below or "." not in importer:
            continue
        beside = layer_of(above) == layer_of(below) and not imported.startswith(BESIDE.get(above, "none"))
        if beside or layer_of(above) > layer_of(below):
            found.append("%s imports %s" % (importer, imported))
    return found


def test_imports_go_down_only() -> None:
    assert problems(ROOT) == []


def test_every_module_is_in_a_room() -> None:
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == set().union(*LAYERS)
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_the_declaration_needs_the_standard_library_alone() -> None:
    """Ansible imports it on the controller, where grpc is missing."""
    outside: set[str] = set()
    for path in (ROOT / "declaration").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and not node.level:
                outside.add((node.module or "").partition(".")[0])
            elif isinstance(node, ast.Import):
                outside.update(alias.name.partition(".")[0] for alias in node.names)
    assert {"grpc", "google", "yaml"} & outside == set()


def test_below_the_kubelet_only_ids_of_devices_are_used() -> None:
    """The ids of shares are the device plugin API's.

    A declaration is held to its rules, and discovery to its room.
    """
    below = set().union(*LAYERS[LAYERS.index({"kubelet"}) + 1 :])
    using = {
        (each.importer, each.imported)
        for each in imports(ROOT)
        if each.imported.startswith("declaration.device_plugin_api") and each.importer.partition(".")[0] in below
    }
    assert using == {
        ("declaration.parse", "declaration.device_plugin_api"),
        ("devices.discovery.__init__", "declaration.device_plugin_api.longest_device_id"),
    }


def test_an_import_that_goes_up_is_found(tmp_path: Path) -> None:
    files: dict[str, str] = {
        "devices/table.py": "def f():\n    from ..daemon import main\n",
        "devices/scanner.py": "from ..cdi.writer import write\nfrom ..runtime import client\n",
        "cli/run.py": "from ..daemon.main import run\n",
        "cluster/restore.py": "from ..kubelet.checkpoint import read\n",
        "kubelet/restore.py": "from ..cluster.api import Api\n",
    }
    root = tmp_path / "node_device_plugin"
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    assert problems(root) == [
        "cluster.restore imports kubelet.checkpoint.read",
        "devices.scanner imports runtime.client",
        "devices.table imports daemon.main",
    ]
