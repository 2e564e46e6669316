"""The types of the plugin's answers. A pod that mounts the device plugin directory may answer in the plugin's place."""

from __future__ import annotations

from typing import Any, Callable, Union

#: An exact type or several, a list of one shape, a mapping, or a rule.
Shape = Union[type, tuple[type, ...], list[Any], dict[str, Any], Callable[[Any], bool]]


def _is_moment(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1 << 40


_TEXT_OR_NONE = (str, type(None))
#: The key that stands for every key, and the end of the name of a key that earlier releases do not have.
_EVERY, _OPTIONAL = "*", "?"
_DEVICE: Shape = {
    "id": str,
    "state": str,
    "reason": _TEXT_OR_NONE,
    "withheld?": bool,
    "kubelet_ids": [str],
    "host_paths": [str],
}
_RESOURCE: Shape = {
    "name": str,
    "registered": bool,
    "devices": [_DEVICE],
    "refused": {_EVERY: str},
    "left_out?": {_EVERY: str},
    "missed?": {_EVERY: str},
    "min_devices?": int,
    "late?": _TEXT_OR_NONE,
    "problem?": _TEXT_OR_NONE,
}
#: GET /status. Keys that no command of ours reads are not here.
STATUS: Shape = {
    "version": str,
    "started": _is_moment,
    "ready": bool,
    "not_ready": [str],
    "configuration": {"path": str, "sha256": str, "problems": [str], "cdi_spec_dirs?": [str]},
    "resources": [_RESOURCE],
}
#: Every POST.
OUTCOME: Shape = {"result": str, "problems": [str]}


def check(value: Any, shape: Shape, where: str = "the answer") -> None:
    """Raise ValueError, with the place, if a value does not have this shape. Further keys of a mapping are ignored."""
    if isinstance(shape, dict):
        _must(isinstance(value, dict), where)
        for key, inner in shape.items():
            name = key.rstrip(_OPTIONAL)
            if key == _EVERY:
                for each in value.values():
                    check(each, inner, f"{where}.{_EVERY}")
            elif name in value:
                check(value[name], inner, f"{where}.{name}")
            else:
                _must(key != name, f"{where}.{name}")
    elif isinstance(shape, list):
        _must(isinstance(value, list), where)
        for each in value:
            check(each, shape[0], where + "[]")
    elif isinstance(shape, (type, tuple)):
        # Python's true is an int, too.
        _must(type(value) in (shape if isinstance(shape, tuple) else (shape,)), where)
    else:
        _must(shape(value), where)


def _must(holds: bool, where: str) -> None:
    if not holds:
        raise ValueError(f"{where} is missing or has another type")
