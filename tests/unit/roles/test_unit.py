"""The service's unit: what of the sandbox is open follows from the declaration, and from nothing else."""

from __future__ import annotations

import pathlib

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration

UNIT = pathlib.Path(__file__).resolve().parents[3] / "roles/device_plugin/templates/node-device-plugin.service.j2"
NODE = {"id": "d", "nodes": [{"path": "/dev/d"}]}
COMMAND = {"command": ["/bin/true"]}


def settings(resource, credentials=(), **plugin):
    """The unit's settings, each with all of its values."""
    read = declaration.read(
        {"node_devices_resources": [{"name": "example.com/dev", **resource}]}, lambda value: value, plugin
    )
    variables = {
        "device_plugin_declaration": read.as_data(),
        "device_plugin_command": "/usr/local/bin/x",
        "device_plugin_credentials": credentials,
    }
    text = Templar(DataLoader(), variables=variables).template(trust_as_template(UNIT.read_text()))
    found = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize(
    ("resource", "plugin", "writes"),
    [
        ({"devices": [NODE], "injection": "device_nodes"}, {}, False),
        # Its node may be a link by then, which the role's spec cannot follow.
        ({"devices": [NODE]}, {}, True),
        # Another unit would mean a restart when the next resource comes.
        ({"devices": [{"id": "d"}], "env": {"D": "x"}}, {}, True),
        ({"discover": {"paths": ["/dev/x*"]}}, {}, True),
        ({"devices": [NODE]}, {"cdi_owner": "plugin"}, True),
    ],
)
def test_cdi_specs_are_written_where_there_may_be_some_to_write(resource, plugin, writes):
    unit = settings(resource, **plugin)
    assert ("-/run/cdi" in unit["BindPaths"]) is writes
    assert any("/run/cdi" in command for command in unit["ExecStartPre"]) is writes


@pytest.mark.parametrize(
    ("keys", "capabilities", "devices", "sysfs"),
    [
        ({}, "", "closed", "read-only"),
        # As a container's root, which opens what belongs to somebody else (/dev/tpmrm0 is tss's).
        ({"health": {"open": True}}, "CAP_DAC_OVERRIDE", "auto", "read-only"),
        ({"health": COMMAND}, "", "auto", "read-only"),
        # A reset is often a word written to sysfs.
        ({"pre_start": COMMAND}, "CAP_DAC_OVERRIDE", "auto", "writable"),
    ],
)
def test_probes_and_commands_can_do_what_they_are_for(keys, capabilities, devices, sysfs):
    unit = settings({"devices": [NODE], **keys})
    assert unit["CapabilityBoundingSet"] == [capabilities]
    assert unit["DevicePolicy"] == [devices]
    assert ("ProtectKernelTunables" not in unit) is (sysfs == "writable")


@pytest.mark.parametrize(
    ("resource", "plugin", "directories"),
    [
        ({"devices": [NODE]}, {}, []),
        ({"devices": [{"id": "d", "nodes": [{"path": "/run/x/d"}]}]}, {}, ["/run/x"]),
        ({"discover": {"paths": ["/var/run/x/*"]}}, {}, ["/run/x"]),
        # Not /run/udev, where a socket controls udev.
        ({"discover": {"udev": [{"subsystem": "tty"}]}}, {}, ["/run/udev/data"]),
        ({"devices": [NODE]}, {"cdi_spec_dirs": ["/run/a", "/run/cdi"]}, ["/run/a"]),
        ({"devices": [NODE]}, {"kubelet_root_dir": "/k", "cdi_spec_dirs": ["/k/a", "/kept"]}, ["/k/a"]),
    ],
)
def test_what_the_declaration_names_is_not_hidden(resource, plugin, directories):
    unit = settings(resource, **plugin)
    root = plugin.get("kubelet_root_dir", "/var/lib/kubelet")
    assert unit["TemporaryFileSystem"] == [f"/run:ro {root}:ro"]
    assert unit["BindReadOnlyPaths"][3:] == [f"-{each}" for each in directories]
    for each in directories:
        assert f"+/usr/bin/nsenter --target 1 --mount /bin/mkdir -p -m 0755 {each}" in unit["ExecStartPre"]


@pytest.mark.parametrize(
    ("address", "is_local"),
    [("127.0.0.1:9819", True), ("[::1]:9819", True), (":9819", False), ("10.1.27.1:9819", False)],
)
def test_a_port_for_the_node_itself_is_closed_to_all_others(address, is_local):
    unit = settings({"devices": [NODE]}, http_address=address)
    assert ("IPAddressAllow" in unit) is is_local
    assert unit["SocketBindAllow"] == ["tcp:9819"]


def test_a_secret_place_in_which_something_is_declared_stays_visible():
    hidden = settings({"devices": [NODE]})["InaccessiblePaths"]
    assert {"-/etc/containerd", "-/var/lib/node-devices", "-/var/lib/rancher"} <= set(hidden)
    root = "/var/lib/rancher/k3s/agent/kubelet"
    unit = settings({"devices": [NODE]}, kubelet_root_dir=root, kubelet_device_plugin_dir=f"{root}/device-plugins")
    assert set(hidden) - set(unit["InaccessiblePaths"]) == {"-/var/lib/rancher"}


@pytest.mark.parametrize(
    ("directory", "setting"), [("/run/cdi", "BindPaths"), ("/k/cdi", "BindPaths"), ("/srv/cdi", "ReadWritePaths")]
)
def test_the_dynamic_directory_is_writable_wherever_it_is(directory, setting):
    unit = settings({"devices": [NODE]}, dynamic_cdi_dir=directory, kubelet_root_dir="/k")
    assert f"-{directory}" in unit[setting]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/run/gpu0", "has devices directly in /run, which the service's sandbox hides: move them to a subdirectory"),
        ("/run/*/gpu", "has devices directly in /run"),
        ("/run/pci-0000:3b:00.0/d", "must not contain ':'"),
        ("/var/run/a b/d", "must not contain ' '"),
    ],
)
def test_a_directory_that_cannot_be_shown_is_refused(path, message):
    key = (
        {"discover": {"paths": [path]}}
        if "*" in path
        else {"devices": [{"id": "d", "nodes": [{"path": "/dev/d", "host_path": path}]}]}
    )
    with pytest.raises(declaration.DeclarationProblems, match=message):
        settings(key)


@pytest.mark.parametrize(("registration", "there"), [("device_plugins", False), ("plugins_registry", True)])
def test_the_kubelets_registry_is_there_before_the_kubelet(registration, there):
    unit = settings({"devices": [NODE]}, registration=registration)
    assert any(each.endswith("-m 0750 /var/lib/kubelet/plugins_registry") for each in unit["ExecStartPre"]) is there
    assert ("-/var/lib/kubelet/plugins_registry" in unit["BindPaths"]) is there


def test_it_goes_before_what_containers_do():
    assert settings({"devices": [NODE]})["Nice"] == ["-10"]


@pytest.mark.parametrize(
    ("discover", "families"),
    [
        ({"paths": ["/dev/x*"]}, ["AF_UNIX AF_INET AF_INET6"]),
        ({"usb": [{"vendor": "0403"}]}, ["AF_UNIX AF_INET AF_INET6", "AF_NETLINK"]),
        ({"udev": [{"subsystem": "tty"}]}, ["AF_UNIX AF_INET AF_INET6", "AF_NETLINK"]),
        ({"pci": [{"vendor": "10de"}]}, ["AF_UNIX AF_INET AF_INET6", "AF_NETLINK"]),
    ],
)
def test_the_kernels_messages_reach_a_service_that_needs_them(discover, families):
    assert settings({"discover": discover})["RestrictAddressFamilies"] == families


KUBEADM = ["/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/pki"]


def test_dra_shows_the_kubelets_credentials_and_no_other():
    unit = settings({"devices": [NODE], "api": "dra"}, KUBEADM)
    for path in KUBEADM:
        # Without them, the service would start with nothing to read, and never see what comes later.
        assert path in unit["BindReadOnlyPaths"]
    assert unit["TemporaryFileSystem"] == ["/run:ro /var/lib/kubelet:ro", "/etc/kubernetes:ro"]
    assert "-/etc/kubernetes" not in unit["InaccessiblePaths"]
    assert "-/var/lib/rancher" in unit["InaccessiblePaths"]
    without = settings({"devices": [NODE]})
    assert "-/etc/kubernetes" in without["InaccessiblePaths"]
    assert not set(KUBEADM).intersection(without["BindReadOnlyPaths"])


def test_dra_shows_credentials_elsewhere():
    k3s = "/var/lib/rancher/k3s/agent/kubelet.kubeconfig"
    unit = settings({"devices": [NODE], "api": "dra"}, [k3s])
    assert k3s in unit["BindReadOnlyPaths"]
    assert unit["TemporaryFileSystem"][1:] == ["/var/lib/rancher:ro"]
    assert {"-/etc/kubernetes", "-/var/lib/k0s"} <= set(unit["InaccessiblePaths"])


@pytest.mark.parametrize("address", ["127.0.0.1:9819", ""])
def test_dra_reaches_the_api_server_and_registers_as_a_plugin_of_the_kubelet(address):
    unit = settings({"devices": [NODE], "api": "dra"}, KUBEADM, http_address=address)
    assert unit["RestrictAddressFamilies"] == ["AF_UNIX AF_INET AF_INET6 AF_NETLINK"]
    assert not {"IPAddressDeny", "PrivateNetwork"}.intersection(unit)
    assert unit["SocketBindDeny"] == ["any"]
    assert unit.get("SocketBindAllow") == (["tcp:9819"] if address else None)
    assert "-/var/lib/kubelet/plugins_registry" in unit["BindPaths"]
