"""The small HTTP server: what browsers, scrapers and attackers send."""

import asyncio
import contextlib
import json
import os
import random
import socket as sockets
import sys
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path

import pytest

from node_device_plugin.declaration import Problem
from node_device_plugin.declaration.fields import http_address_problem, parse_http_address
from node_device_plugin.status_api import http
from node_device_plugin.status_api.http import Pages, Response
from node_device_plugin.status_api.pages import Outcome, private_pages
from node_device_plugin.status_api.server import Endpoint

PACKAGE = Path(__file__).parents[2]


async def _page() -> Response:
    return Response(HTTPStatus.OK, "grüße\n")


async def _fails() -> Response:
    raise ValueError("here")


ROUTES = {("GET", "/page"): _page, ("GET", "/fails"): _fails, ("POST", "/act"): _page}


@pytest.fixture
async def socket(short_path: Path) -> AsyncIterator[str]:
    path = str(short_path / "http.sock")
    server = await asyncio.start_unix_server(Pages(ROUTES), path)
    yield path
    server.close()


async def say(socket: str, request: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(request)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /page HTTP/1.1", "200 OK"),
        ("GET /page?a=b HTTP/1.0", "200 OK"),
        ("HEAD /page HTTP/1.1", "200 OK"),
        ("POST /act HTTP/1.1", "200 OK"),
        ("GET /act HTTP/1.1", "405 Method Not Allowed"),
        ("DELETE /page HTTP/1.1", "405 Method Not Allowed"),
        ("GET /nothing HTTP/1.1", "404 Not Found"),
        ("GET /fails HTTP/1.1", "500 Internal Server Error"),
        ("GET /page", "400 Bad Request"),
        ("GET /page HTTP/2", "400 Bad Request"),
        ("", "400 Bad Request"),
        ("GET /" + "x" * 20_000 + " HTTP/1.1", "400 Bad Request"),
        ("GET /" + "x" * 100_000 + " HTTP/1.1", "400 Bad Request"),
        ("GET /page HTTP/1.1\r\n" + "a: %s\r\n" % ("b" * 1000) * 20, "400 Bad Request"),
    ],
)
async def test_answers(socket: str, request_line: str, status: str) -> None:
    answer = await say(socket, (request_line + "\r\nHost: x\r\n\r\n").encode())
    assert answer.startswith(b"HTTP/1.1 " + status.encode() + b"\r\n")
    assert b"\r\nConnection: close\r\n" in answer


async def test_the_length_counts_bytes_and_head_has_no_body(socket: str) -> None:
    assert (await say(socket, b"GET /page HTTP/1.1\r\n\r\n")).endswith("\r\n\r\ngrüße\n".encode())
    head = await say(socket, b"HEAD /page HTTP/1.1\r\n\r\n")
    assert b"Content-Length: 8\r\n" in head
    assert head.endswith(b"\r\n\r\n")


async def test_no_bytes_at_all_and_binary_ones(socket: str) -> None:
    assert (await say(socket, b"")).startswith(b"HTTP/1.1 400")
    assert (await say(socket, bytes(range(256)) * 10)).startswith(b"HTTP/1.1 400")


async def test_garbage_by_chance_is_refused_and_the_next_request_is_answered(socket: str) -> None:
    chance = random.Random(0)
    words = [b"GET", b"POST", b" ", b"/page", b"HTTP/1.1", b"\r\n", b"\n", b":", b"\0", b"\xff" * 5000, b"%2e", b"\r"]
    for _ in range(100):
        garbage = b"".join(chance.choice(words) for _ in range(chance.randrange(12)))
        answer = await say(socket, garbage)
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 404 ", b"HTTP/1.1 405 ", b"HTTP/1.1 200 ")), garbage
    assert (await say(socket, b"GET /page HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_clients_that_only_wait_do_not_keep_others_out(socket: str) -> None:
    """The server accepts connections in their order, and ends the oldest that waits."""
    waiting = [await asyncio.open_unix_connection(socket) for _ in range(2 * http._IDLE)]
    for _ in range(10):
        assert (await say(socket, b"GET /page HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")
    ended = [reader.at_eof() or reader.exception() is not None for reader, _ in waiting]
    assert sum(ended) == ended.index(False) >= http._IDLE
    for _, writer in waiting:
        writer.close()


async def test_one_address_cannot_take_all_connections() -> None:
    async def page() -> Response:
        return Response(HTTPStatus.OK, "x")

    server = await asyncio.start_server(Pages({("GET", "/page"): page}), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        probe = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        flood = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * http._IDLE_OF_ONE)]
        # It was there first, and is the only one of its address.
        probe[1].write(b"GET /page HTTP/1.1\r\n\r\n")
        assert (await probe[0].read()).startswith(b"HTTP/1.1 200")
        assert sum(not reader.at_eof() and reader.exception() is None for reader, _ in flood) == http._IDLE_OF_ONE
        for _, writer in (probe, *flood):
            writer.close()
    finally:
        server.close()


async def test_a_request_is_answered_that_came_in_one_turn_of_the_loop_with_a_flood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy node gives the plugin little time, so many connections wait for each turn."""
    monkeypatch.setattr(http, "_IDLE_OF_ONE", 8)
    server = await asyncio.start_server(Pages(ROUTES), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    with contextlib.ExitStack() as stack:
        # The loop does not turn here.
        probe, *_flood = (stack.enter_context(sockets.create_connection(address)) for _ in range(90))
        probe.sendall(b"GET /page HTTP/1.1\r\n\r\n")
        probe.setblocking(False)
        answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(probe, 100), 10)
        assert answer.startswith(b"HTTP/1.1 200")
    server.close()


async def test_clients_that_do_not_read_their_answers_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_TIMEOUT", 60.0)

    async def large() -> Response:
        return Response(HTTPStatus.OK, "x" * 10_000_000)

    server = await asyncio.start_server(Pages({("GET", "/large"): large}), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    flood = []
    for _ in range(3 * http._UNREAD_OF_ONE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        await reader.readexactly(4)
        flood.append(writer)

    def lives(writer: asyncio.StreamWriter) -> bool:
        with contextlib.suppress(OSError):
            writer.write(b"x")
            return not writer.transport.is_closing()
        return False

    async def until_few_live() -> None:
        while sum(map(lives, flood)) > http._UNREAD_OF_ONE:
            await asyncio.sleep(0.01)

    await asyncio.wait_for(until_few_live(), 10)
    assert [lives(writer) for writer in flood[-http._UNREAD_OF_ONE :]] == [True] * http._UNREAD_OF_ONE
    for writer in flood:
        writer.transport.abort()
    server.close()


async def test_a_page_in_the_making_is_not_ended(short_path: Path) -> None:
    go = asyncio.Event()

    async def slow() -> Response:
        await go.wait()
        return Response(HTTPStatus.OK, "x")

    socket = str(short_path / "x.sock")
    server = await asyncio.start_unix_server(Pages({("GET", "/slow"): slow}), socket)
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.05)
        flood = [await asyncio.open_unix_connection(socket) for _ in range(2 * http._IDLE)]
        go.set()
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        for _, other in (*flood, (reader, writer)):
            other.close()
    finally:
        server.close()


async def test_a_client_gets_the_refusal_of_a_request_that_nobody_reads(socket: str) -> None:
    answer = await say(socket, b"x" * 1_000_000)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.endswith(b"Bad Request\n")


async def test_beyond_a_limit_no_page_is_made(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_PAGES", 2)
    asked, go = asyncio.Semaphore(0), asyncio.Event()

    async def slow() -> Response:
        asked.release()
        await go.wait()
        return Response(HTTPStatus.OK, "x")

    server = await asyncio.start_unix_server(Pages({("GET", "/slow"): slow}), str(short_path / "http.sock"))
    request = str(short_path / "http.sock"), b"GET /slow HTTP/1.1\r\n\r\n"
    made = [asyncio.create_task(say(*request)) for _ in range(2)]
    for _ in made:
        await asked.acquire()
    assert (await say(*request)).startswith(b"HTTP/1.1 503")
    go.set()
    for answer in [*await asyncio.gather(*made), await say(*request)]:
        assert answer.startswith(b"HTTP/1.1 200")
    server.close()


async def test_who_keeps_an_answered_connection_open_is_left_after_a_while(
    socket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_LINGER", 0.1)
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(b"GET /page HTTP/1.1\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200")

    async def send_on() -> None:
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    with pytest.raises(ConnectionError):
        await send_on()


async def test_a_client_that_does_not_read_is_left_after_a_while(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "x" * 10_000_000

    async def large() -> Response:
        return Response(HTTPStatus.OK, body)

    monkeypatch.setattr(http, "_TIMEOUT", 0.2)
    server = await asyncio.start_unix_server(Pages({("GET", "/large"): large}), str(short_path / "http.sock"))
    reader, writer = await asyncio.open_unix_connection(str(short_path / "http.sock"), limit=1)
    writer.write(b"GET /large HTTP/1.1\r\n\r\n")
    await reader.readexactly(4)
    # Not so much as this client's buffers hold was read when the server gave it up.
    await asyncio.sleep(1)
    assert len(await asyncio.wait_for(reader.read(), 10)) < len(body)
    writer.close()
    server.close()


async def test_an_answer_that_takes_long_to_make_is_given(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow() -> Response:
        await asyncio.sleep(0.3)
        return Response(HTTPStatus.OK, "done")

    monkeypatch.setattr(http, "_TIMEOUT", 0.1)
    server = await asyncio.start_unix_server(Pages({("POST", "/slow"): slow}), str(short_path / "http.sock"))
    assert (await say(str(short_path / "http.sock"), b"POST /slow HTTP/1.1\r\n\r\n")).endswith(b"done")
    server.close()


async def test_who_sends_no_request_is_left_after_a_while(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_TIMEOUT", 0.1)
    server = await asyncio.start_unix_server(Pages({}), str(short_path / "http.sock"))
    reader, writer = await asyncio.open_unix_connection(str(short_path / "http.sock"))
    writer.write(b"GET /never-")
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    server.close()


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome("applied"), HTTPStatus.OK),
        (Outcome("unchanged"), HTTPStatus.OK),
        (Outcome("refused", (Problem("resources", "is missing"),)), HTTPStatus.CONFLICT),
    ],
)
async def test_a_command_that_is_refused_conflicts(outcome: Outcome, status: HTTPStatus) -> None:
    async def command() -> Outcome:
        return outcome

    answer = await private_pages(dict, {"/reload": command}, {})["POST", "/reload"]()
    problems = [str(problem) for problem in outcome.problems]
    assert (answer.status, json.loads(answer.body)) == (status, {"result": outcome.result, "problems": problems})


async def test_a_large_answer_is_whole(short_path: Path) -> None:
    body = "x" * 5_000_000

    async def large() -> Response:
        return Response(HTTPStatus.OK, body)

    server = await asyncio.start_unix_server(Pages({("GET", "/large"): large}), str(short_path / "http.sock"))
    assert (await say(str(short_path / "http.sock"), b"GET /large HTTP/1.1\r\n\r\n")).endswith(body.encode())
    server.close()


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:9819", ("127.0.0.1", 9819)),
        ("[::1]:80", ("::1", 80)),
        (":9819", ("", 9819)),
        ("[::]:65535", ("::", 65535)),
    ],
)
def test_addresses(text: str, parsed: "tuple[str, int]") -> None:
    assert parse_http_address(text) == parsed
    assert http_address_problem(text) is None
    assert http_address_problem("") is None


@pytest.mark.parametrize("text", ["9819", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "localhost:9819", "::1:80"])
def test_bad_addresses(text: str) -> None:
    assert http_address_problem(text) is not None


def free_port() -> int:
    with sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_the_endpoint_moves_and_a_port_that_is_taken_is_no_end(caplog: pytest.LogCaptureFixture) -> None:
    async def answers(port: int) -> bool:
        try:
            _reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    async def until(wanted: dict[int, bool]) -> None:
        while {port: await answers(port) for port in wanted} != wanted:
            await asyncio.sleep(0.01)

    first, second, taken = free_port(), free_port(), free_port()
    other = await asyncio.start_server(Pages(ROUTES), "127.0.0.1", taken)
    endpoint = Endpoint(ROUTES)
    task = asyncio.create_task(endpoint.run())
    endpoint.move("127.0.0.1:%d" % first)
    await asyncio.wait_for(until({first: True}), 10)
    endpoint.move("127.0.0.1:%d" % taken)
    await asyncio.wait_for(until({first: False}), 10)
    while "cannot serve address=127.0.0.1:%d" % taken not in caplog.text:
        await asyncio.sleep(0.01)
    endpoint.move("127.0.0.1:%d" % second)
    await asyncio.wait_for(until({second: True}), 10)
    endpoint.move("")
    await asyncio.wait_for(until({second: False}), 10)
    assert not task.done()
    task.cancel()
    other.close()


async def test_the_own_socket_is_roots_and_goes_with_the_plugin(short_path: Path) -> None:
    path = short_path / "folder" / "status.sock"
    task = asyncio.create_task(Endpoint(ROUTES, str(path)).run())
    while not (path.exists() and path.stat().st_mode & 0o777 == 0o600):
        await asyncio.sleep(0.01)
    assert (await say(str(path), b"GET /page HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not path.exists()


async def test_the_own_socket_is_made_anew(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node_device_plugin.status_api.server._AGAIN", 0.02)
    path = short_path / "status.sock"
    path.mkdir()
    task = asyncio.create_task(Endpoint(ROUTES, str(path)).run())
    await asyncio.sleep(0.1)
    path.rmdir()
    for _ in range(2):
        while not path.is_socket():
            await asyncio.sleep(0.01)
        path.unlink()
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_own_socket_that_is_removed_at_once_is_made_anew(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node_device_plugin.status_api.server._AGAIN", 0.02)
    path, chmod, removed = short_path / "status.sock", os.chmod, []

    def remove_first(name: str, mode: int) -> None:
        if not removed:
            removed.append(name)
            os.unlink(name)
        chmod(name, mode)

    monkeypatch.setattr("node_device_plugin.status_api.server.os.chmod", remove_first)
    task = asyncio.create_task(Endpoint(ROUTES, str(path)).run())
    while not removed or not path.is_socket():
        assert not task.done()
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("page", "namespaces", "said"),
    [
        ("/page", (), "ok"),
        ("/gone", (), "Not Found"),
        # Another instance answers while this one waits for it.
        (
            "/page",
            ("unshare", "--user", "--map-root-user", "--pid", "--fork"),
            "another instance of the plugin serves ",
        ),
    ],
)
async def test_a_probe_believes_the_plugin_of_its_own_container(
    short_path: Path, page: str, namespaces: tuple[str, ...], said: str
) -> None:
    path = short_path / "status.sock"
    task = asyncio.create_task(Endpoint(ROUTES, str(path)).run())
    while not path.exists():
        await asyncio.sleep(0.01)
    command = (*namespaces, sys.executable, "-m", "node_device_plugin.status_api.probe", str(path), page)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=PACKAGE)
    out, _ = await process.communicate()
    assert out.decode().startswith(said)
    assert (process.returncode == 0) is (said == "ok")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    nobody = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=PACKAGE)
    assert b"No such file" in (await nobody.communicate())[0]
    assert nobody.returncode == 1
