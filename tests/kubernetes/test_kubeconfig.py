"""Every way in which a kubeconfig file says who we are and whom we trust."""

from __future__ import annotations

import base64
import datetime
import json
import pathlib

import certificates
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from test_api import answering, kubeconfig_of

from node_device_plugin.cluster import kubeconfig
from node_device_plugin.cluster.api import Api, ApiError


@pytest.fixture
def node(cluster):
    return cluster.node({"cpu": "2"})


def name_of(path, node):
    return Api(kubeconfig.read(path)).node(node.name)["metadata"]["name"]


def refusal(path, node):
    with pytest.raises(ApiError) as caught:
        Api(kubeconfig.read(path)).node(node.name)
    return str(caught.value)


def problem(path):
    with pytest.raises(kubeconfig.KubeconfigError) as caught:
        kubeconfig.read(path)
    return str(caught.value).removeprefix(f"{path}: ")


def program(cluster, text):
    path = cluster.directory / "credentials"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return {"command": "./credentials", "args": ["get"], "env": [{"name": "EXTRA", "value": "x"}]}


def test_a_token(cluster, node):
    assert name_of(cluster.kubeconfig({"token": "admin-token"}), node) == node.name


def test_a_token_in_a_file_beside_it(cluster, node):
    (cluster.directory / "token").write_text("admin-token\n")
    assert name_of(cluster.kubeconfig({"tokenFile": "token"}), node) == node.name


def test_a_token_in_a_file_goes_before_the_one_beside_it(cluster, node):
    (cluster.directory / "token").write_text("admin-token\n")
    assert name_of(cluster.kubeconfig({"token": "older", "tokenFile": "token"}), node) == node.name


@pytest.mark.parametrize("inline", [False, True])
def test_a_certificate(cluster, node, inline):
    path = cluster.authority.sign("carl")
    user = {"client-certificate": str(path), "client-key": str(path)}
    if inline:
        data = base64.b64encode(path.read_bytes()).decode()
        user = {"client-certificate-data": data, "client-key-data": data}
    assert 'forbidden: User "carl" cannot get' in refusal(cluster.kubeconfig(user), node)


def of(certificate):
    return {"client-certificate": str(certificate), "client-key": str(certificate)}


def does_not_accept(path, node):
    """The message about a user whom the server does not accept, from ``accept`` on; which server, and which file."""
    said = refusal(path, node)
    head, tail = "does not accept ", f": give its user a valid certificate, token or exec in {path}"
    assert said.endswith(tail), said
    return said.partition(head)[2].removesuffix(tail)


def test_a_certificate_that_has_expired(cluster, node):
    end = datetime.datetime(2020, 3, 1, 12, 30, tzinfo=datetime.UTC)
    path = cluster.kubeconfig(of(cluster.authority.sign("late", end=end)))
    said = does_not_accept(path, node)
    # An API server says no more than the second, one that checks it while the connection is made the first.
    why = "certificate expired" if "certificate" in said.partition(": ")[2] else "Unauthorized"
    assert said == f"the client certificate of the user test: {why}"


def token_with(**content):
    """A JSON web token; nobody has signed it."""
    parts = ({"alg": "RS256"}, content, {})
    return ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts)


def test_a_token_that_has_expired(cluster, node):
    path = cluster.kubeconfig({"token": token_with(exp=1577836800)})
    expected = "the token of the user test, which expired on 2020-01-01 at 00:00 UTC: Unauthorized"
    assert does_not_accept(path, node) == expected


@pytest.mark.parametrize(
    "token",
    [
        token_with(),
        token_with(exp="soon"),
        token_with(exp=True),
        token_with(exp=-1),
        token_with(exp=1e30),
        token_with(exp=4102444800),
        "a.b.c",
        "a.=.c",
        "opaque",
    ],
)
def test_a_token_of_which_nobody_knows_that_it_has_expired(cluster, node, token):
    assert does_not_accept(cluster.kubeconfig({"token": token}), node) == "the token of the user test: Unauthorized"


def test_a_certificate_that_another_authority_has_signed(cluster, node, tmp_path):
    path = cluster.kubeconfig(of(certificates.Authority(tmp_path).sign("carl")))
    shown, _, why = does_not_accept(path, node).partition(": ")
    assert shown == "the client certificate of the user test"
    assert why in ("unknown ca", "Unauthorized")


def test_a_program_whose_token_the_server_does_not_know(cluster, node):
    answer = {"status": {"token": "wrong"}}
    path = cluster.kubeconfig({"exec": program(cluster, f"echo '{json.dumps(answer)}'")})
    assert does_not_accept(path, node) == "the token that ./credentials gives for the user test: Unauthorized"


def test_on_behalf_of_another(cluster, node):
    user = {"token": "admin-token", "as": "anna"}
    assert 'forbidden: User "anna" cannot get' in refusal(cluster.kubeconfig(user), node)


def test_a_program_that_gives_a_token(cluster, node):
    answer = {"status": {"token": "admin-token"}}
    told = '[ "$1 $EXTRA" = "get x" ] && case $KUBERNETES_EXEC_INFO in *ExecCredential*)'
    text = f"{told} echo '{json.dumps(answer)}';; esac"
    assert name_of(cluster.kubeconfig({"exec": program(cluster, text)}), node) == node.name


def test_a_program_that_gives_a_certificate(cluster, node):
    pem = cluster.authority.sign("carl").read_text()
    answer = {"status": {"clientCertificateData": pem, "clientKeyData": pem}}
    (cluster.directory / "answer").write_text(json.dumps(answer))
    user = {"exec": program(cluster, f"cat {cluster.directory}/answer")}
    assert 'User "carl"' in refusal(cluster.kubeconfig(user), node)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo 'please log in' >&2; exit 3", "failed: please log in"),
        ("exit 3", "failed: exit code 3"),
        ("echo nothing", "gave no credentials: "),
        ("echo '{\"status\": null}'", "gave no credentials: "),
        ("echo '{\"status\": {}}'", "gave neither a token nor a certificate"),
        ('echo \'{"status": {"clientCertificateData": "x"}}\'', "gave no credentials: 'clientKeyData'"),
    ],
)
def test_a_program_that_fails(cluster, text, message):
    assert message in problem(cluster.kubeconfig({"exec": program(cluster, text)}))


def test_a_program_that_is_not_installed(cluster):
    missing = {"command": "/none/aws", "installHint": "Install it:\n  apt-get install awscli\n"}
    says = "the credential program /none/aws gave no credentials: [Errno 2] No such file or directory: '/none/aws'"
    assert problem(cluster.kubeconfig({"exec": missing})) == f"{says}: Install it: apt-get install awscli"
    del missing["installHint"]
    assert problem(cluster.kubeconfig({"exec": missing})) == says


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (["get"], "exec must be a mapping with the key 'command'"),
        ({"args": []}, "exec must be a mapping with the key 'command'"),
        ({"command": "/bin/true", "args": "get token"}, "args of exec must be a list"),
        ({"command": "/bin/true", "args": 7}, "args of exec must be a list"),
        (
            {"command": "/bin/true", "interactiveMode": "Always"},
            "exec needs a terminal (interactiveMode: Always), but a play has none: use credentials that "
            "need no terminal",
        ),
        ({"command": "/bin/true", "env": ["A=b"]}, "env of exec must be a list of mappings of name and value"),
    ],
)
def test_a_program_that_is_none(cluster, program, message):
    assert problem(cluster.kubeconfig({"exec": program})) == message


@pytest.mark.parametrize(
    "user", [{"token": "secret\ntoken"}, {"token": "secret\n"}, {"token": 17}, {"token": "secrét"}]
)
def test_a_token_that_no_request_can_hold_is_not_shown(cluster, user):
    said = problem(cluster.kubeconfig(user))
    assert said == "the token of the user test must be one line of printable ASCII characters"


def test_a_key_that_is_encrypted_asks_nobody(cluster, tmp_path):
    path = cluster.authority.sign("carl")
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"pass")
    )
    (tmp_path / "key").write_bytes(encrypted)
    certificate = path.read_bytes().partition(b"-----BEGIN PRIVATE")[0]
    (tmp_path / "certificate").write_bytes(certificate)
    user = {"client-certificate": str(tmp_path / "certificate"), "client-key": str(tmp_path / "key")}
    assert (
        problem(cluster.kubeconfig(user))
        == "cannot use its certificates: the client key is encrypted: use a key without a passphrase"
    )


def test_an_authority_that_another_has_signed(cluster, node):
    # The server's own certificate, which is no authority: as kubectl does, it is taken because the file says so.
    signed = next(cluster.directory.glob("api-server.pem"))
    assert name_of(cluster.kubeconfig(**{"certificate-authority": str(signed)}), node) == node.name


def test_an_authority_in_the_file(cluster, node):
    data = base64.b64encode(cluster.authority.path.read_bytes()).decode()
    path = cluster.kubeconfig(**{"certificate-authority": None, "certificate-authority-data": data})
    assert name_of(path, node) == node.name


def test_only_that_authority_is_trusted(cluster, node, tmp_path):
    other = certificates.Authority(tmp_path).path
    assert ": the server's certificate is not trusted: " in refusal(
        cluster.kubeconfig(**{"certificate-authority": str(other)}), node
    )
    assert ": the server's certificate is not trusted: " in refusal(
        cluster.kubeconfig(**{"certificate-authority": None}), node
    )
    trusting = cluster.kubeconfig(**{"certificate-authority": None, "insecure-skip-tls-verify": True})
    assert name_of(trusting, node) == node.name


def test_a_server_that_is_reached_by_another_name(cluster, node):
    server = cluster.server.replace("localhost", "127.0.0.1")
    assert ": the server's certificate is not trusted: IP address mismatch" in refusal(
        cluster.kubeconfig(server=server), node
    )
    assert name_of(cluster.kubeconfig(server=server, **{"tls-server-name": "localhost"}), node) == node.name


def test_insecure_is_no_text_and_stands_alone(cluster):
    alone = {"certificate-authority": None, "insecure-skip-tls-verify": "false"}
    assert problem(cluster.kubeconfig(**alone)) == "insecure-skip-tls-verify must be true or false, not 'false'"
    both = cluster.kubeconfig(**{"insecure-skip-tls-verify": True})
    assert problem(both) == "insecure-skip-tls-verify and certificate-authority are both set: remove one of them"


@pytest.mark.parametrize("address", ["https://localhost:port", "https://[::1", "https://local host:6443"])
def test_a_server_that_is_no_address(cluster, node, address):
    assert refusal(cluster.kubeconfig(server=address), node).startswith(
        f"the kubeconfig's server {address!r} is not a valid URL: "
    )


def test_a_proxy_is_asked(cluster, node):
    path = cluster.kubeconfig(**{"proxy-url": "http://anna:secret@127.0.0.1:9"})
    assert refusal(path, node) == (
        f"the API server {cluster.server} does not answer through the proxy 127.0.0.1:9: Connection refused: retry "
        f"when the API server answers"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"current-context": ""}, "current-context is not set: choose a cluster with kubectl config use-context"),
        ({"contexts": []}, "contexts has no context 'test'"),
        ({"clusters": None}, "clusters has no cluster 'test'"),
        ({"contexts": 1}, "contexts has no context 'test'"),
        ({"users": []}, "users has no user 'test'"),
        (
            {"users": [{"name": "test", "user": {"token": "a", "as": "b", "as-uid": "c", "as-groups": ["d"]}}]},
            "the user test has as-groups, which is not supported here: use only as",
        ),
        ({"clusters": [{"name": "test", "cluster": {}}]}, "server of the cluster test is not an http(s):// URL: ''"),
        (
            {"users": [{"name": "test", "user": {"auth-provider": {}}}]},
            "the user test has auth-provider, which Kubernetes no longer supports: use a certificate, a token or exec",
        ),
        (
            {"users": [{"name": "test", "user": {"client-certificate-data": "=?"}}]},
            "client-certificate-data is not base64",
        ),
        (
            {"users": [{"name": "test", "user": {"tokenFile": "/none/token"}}]},
            "tokenFile is /none/token: No such file or directory",
        ),
    ],
)
def test_what_is_wrong_is_named(cluster, change, message):
    path = pathlib.Path(cluster.kubeconfig())
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **change}))
    assert problem(str(path)) == message


def test_several_files_in_one_variable(tmp_path):
    both = f"{tmp_path}/a:{tmp_path}/b"
    assert problem(both).startswith(f"{both} is a list of files, but must be one file: ")
    # One that is called so is one.
    (tmp_path / "a:b").write_text("{}")
    assert problem(f"{tmp_path}/a:b").startswith("current-context is not set")


def test_a_file_that_is_not_there_or_no_yaml(tmp_path, monkeypatch):
    assert problem(str(tmp_path / "none")) == "No such file or directory"
    (tmp_path / "text").write_text("a: [")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kubeconfig.KubeconfigError, match=f"^{tmp_path}/none: No such file or directory$"):
        kubeconfig.read("none")
    assert problem(str(tmp_path / "text")).startswith(f"{tmp_path}/text is not valid YAML: ")


@pytest.mark.parametrize("of_user", ["token", "tokenFile", "exec", "as"])
def test_over_plain_http_nobody_gets_credentials(tmp_path, of_user):
    """As with client-go: a program that gives credentials is not even started."""
    (tmp_path / "token").write_text("CANARY")
    (tmp_path / "program").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "program").chmod(0o755)
    value = {"token": "CANARY", "tokenFile": "token", "exec": {"command": "./program"}, "as": "CANARY"}[of_user]
    asked = []

    def answer(request):
        asked.append(str(request.headers))
        request.send_response(401)
        request.end_headers()

    with answering(answer) as server:
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig_of(server, {of_user: value})))
        with pytest.raises(ApiError, match=r"a user without credentials \(credentials are not sent over http"):
            Api(kubeconfig.read(str(path))).node("worker1")
    assert len(asked) == 1
    assert "CANARY" not in asked[0]
    assert not (tmp_path / "started").exists()


def test_a_clients_key_is_on_no_disk(tmp_path, monkeypatch):
    authority = certificates.Authority(tmp_path)
    pair = authority.sign("worker1").read_bytes()
    opened = []
    monkeypatch.setattr(kubeconfig.tempfile, "NamedTemporaryFile", lambda *_given, **_options: opened.append("disk"))
    encoded = base64.b64encode(pair).decode()
    path = tmp_path / "kubeconfig"
    user = {"client-certificate-data": encoded, "client-key-data": encoded}
    path.write_text(yaml.safe_dump(kubeconfig_of("https://localhost:1", user)))
    assert kubeconfig.read(str(path)).tls is not None
    assert opened == []
