"""Configurations by chance, made from the schema itself: a new key is tried from the day that it is there."""

import functools
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from node_device_plugin.declaration.schema import CONFIGURATION, DISCOVER, VERSION, Field

#: How tests by chance run: the same chance each time.
BY_CHANCE = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    # Without making a failure smaller, which takes minutes.
    phases=[Phase.generate],
)
#: What is plausible by key, two that are right first; what is not listed is text by chance.
_PLAUSIBLE: dict[str, list[str]] = {
    "name": ["example.com/aa", "example.com/b-b", "x.example.com/c.d", "kubernetes.io/x", "requests.x/y", "a/b/c", "a"],
    "id": ["a", "b0", "c:d", "0", "::", "a::0", "a b", "/dev/x", "-", ""],
    "path": ["/dev/a", "/dev/b", "/dev//c", "/", "dev/a", "/dev/a b", "/dev/{match1}", "/dev/é"],
    "host_path": ["/dev/null", "/dev/zero", "/tmp", "tmpfs", "..", "/x/../y", "/"],
    "container_path": ["/a", "/b", "c", "/"],
    "permissions": ["r", "rw", "rwm", "mrw", "", "x", "rr"],
    "mode": ["0660", "660", "0999", "", "06600"],
    "kind": ["vendor.com/gpu", "example.com/aa", "a/b", "vendor.com"],
    "cdi_devices": ["vendor.com/gpu=0", "example.com/aa=all", "a/b=c", "vendor.com/gpu"],
    "cdi_spec_dirs": ["/etc/cdi", "/var/run/cdi", "etc/cdi", "/etc/cdi/"],
    "dynamic_cdi_dir": ["/var/run/cdi", "/run/other", "run/cdi", "/"],
    "kubelet_root_dir": ["/var/lib/kubelet", "/data/kubelet", "/a b", "kubelet"],
    "cdi_kind": ["example.com/kind", "ex/am", "a/b", "1x/y2", "example.com/aa"],
    "kubelet_device_plugin_dir": ["/var/lib/kubelet/device-plugins", "/" + "d" * 62, "/" + "d" * 63, "relative", "/"],
    "http_address": ["", "127.0.0.1:9819", ":1", "[::1]:99", "::1:99", "x:y", "1.2.3.4:99999"],
    "vendor": ["0403", "10de", "x", "04030"],
    "product": ["6001", "6002", "", "600G"],
    "device": ["1eb8", "0000", "*", "1EB8"],
    "class_code": ["03", "0302", "030200", "3", "030"],
    "serial": ["A50*", "x", "", "[", "x"],
    "driver": ["vfio-pci", "ftdi_*", "", "["],
    "subsystem": ["tty", "video4linux", "../tty", ""],
    "paths": ["/dev/tty*", "/dev/serial/by-id/*", "dev", "/dev/**/x", "/dev/[", "/"],
    "exclude": ["/dev/ttyS*", "/dev/x", "*", "[", ""],
    "command": ["/bin/true", "/bin/echo", "true", "", "-x"],
    "args": ["x", ""],
    "options": ["ro", "nosuid", ""],
    "env name": ["A_{index}", "B_{index}", "A", "{id}", "1A"],
    "annotations name": ["example.com/y-{index}", "z-{index}", "{id}", "x"],
    "properties name": ["value", "speed", "id", "x y"],
    "env": ["A=b", "B=c", "A", "=b", "A_{index}", "{id}", "{path} {index}", "{nothing}", "{", "1A=b", "B=é"],
    "annotations": ["x", "{id}", "{nothing}"],
    "joined_env name": ["JOINED_A", "JOINED_B", "A_{index}", "1A"],
    "joined_env": ["{id}", "x", "{index}", "{nothing}"],
    "id_prefix": ["rack-", "a.b_", "-a", "x y"],
    "placeholder": ["tty", "video", "index", "x y"],
    "properties": ["value", "3", "x y", "{id}"],
    "attributes name": ["slot", "example.com/side", "resource", "a-b", "nodedevices.kubernetes/x"],
    "attributes": ["front", "é", "x" * 65],
    "version": ["1.2.3", "0.0.1-rc.1+b", "1.2", "01.2.3"],
    "node": ["worker-1", "a.b", "a_b", ""],
    "kubeconfig": ["/etc/kubernetes/kubelet.conf", "/k", "k", "/a b"],
}
#: Keys of which a mapping that has all of them is nothing without one.
_ONE_OF = (
    ("paths", "usb", "pci", "vfio", "udev"),
    ("vendor", "product", "serial", "driver"),
    ("vendor", "device", "class_code", "driver"),
    ("devices", "discover"),
    ("nodes", "container_edits", "cdi_devices"),
    ("open", "command"),
    ("command",),
)
_TEXT = st.text(max_size=8)
_NUMBERS = st.sampled_from([1, 2, 3] * 8 + [0, 8, 100, -1, 10**6, 2**31, 2**63, 10**30])
#: Values of any type, in the place of any other.
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT | st.integers(), inner, max_size=3),
    max_leaves=5,
)


@functools.cache
def _text(key: str) -> st.SearchStrategy[str]:
    pool = _PLAUSIBLE.get(key, [])
    # Mostly what is right, or next to nothing would be accepted.
    kinds = [st.sampled_from(pool[:2]) if pool else _TEXT] * 17 + [st.sampled_from(pool or ["x"])] * 2 + [_TEXT]
    return st.integers(0, len(kinds) - 1).flatmap(kinds.__getitem__)


def _name(element: Any) -> str:
    """Two resources or devices of one name are never accepted."""
    return repr(element.get("name", element.get("id", element)) if isinstance(element, dict) else element)


def _value(key: str, field: Field, junk: int, least: int = 0) -> st.SearchStrategy[Any]:
    right = _right(key, field, junk, least)
    return right if not junk else st.integers(0, junk).flatmap(lambda chance: JUNK if chance == 0 else right)


def _right(key: str, field: Field, junk: int, least: int = 0) -> st.SearchStrategy[Any]:
    if field.type == "dict" and field.fields is not None:
        return _mapping(field.fields, junk)
    if field.type == "dict":
        texts = _text(key)
        values = st.booleans() | _NUMBERS | texts | _mapping(VERSION, junk) if field.elements == "attribute" else texts
        return st.dictionaries(_text(key + " name"), values, max_size=2)
    if field.type == "list":
        element = Field(field.elements or "str", "", fields=field.fields)
        values = _value(key, element, junk)
        if field.shorthand is not None:
            values |= st.just(field.shorthand.example)
        return st.lists(values, min_size=least, max_size=2, unique_by=None if junk else _name)
    if field.type == "bool":
        return st.booleans()
    if field.type in ("int", "raw"):
        return _NUMBERS
    return st.sampled_from(field.choices) if field.choices else _text(key)


def _mapping(fields: Any, junk: int) -> st.SearchStrategy[dict[str, Any]]:
    required = {key: _value(key, field, junk, least=1) for key, field in fields.items() if field.required}
    optional = {key: _value(key, field, junk) for key, field in fields.items() if not field.required}
    if junk:
        return st.fixed_dictionaries({}, optional={**required, **optional, "unknown": JUNK})
    # A few of the optional keys at a time, or their mistakes would add up.
    few = st.lists(st.sampled_from(sorted(optional)), max_size=4, unique=True) if optional else st.just([])
    choices = next((keys for keys in _ONE_OF if set(keys) <= set(fields)), ())
    needed = {key: _right(key, fields[key], junk, least=1) for key in choices}

    def made(chosen: tuple[str, list[str]]) -> st.SearchStrategy[dict[str, Any]]:
        one, keys = chosen
        more = {key: optional[key] for key in keys}
        return st.fixed_dictionaries({**required, **more, **({one: needed[one]} if one else {})})

    return st.tuples(st.sampled_from(choices or [""]), few).flatmap(made)


#: Of the right types, with values that may be wrong.
PLAUSIBLE_CONFIGURATIONS = _mapping(CONFIGURATION, junk=0)
#: What to look for, alone.
PLAUSIBLE_DISCOVERIES = _mapping(DISCOVER, junk=0)
#: With anything anywhere.
WILD_CONFIGURATIONS = _mapping(CONFIGURATION, junk=8) | JUNK
