"""Imports the parts of this checkout that a bundle's build uses."""

from __future__ import annotations

import pathlib
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
# `tools/setup collection` links a checkout into .ansible/collections. An installed collection needs no link.
sys.path[:0] = [str(CHECKOUT / ".ansible/collections"), str(CHECKOUT / "../../.."), str(CHECKOUT / "packaging/image")]

import locked_wheels as locked_wheels  # noqa: E402
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels as wheels  # noqa: E402
from engine_calls import MACHINES as MACHINES  # noqa: E402
from image_building import Progress as Progress  # noqa: E402
