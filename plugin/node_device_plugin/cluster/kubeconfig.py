"""Reads the current context of a kubeconfig: the server, its certificate authority, and our credentials.

Format: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/; credential programs:
https://kubernetes.io/docs/reference/config-api/client-authentication.v1/.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime
import json
import os
import pathlib
import ssl
import subprocess
import tempfile
import time
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

# Keys of a user that we refuse, with the reason. If we ignored such a key, we would act as another user.
_UNKNOWN = {
    frozenset(
        {"auth-provider", "username", "password"}
    ): "which Kubernetes no longer supports: use a certificate, a token or exec",
    frozenset({"as-uid", "as-groups", "as-user-extra"}): "which is not supported here: use only as",
}
_NONE_OVER_HTTP = "a user without credentials (credentials are not sent over http: use an https:// server)"
# Keys of a user that name a file.
_FILES_OF_USER = ("client-certificate", "client-key", "tokenFile")
# Seconds that a credential program may take; it cannot prompt.
_TIMEOUT = 60


class KubeconfigError(Exception):
    """A kubeconfig that cannot be used; the message names the file, and the field if there is one."""


class Access(NamedTuple):
    """The access to a cluster. proxy: the proxy's URL; if empty, the environment's proxy applies.

    path: the kubeconfig's path. credentials: a description of our credentials for messages.
    """

    server: str
    tls: ssl.SSLContext
    headers: dict[str, str]
    proxy: str
    path: str = "a kubeconfig"
    credentials: str = "a user without credentials"


class _Tls(ssl.SSLContext):
    """A TLS context that can check the server's certificate for a name other than the server's address."""

    expected_name = ""

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        if self.expected_name:
            options["server_hostname"] = self.expected_name
        return super().wrap_socket(*arguments, **options)


def read(path: str, runs_programs: bool = True) -> Access:
    """The access to the cluster of the file's current context. Raises KubeconfigError.

    runs_programs: whether to run a program that the file names for credentials; otherwise such a file is refused.
    """
    path = os.path.expanduser(path)
    if os.pathsep in path and not os.path.exists(path):
        raise KubeconfigError(
            f"{path} is a list of files, but must be one file: merge them with kubectl config view --flatten"
        )
    # Messages need the absolute path, because the reader may be in another directory.
    return _Kubeconfig(os.path.abspath(path), runs_programs).access()


def files(path: str) -> list[str]:
    """The kubeconfig, and the files with credentials that its current context names. Raises KubeconfigError."""
    return [path, *_Kubeconfig(path, runs_programs=False).files()]


def _what_is_wrong(error: Exception) -> str:
    """PyYAML's message and position, without the quoted text, which may be a token."""
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    # Errors of other classes quote a tag or an alias.
    is_harmless = isinstance(error, (yaml.scanner.ScannerError, yaml.parser.ParserError)) or not mark
    what = str(getattr(error, "problem", None) or error) if is_harmless else "invalid content"
    return ", ".join(filter(None, [" ".join(what.split()), where]))


class _Kubeconfig:
    def __init__(self, path: str, runs_programs: bool) -> None:
        self._path, self._runs_programs = path, runs_programs
        try:
            self._data = yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise KubeconfigError(f"{path}: {error.strerror}") from error
        except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
            # Do not chain the error, because it contains the text of the file with its secrets.
            raise KubeconfigError(f"{path} is not valid YAML: {_what_is_wrong(error)}") from None

    def _current(self) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
        """The current context, and its cluster and user."""
        if not isinstance(self._data, dict) or not self._data.get("current-context"):
            raise self._error("current-context is not set: choose a cluster with kubectl config use-context")
        context = self._named("contexts", "context", self._data["current-context"])
        cluster = self._named("clusters", "cluster", context.get("cluster"))
        user = self._named("users", "user", context.get("user")) if context.get("user") else {}
        return context, cluster, user

    def files(self) -> list[str]:
        """The files with credentials that the current context names."""
        _context, cluster, user = self._current()
        named = [(cluster, "certificate-authority"), *((user, key) for key in _FILES_OF_USER)]
        return [
            os.path.normpath(self._place(of[key])) for of, key in named if of.get(key) and not of.get(f"{key}-data")
        ]

    def _place(self, name: Any) -> pathlib.Path:
        """The path of a file. Relative paths start at the kubeconfig's directory."""
        return pathlib.Path(self._path).parent / str(name)

    def access(self) -> Access:
        context, cluster, user = self._current()
        server = str(cluster.get("server") or "")
        if not server.startswith(("https://", "http://")):
            raise self._error(f"server of the cluster {context['cluster']} is not an http(s):// URL: {server!r}")
        for keys, why in _UNKNOWN.items():
            unknown = sorted(keys & {key for key, value in user.items() if value not in (None, "", [])})
            if unknown:
                raise self._error(f"the user {context['user']} has {unknown[0]}, {why}")
        is_secure = server.startswith("https://")
        if not is_secure:
            # Send no credentials over plain HTTP, as in client-go; `kubectl proxy` needs none.
            user = {}
        headers = {}
        if user.get("as"):
            headers["Impersonate-User"] = self._header(user["as"], f"as of the user {context['user']}")
        if user.get("exec"):
            user = {**user, **self._of_program(user["exec"], cluster)}
        # As in kubectl, the file overrides the inline token, which may be older.
        token = self._content(user, "tokenFile").decode(errors="replace").strip() or user.get("token")
        if token:
            # Messages never show the token.
            token = self._header(token, f"the token of the user {context['user']}")
            headers["Authorization"] = f"Bearer {token}"
        return Access(
            server.rstrip("/"),
            self._tls(cluster, user),
            headers,
            str(cluster.get("proxy-url") or ""),
            self._path,
            self._shown(context.get("user"), user, token or "") if is_secure else _NONE_OVER_HTTP,
        )

    def _shown(self, name: Any, user: Mapping[str, Any], token: str) -> str:
        """A description of the credentials for messages. user: includes the credentials from the user's program."""
        whose = f"of the user {name}"
        if user.get("exec"):
            whose = f"that {user['exec']['command']} gives for the user {name}"
        shown = [f"the client certificate {whose}"] if self._content(user, "client-certificate") else []
        if token:
            shown.append(f"the token {whose}{_expired(token)}")
        return " or ".join(shown) or "a user without credentials"

    def _error(self, text: str) -> KubeconfigError:
        return KubeconfigError(f"{self._path}: {text}")

    def _header(self, value: Any, what: str) -> str:
        """The value, after a check that it fits into one line of a request. Raises KubeconfigError."""
        text = value if isinstance(value, str) else ""
        if not text or not text.isascii() or not text.isprintable():
            raise self._error(f"{what} must be one line of printable ASCII characters")
        return text

    def _named(self, plural: str, kind: str, name: Any) -> Mapping[str, Any]:
        items = self._data.get(plural) or ()
        for item in items if isinstance(items, (list, tuple)) else ():
            found = item.get(kind) if name is not None and isinstance(item, dict) and item.get("name") == name else None
            if isinstance(found, dict):
                return found
        raise self._error(f"{plural} has no {kind} {name!r}")

    def _content(self, item: Mapping[str, Any], key: str) -> bytes:
        """The content of ``key``: inline, or else from a file."""
        data = item.get(f"{key}-data")
        if data:
            try:
                return base64.b64decode(data, validate=True)
            except (binascii.Error, TypeError, ValueError) as error:
                raise self._error(f"{key}-data is not base64") from error
        if not item.get(key):
            return b""
        path = self._place(item[key])
        try:
            return path.read_bytes()
        except OSError as error:
            raise self._error(f"{key} is {path}: {error.strerror}") from error

    def _tls(self, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
        tls = _Tls(ssl.PROTOCOL_TLS_CLIENT)
        tls.expected_name = str(cluster.get("tls-server-name") or "")
        authority = self._content(cluster, "certificate-authority")
        try:
            if self._is_insecure(cluster):
                tls.check_hostname = False
                tls.verify_mode = ssl.CERT_NONE
            elif authority:
                # Trust only this authority, and none of the system's authorities.
                tls.load_verify_locations(cadata=authority.decode())
                # Accept an intermediate authority, as Go does (the flag has no name before Python 3.10).
                tls.verify_flags |= getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0x80000)
            else:
                tls.load_default_certs()
            certificate = self._content(user, "client-certificate")
            if certificate:
                _load_certificate(tls, certificate + b"\n" + self._content(user, "client-key"))
        except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
            raise self._error(f"cannot use its certificates: {error}") from error
        return tls

    def _is_insecure(self, cluster: Mapping[str, Any]) -> bool:
        insecure = cluster.get("insecure-skip-tls-verify") or False
        if not isinstance(insecure, bool):
            # The text "false" would count as true.
            raise self._error(f"insecure-skip-tls-verify must be true or false, not {insecure!r}")
        if insecure and (cluster.get("certificate-authority") or cluster.get("certificate-authority-data")):
            raise self._error("insecure-skip-tls-verify and certificate-authority are both set: remove one of them")
        return insecure

    def _of_program(self, program: Any, cluster: Mapping[str, Any]) -> dict[str, Any]:
        """The credentials that a program prints, under the keys of a user. Raises KubeconfigError."""
        if not self._runs_programs:
            raise self._error(
                "exec is set, but the device plugin runs no program for credentials, because its sandbox lacks the "
                "program's files and rights: use a kubeconfig with a client certificate or a token"
            )
        if not isinstance(program, dict) or not program.get("command"):
            raise self._error("exec must be a mapping with the key 'command'")
        if program.get("interactiveMode") == "Always":
            raise self._error(
                "exec needs a terminal (interactiveMode: Always), but a play has none: use credentials "
                "that need no terminal"
            )
        arguments = program.get("args") or []
        if not isinstance(arguments, list):
            raise self._error("args of exec must be a list")
        command = [str(program["command"]), *map(str, arguments)]
        if "/" in command[0]:
            command[0] = str(pathlib.Path(self._path).parent / command[0])
        info: dict[str, Any] = {
            "apiVersion": program.get("apiVersion") or "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "spec": {"interactive": False},
        }
        if program.get("provideClusterInfo"):
            known = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
            info["spec"]["cluster"] = {key: cluster[key] for key in known if key in cluster}
        try:
            environment = {str(item["name"]): str(item["value"]) for item in program.get("env") or ()}
        except (TypeError, KeyError) as error:
            raise self._error("env of exec must be a list of mappings of name and value") from error
        try:
            said = subprocess.run(
                command,
                env={**os.environ, **environment, "KUBERNETES_EXEC_INFO": json.dumps(info)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT,
                check=True,
            )
            status = json.loads(said.stdout)["status"]
            result = {"token": status["token"]} if status.get("token") else {}
            if status.get("clientCertificateData"):
                for key, name in (("client-certificate", "clientCertificateData"), ("client-key", "clientKeyData")):
                    result[f"{key}-data"] = base64.b64encode(status[name].encode()).decode()
        except subprocess.CalledProcessError as error:
            lines = error.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {error.returncode}"]
            raise self._error(f"the credential program {command[0]} failed: {lines[-1]}") from error
        except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError, AttributeError) as error:
            hint = program.get("installHint") if isinstance(error, FileNotFoundError) else None
            why = f"{error}: {' '.join(str(hint).split())}" if hint else str(error)
            raise self._error(f"the credential program {command[0]} gave no credentials: {why}") from error
        if not result:
            raise self._error(f"the credential program {command[0]} gave neither a token nor a certificate")
        return result


def _expired(token: str) -> str:
    """The time at which a token expired, for messages; empty if the token is valid or has no readable expiry.

    The comparison uses this machine's clock. An API server's refusal does not mention the expiry. The tokens of OpenID
    Connect and of service accounts (JWT, RFC 7519) contain the expiry.
    """
    try:
        content = token.split(".")[1]
        end = json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))["exp"]
        if isinstance(end, bool) or not 0 < end < time.time():
            return ""
        return datetime.datetime.fromtimestamp(end, datetime.timezone.utc).strftime(
            ", which expired on %Y-%m-%d at %H:%M UTC"
        )
    except (IndexError, RecursionError, ValueError, KeyError, TypeError):
        return ""


def _load_certificate(tls: ssl.SSLContext, content: bytes) -> None:
    """Load a client's certificate and key from a temporary file, on Linux in memory. Python needs a file for both."""
    with _in_memory() if hasattr(os, "memfd_create") else tempfile.NamedTemporaryFile(prefix="node-devices-") as file:
        file.write(content)
        file.flush()
        tls.load_cert_chain(file.name, password=_no_password)


@contextlib.contextmanager
def _in_memory() -> Iterator[Any]:
    """A file that exists only in memory."""
    with os.fdopen(os.memfd_create("node-devices"), "wb") as file:
        yield types.SimpleNamespace(write=file.write, flush=file.flush, name=f"/proc/self/fd/{file.fileno()}")


def _no_password() -> str:
    """Fail, because Python would otherwise prompt on the terminal."""
    raise ValueError("the client key is encrypted: use a key without a passphrase")
