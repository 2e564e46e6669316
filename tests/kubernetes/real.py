"""A real API server over a real etcd, for one test run."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

# Of a namespace that says nothing itself: as in clusters that are hardened.
_ADMISSION = """
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
  - name: PodSecurity
    configuration:
      apiVersion: pod-security.admission.config.k8s.io/v1
      kind: PodSecurityConfiguration
      defaults: {enforce: baseline}
"""
# Seconds until it must serve.
_TIMEOUT = 60
#: CI keeps it if a test failed.
EVIDENCE = pathlib.Path(__file__).parents[2] / ".evidence/kubernetes"


def programs() -> tuple[str, str] | None:
    """kube-apiserver and etcd of KUBERNETES_BIN_DIR; None where one is missing."""
    directory = pathlib.Path(os.environ.get("KUBERNETES_BIN_DIR") or "/nonexistent")
    api_server = shutil.which("kube-apiserver", path=str(directory))
    etcd = shutil.which("etcd", path=str(directory))
    return (api_server, etcd) if api_server and etcd else None


@contextlib.contextmanager
def serving(directory: pathlib.Path, tls: Any, tokens: dict[str, str], options: Sequence[str] = ()) -> Iterator[int]:
    """Runs both, in ``directory``, with a certificate file that is given; gives the port on localhost. Logs: EVIDENCE.

    tls: the certificate authority of the test. options: more of the API server's.
    """
    found = programs()
    assert found
    EVIDENCE.mkdir(parents=True, exist_ok=True)
    api_server, etcd = found
    client, peer, port = _free_ports(3)
    key = directory / "service-account.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    groups = {"admin": "system:masters", "reader": "readers", "nobody": "nobodies"}
    (directory / "tokens.csv").write_text(
        "".join(f"{token},{user},{user},{groups.get(user, 'system:nodes')}\n" for token, user in tokens.items())
    )
    (directory / "admission.yaml").write_text(_ADMISSION)
    certificate = tls.sign("api-server")
    commands = [
        [
            etcd,
            f"--data-dir={directory}/etcd",
            f"--listen-client-urls=http://127.0.0.1:{client}",
            f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        ],
        [
            api_server,
            f"--etcd-servers=http://127.0.0.1:{client}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={certificate}",
            f"--client-ca-file={tls.path}",
            f"--token-auth-file={directory}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--admission-control-config-file={directory}/admission.yaml",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            *options,
        ],
    ]
    with contextlib.ExitStack() as stack:
        for command in commands:
            log = stack.enter_context((EVIDENCE / f"{pathlib.Path(command[0]).name}.log").open("wb"))
            process = subprocess.Popen(command, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        yield port


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def wait_until_ready(opener: urllib.request.OpenerDirector, server: str, token: str) -> None:
    """Raises AssertionError where it is not within a minute."""
    request = urllib.request.Request(f"{server}/readyz", headers={"Authorization": f"Bearer {token}"})
    deadline = time.monotonic() + _TIMEOUT
    while True:
        with contextlib.suppress(OSError):
            opener.open(request, timeout=5).close()
            return
        assert time.monotonic() < deadline, f"the API server is not ready; {EVIDENCE} has its log"
        time.sleep(0.1)
