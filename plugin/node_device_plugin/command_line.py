"""The command ``node-device-plugin``. Exit codes: 0, 1 (it found something), 2 (usage)."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import math
import os
import signal
import sys
from typing import Any, Callable, Coroutine, NoReturn, Optional, Protocol, Sequence, TypeVar

from .configuration import DEFAULT_PATH, kubelet_places, load
from .declaration import DeclarationError, cdi
from .sockets import RUNTIME_SOCKET
from .version import version

DEFAULT_KUBELET_ROOT = "/var/lib/kubelet"


_Answer = TypeVar("_Answer")


class Failure(Exception):
    """What a command found, in one sentence: exit code 1."""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one command and return its exit code."""
    try:
        try:
            return _main(arguments)
        finally:
            # What would be written only as the process ends could fail only then, where nobody says so in a sentence.
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough.
        pass
    except OSError as error:
        where = "%s: " % error.filename if error.filename else "cannot go on: "
        print("node-device-plugin: %s%s" % (where, error.strerror or error), file=sys.stderr)
    with contextlib.suppress(AttributeError, OSError, ValueError):
        # Python would try once more to write it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _main(arguments: Optional[Sequence[str]]) -> int:
    options = parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except DeclarationError as error:
        for problem in error.problems:
            print("node-device-plugin: %s" % str(problem), file=sys.stderr)
    except Failure as error:
        print("node-device-plugin: %s" % error, file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


def _run(options: argparse.Namespace) -> int:
    # Until there is somebody to reload: whoever asks before that has changed the file, which is seen then.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Nothing that a start makes is garbage, and looking for some would take a tenth of it; see plugin.
    gc.disable()
    # Imported here: the commands that only read a file shall not wait for grpc.
    from . import logs, plugin

    loaded = load(options.config)
    logs.configure(loaded.configuration.log_level, loaded.configuration.log_format)
    try:
        asyncio.run(plugin.run(options.config, loaded))
    except OSError as error:
        raise Failure("cannot go on: %s" % error) from error
    return 0


def _reload(options: argparse.Namespace) -> int:
    from .observability import client

    loaded = load(options.config)
    try:
        if options.check:
            running = asyncio.run(client.ask(loaded.configuration.kubelet_device_plugin_dir, "GET", "/status"))[
                "configuration"
            ]
            if running["sha256"] == loaded.sha256:
                return 0
            raise Failure(
                "the plugin runs with configuration %s, not %s" % (running["sha256"][:12], loaded.sha256[:12])
            )
        answer = asyncio.run(client.ask(loaded.configuration.kubelet_device_plugin_dir, "POST", "/reload"))
    except client.NotAnswering as error:
        raise Failure(str(error)) from error
    for problem in answer["problems"]:
        print("node-device-plugin: %s" % problem, file=sys.stderr)
    print("configuration %s: %s" % (loaded.sha256[:12], answer["result"]))
    return 1 if answer["result"] == "refused" else 0


def _validate(options: argparse.Namespace) -> int:
    loaded = load(options.config)
    resources = loaded.configuration.resources
    print(
        "%s: valid: %d resources, %d devices"
        % (options.config, len(resources), sum(len(resource.devices) for resource in resources))
    )
    return 0


def _discover(options: argparse.Namespace) -> int:
    from . import cdi_files, discovery
    from .discovery import listing

    configuration = load(options.config).configuration
    resources = configuration.resources
    offered = cdi_files.offered(resources, configuration.dynamic_cdi_dir)
    data = listing.to_data(resources, discovery.discover(resources, offered=offered))
    if options.output == "json":
        _print_json(data)
    else:
        print(listing.to_text(data))
    return 0


def _manifests(options: argparse.Namespace) -> int:
    from . import manifest_files

    rendered = manifest_files.render(options.folder, options.deployment)
    if options.output == "json":
        contents = [manifest.content for manifest in rendered]
        _print_json({"apiVersion": "v1", "kind": "List", "items": contents})
    else:
        print(manifest_files.to_yaml(rendered), end="")
    return 0


def _capacities_restore(options: argparse.Namespace) -> int:
    from .kubernetes import restore

    try:
        restored = restore.restore(restore.read_settings(options.config), options.dry_run)
    except restore.RestoreError as error:
        raise Failure(str(error)) from error
    for name, capacity in sorted(restored.items()):
        print("%s: %s again: a restart of the kubelet had reset it" % (name, capacity), flush=True)
    return 0


def _cdi_render(options: argparse.Namespace) -> int:
    specs = cdi.render_specs(load(options.config).configuration.resources)
    if options.output == "json":
        _print_json(specs)
        return 0
    for name, spec in specs.items():
        print("# %s" % name)
        print(cdi.serialise(spec), end="")
    return 0


def _cdi_check(options: argparse.Namespace) -> int:
    from .cdi_check import report

    checked = _ask(report.check(options.dir, options.socket))
    _show(options, checked)
    return 1 if checked.problems else 0


def _version(options: argparse.Namespace) -> int:
    print("node-device-plugin %s" % version())
    return 0


def _runtime(options: argparse.Namespace) -> int:
    from . import node_state

    state = _ask(node_state.runtime(options.socket))
    if options.output == "json":
        state["containers"] = _ask(node_state.running_containers(options.socket))
        if options.ended:
            state["ended"] = _ask(node_state.ended_containers(options.socket, options.ended))
        _print_json(state)
        return 0
    print("%(name)s %(version)s" % state)
    enabled = {True: "on", False: "off", None: "unknown to this runtime"}[state["cdi"]["enabled"]]
    enabled = "always on" if state["cdi"]["always_on"] else enabled
    print("CDI %s, spec directories %s" % (enabled, ", ".join(state["cdi"]["spec_dirs"] or ["unknown"])))
    return 0


def _cdi_prune(options: argparse.Namespace) -> int:
    from . import cdi_files, node_state

    state = _ask(node_state.holders(options.kubelet_root, options.device_plugin_dir))
    held = [cdi_files.Held(each["resource"], each["device"]) for each in state["held"]]
    try:
        removed = cdi_files.prune([], held, options.dir)
        cdi_files.remove_folder(options.dir)
    except OSError as error:
        raise Failure("%s: %s" % (options.dir, error.strerror)) from error
    data = {"removed": removed, "kept": cdi_files.devices(options.dir)}
    if options.output == "json":
        _print_json(data)
    else:
        for what, names in data.items():
            print("%s: %s" % (what, " ".join(names) or "nothing"))
    return 0


def _holders(options: argparse.Namespace) -> int:
    from . import node_state

    state = _ask(node_state.holders(options.kubelet_root, options.device_plugin_dir))
    if options.output == "json":
        _print_json(state)
        return 0
    if state["source"] == "none":
        raise Failure("no kubelet answers below %s, so nobody says who holds what" % options.kubelet_root)
    if state["source"] == "checkpoint":
        print("no kubelet answers: its checkpoint says, by the pods' uid, who holds what", file=sys.stderr)
    for held in state["held"]:
        print("%(namespace)s/%(pod)s %(container)s %(resource)s %(device)s" % held)
    if not state["held"]:
        print("no device is held")
    return 0


def _status(options: argparse.Namespace) -> int:
    from .inspection.status import status

    found = _ask(status(kubelet_places(options.config)))
    _show(options, found)
    return 0 if found.is_fine else 1


def _doctor(options: argparse.Namespace) -> int:
    from .inspection.doctor import Doctor

    findings = _ask(Doctor(options.config, options.socket, options.kubelet_root).examine())
    _show(options, findings)
    return 0 if findings.is_healthy else 1


def _verify(options: argparse.Namespace) -> int:
    from . import verification

    loaded = load(options.config)
    report = _ask(
        verification.verify(
            loaded.configuration,
            verification.Node(
                runtime_socket=options.socket,
                kubelet_root=options.kubelet_root or loaded.configuration.kubelet_root_dir,
                static_pod_dir=options.static_pod_dir,
                image=options.image,
            ),
            verification.Scope(
                devices=options.devices, unproven_only=options.unproven, record=options.record, timeout=options.timeout
            ),
        )
    )
    _show(options, report)
    return 1 if report.problems else 0


def _seen(options: argparse.Namespace) -> int:
    from . import container_view

    # One line, which a log keeps together.
    print(json.dumps(container_view.own(options.paths), sort_keys=True))
    return 0


def _ask(question: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run a command's questions to the node; what goes wrong there is a failure in one sentence."""
    from .cri_errors import CriError
    from .kubelet_checkpoint import CheckpointError

    try:
        return asyncio.run(question)
    except (CriError, CheckpointError) as error:
        raise Failure(str(error)) from error


class _Shown(Protocol):
    def to_data(self) -> Any:
        """As JSON takes it."""

    def to_text(self) -> str:
        """For people."""


def _show(options: argparse.Namespace, what: _Shown) -> None:
    if options.output == "json":
        _print_json(what.to_data())
    else:
        print(what.to_text())


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=2, sort_keys=False))


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError("must be a number of seconds from 0 on, not %r" % text)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, "%s: %s\n" % (self.prog, message))


def parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    parsed = _Parser(prog="node-device-plugin", description="Serve a node's declared devices to its kubelet, by CDI.")
    commands = parsed.add_subparsers(metavar="COMMAND", required=True)

    config = argparse.ArgumentParser(add_help=False)
    config.add_argument("--config", metavar="FILE", default=DEFAULT_PATH, help="configuration (default: %(default)s)")
    output = argparse.ArgumentParser(add_help=False)
    output.add_argument("-o", "--output", choices=("text", "json"), default="text", help="form of the output")
    runtime = argparse.ArgumentParser(add_help=False)
    runtime.add_argument(
        "--socket",
        metavar="PATH",
        default=RUNTIME_SOCKET,
        help="the runtime's CRI socket (default: %(default)s)",
    )
    kubelet = argparse.ArgumentParser(add_help=False)
    kubelet.add_argument("--kubelet-root", metavar="DIR", default=DEFAULT_KUBELET_ROOT, help="the kubelet's --root-dir")

    def add(
        to: Any, name: str, command: Callable[[argparse.Namespace], int], help: str, *parents: argparse.ArgumentParser
    ) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = to.add_parser(name, help=help, description=help, parents=parents)
        added.set_defaults(command=command)
        return added

    add(commands, "run", _run, "Serve the devices until SIGTERM.", config)
    reload = add(commands, "reload", _reload, "Let the running plugin read its configuration again.", config)
    reload.add_argument("--check", action="store_true", help="only say whether it runs with what the file says now")
    add(commands, "validate", _validate, "Check a configuration and say everything that is wrong with it.", config)
    add(commands, "discover", _discover, "Show the devices that a configuration would find here.", config, output)
    manifests = add(
        commands,
        "manifests",
        _manifests,
        "Print what a cluster needs to run the plugin as a DaemonSet: for GitOps, or kubectl apply --server-side.",
    )
    manifests.add_argument(
        "-o", "--output", choices=("yaml", "json"), default="yaml", help="form of the output (default: %(default)s)"
    )
    manifests.add_argument(
        "--deployment", metavar="FILE", required=True, help="image, namespace and so on: docs/daemonset.md"
    )
    manifests.add_argument(
        "folder", metavar="FOLDER", help="a configuration for each node, in a file of the node's name and .yaml"
    )
    capacities = commands.add_parser("capacities", help="Fixed capacities (role extended_resources).").add_subparsers(
        metavar="COMMAND", required=True
    )
    restore = add(
        capacities, "restore", _capacities_restore, "Restore, as this node's kubelet, what a restart of it has reset."
    )
    restore.add_argument(
        "--config",
        metavar="FILE",
        default="/etc/node-device-plugin/capacities.json",
        help="what is to be restored (default: %(default)s)",
    )
    restore.add_argument("--dry-run", action="store_true", help="have the API server go through it and keep nothing")
    cdi_commands = commands.add_parser("cdi", help="CDI specs.").add_subparsers(metavar="COMMAND", required=True)
    add(cdi_commands, "render", _cdi_render, "Print the CDI specs of a configuration.", config, output)
    check = add(
        cdi_commands,
        "check",
        _cdi_check,
        "Check every CDI spec of this node, own and foreign, as its runtime will read it.",
        runtime,
        output,
    )
    check.add_argument(
        "--dir", metavar="DIR", action="append", help="a spec directory, once or more (default: the running runtime's)"
    )
    asked = add(
        commands,
        "runtime",
        _runtime,
        "Ask the running container runtime what it believes about CDI.",
        runtime,
        output,
    )
    asked.add_argument(
        "--ended", metavar="ID", nargs="+", default=(), help="with -o json: say of these containers how they ended"
    )
    prune = add(
        cdi_commands,
        "prune",
        _cdi_prune,
        "Take away what the plugin, which must not run any more, wrote for discovered devices, unless a pod holds it.",
        kubelet,
        output,
    )
    prune.add_argument("--dir", metavar="DIR", default="/var/run/cdi", help="where it wrote (default: %(default)s)")
    holders = add(commands, "holders", _holders, "Which pod holds which device.", kubelet, output)
    for command in (prune, holders):
        command.add_argument(
            "--device-plugin-dir",
            metavar="DIR",
            default=DEFAULT_KUBELET_ROOT + "/device-plugins",
            help="the kubelet's device plugin directory, whose checkpoint answers while no kubelet runs",
        )
    add(commands, "status", _status, "What the plugin serves, and which pod holds what.", config, output)
    doctor = add(
        commands,
        "doctor",
        _doctor,
        "Walk the chain on this node, say what is wrong and the command that mends it.",
        config,
        output,
    )
    doctor.add_argument(
        "--socket", metavar="PATH", help="the runtime's CRI socket (default: the one that the running kubelet uses)"
    )
    doctor.add_argument("--kubelet-root", metavar="DIR", help="the kubelet's --root-dir (default: the running one's)")
    verify = add(
        commands,
        "verify",
        _verify,
        "Read back from the runtime, the kubelet and a container that every declared device is really there.",
        config,
        runtime,
        output,
    )
    verify.add_argument("--kubelet-root", metavar="DIR", help="the kubelet's --root-dir (default: the configuration's)")
    verify.add_argument("--static-pod-dir", metavar="DIR", help="where the kubelet takes static pods from")
    verify.add_argument("--image", help="image of the proof's containers (default: the runtime's sandbox image)")
    verify.add_argument("--devices", choices=("one", "all"), default="one", help="free devices that a proof asks for")
    verify.add_argument("--record", metavar="FILE", help='what was proven before ("proven" of an earlier -o json)')
    verify.add_argument("--unproven", action="store_true", help="prove only what --record does not hold")
    verify.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="SECONDS", help="for the kubelet and each proof"
    )
    seen = add(commands, "seen", _seen, "Print, as JSON, what the container has that this runs in: a proof's pod.")
    seen.add_argument("paths", metavar="PATH", nargs="*", help="a device node to look at, beside variables and mounts")
    add(commands, "version", _version, "Print the version.")
    return parsed
