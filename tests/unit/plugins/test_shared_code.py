"""What modules import of the plugin's package, through the link, runs with the standard library alone."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

PLUGINS = pathlib.Path(__file__).resolve().parents[3] / "plugins"
LINK = PLUGINS / "module_utils" / "node_device_plugin"


def test_modules_import_what_every_node_has():
    sources = [*(PLUGINS / "modules").glob("*.py"), *(PLUGINS / "module_utils").rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources if LINK not in path.parents)
    found = re.findall(r"\.node_device_plugin\.([\w.]+) import (?:\(([^)]*)\)|([\w, ]+))", text)
    names = {f"{module}.{name}" for module, *imported in found for name in re.findall(r"\w+", " ".join(imported))}
    modules = {name for name in names if (LINK / f"{name.replace('.', '/')}.py").exists()}
    modules |= {name.rpartition(".")[0] for name in names - modules}
    assert {"support.node_process", "support.bounded_reads", "kubelet.checkpoint"} <= modules
    program = "import sys\nsys.path.insert(0, sys.argv.pop())\n" + "".join(
        f"import node_device_plugin.{module}\n" for module in sorted(modules)
    )
    # -S leaves out all installed packages.
    subprocess.run([sys.executable, "-I", "-S", "-c", program, str(LINK.resolve().parent)], check=True)
