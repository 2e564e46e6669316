"""A pod that mounts the device plugin directory answers in the plugin's place."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.status_api import client
from node_device_plugin.status_api.probe import probe
from node_device_plugin.support import bounded_reads
from node_device_plugin.support.sockets import status_socket

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
STATUS: dict[str, Any] = {
    "version": "1",
    "started": 1.5,
    "ready": True,
    "not_ready": [],
    "configuration": {"path": "/x", "sha256": "0", "problems": []},
    "resources": [
        {
            "name": "example.com/dev",
            "registered": True,
            "devices": [{"id": "d0", "state": "healthy", "reason": None, "kubelet_ids": ["d0"], "host_paths": []}],
            "refused": {},
        }
    ],
}


@contextlib.asynccontextmanager
async def answering(directory: Path, *parts: bytes, endless: bool = False, pause: float = 0) -> AsyncIterator[None]:
    """A server that sends the parts, again and again if endless, with pauses of so many seconds."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            for part in parts:
                writer.write(part)
            while endless:
                writer.write(parts[-1])
                await writer.drain()
                await asyncio.sleep(pause)
        writer.close()

    path = Path(status_socket(str(directory)))
    path.parent.mkdir()
    async with await asyncio.start_unix_server(serve, str(path)):
        yield


async def refusal(directory: Path) -> str:
    with pytest.raises(client.NotAnswering) as error:
        await client.ask(str(directory), "GET", "/status")
    return str(error.value)


async def test_an_answer_without_an_end(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_reads, "LARGEST", 1 << 20)
    async with answering(short_path, HEAD, b"[" * (1 << 16), endless=True):
        assert "the answer is larger than 1048576 bytes" in await refusal(short_path)


async def test_an_answer_drop_by_drop(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and the answer does not."""
    monkeypatch.setitem(client._TIMEOUT, "GET", 0.2)
    async with answering(short_path, HEAD, b" ", endless=True, pause=0.01):
        assert "no answer in 0.2 s" in await refusal(short_path)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"[" * 100_000, "nests too deep"),
        (b"[" + b"0," * 3_000_000 + b"0]", "has more than 2000000 values"),
        (b'{"version": %s}' % (b"9" * 200), "a number has more than 100 digits"),
        (b"[]", "the answer is a list, expected a mapping"),
        (b'"\\ud800"', "surrogates not allowed"),
    ],
)
async def test_an_answer_that_no_program_should_keep(short_path: Path, body: bytes, says: str) -> None:
    async with answering(short_path, HEAD + body):
        assert says in await refusal(short_path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", 7),
        ("started", True),
        ("started", 1e300),
        ("ready", "yes"),
        ("not_ready", "no"),
        ("configuration", None),
        ("configuration.sha256", 5),
        ("configuration.problems", [1]),
        ("configuration.cdi_spec_dirs", {}),
        ("resources", {}),
        ("resources.0", "example.com/dev"),
        ("resources.0.name", {}),
        ("resources.0.devices.0.id", None),
        ("resources.0.devices.0.reason", 1),
        ("resources.0.devices.0.kubelet_ids", [[]]),
        ("resources.0.devices.0.host_paths", "/dev"),
        ("resources.0.refused", {"d0": 1}),
        ("resources.0.left_out", []),
        ("resources.0.min_devices", "1"),
        ("resources.0.min_devices", True),
        ("resources.0.late", ["the scan takes long"]),
        ("resources.0.problem", 1),
    ],
)
async def test_an_answer_of_another_type_names_the_place(short_path: Path, path: str, value: object) -> None:
    status = json.loads(json.dumps(STATUS))
    at: Any = status
    *way, last = path.split(".")
    for part in way:
        at = at[int(part) if part.isdigit() else part]
    at[int(last) if last.isdigit() else last] = value
    place = "".join(f"[{part}]" if part.isdigit() else "." + part for part in path.split("."))
    async with answering(short_path, HEAD + json.dumps(status).encode()):
        assert f": the answer{place}" in await refusal(short_path)


async def test_the_name_of_a_key_is_readable_and_short(short_path: Path) -> None:
    resources = [{**STATUS["resources"][0], "refused": {"\x1b[2J" + "x" * 500: 1}}]
    async with answering(short_path, HEAD + json.dumps({**STATUS, "resources": resources}).encode()):
        said = await refusal(short_path)
    assert "the answer.resources[0].refused.\\u001b[2Jxxx" in said
    assert " more characters)" in said


async def test_what_an_earlier_release_answers_is_no_other_type(short_path: Path) -> None:
    async with answering(short_path, HEAD + json.dumps({**STATUS, "more": 1}).encode()):
        assert (await client.ask(str(short_path), "GET", "/status"))["more"] == 1


@contextlib.contextmanager
def endless(path: str) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def serve() -> None:
            connection, _address = server.accept()
            with connection, contextlib.suppress(OSError):
                while True:
                    connection.sendall(b"x" * (1 << 16))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        thread.join()


def test_the_probe_ends_with_an_answer_without_an_end(short_path: Path) -> None:
    path = str(short_path / "status.sock")
    with endless(path):
        assert probe(path, "/healthz") == f"{path}: [Errno 27] is larger than 1048576 bytes"
