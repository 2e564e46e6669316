"""Which node a machine is, by real certificates in a kubelet's kubeconfig, and by the ids that a kubelet reports."""

from __future__ import annotations

import base64
import datetime
import json

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import node_identity as module
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_identity import node_identity
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = datetime.datetime.now(datetime.UTC)
KEY = ec.generate_private_key(ec.SECP256R1())
PRIVATE = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()


def certificate(*subject, issuer="system:node:issuer"):
    """A certificate as PEM. subject: pairs of an object id and a text."""
    names = [
        x509.Name([x509.NameAttribute(kind, text) for kind, text in each])
        for each in (subject, [(NameOID.COMMON_NAME, issuer)])
    ]
    builder = x509.CertificateBuilder().subject_name(names[0]).issuer_name(names[1]).public_key(KEY.public_key())
    builder = builder.serial_number(1 << 140).not_valid_before(NOW).not_valid_after(NOW + datetime.timedelta(days=1))
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def of(name):
    return certificate((NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, name))


KUBELET = of("system:node:worker1.example")
BROKEN = "-----BEGIN CERTIFICATE-----" + "MIID" * 9 + "-----END CERTIFICATE-----"
LONG = of("system:node:" + "w" * 52)


def data(pem):
    return base64.b64encode(pem.encode()).decode()


@pytest.fixture
def name(tmp_path):
    """name(text of the kubelet's kubeconfig) gives the node's name."""

    def read(text):
        path = tmp_path / "kubelet.conf"
        if text is not None:
            path.write_text(text)
        return node_identity({"kubeconfig": str(path)}, str(tmp_path))["name"]

    return read


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "users:\n- name: default-auth\n  user:\n    client-certificate: {path}\n    client-key: {path}\n",
        "users:\n- {{name: x, user: {{client-certificate: '{path}', client-key: {path}}}}}\n",
        'users:\n- user: {{client-key: {path}, "client-certificate": "{path}"}}\n',
    ],
)
def test_the_certificate_s_file(tmp_path, name, text, absolute):
    (tmp_path / "pki").mkdir()
    # kubeadm's file has the key, too; the first certificate is the kubelet's, and the others its authorities'.
    (tmp_path / "pki/current.pem").write_text(PRIVATE + KUBELET + of("system:node:other"))
    assert name(text.format(path=tmp_path / "pki/current.pem" if absolute else "pki/current.pem")) == "worker1.example"


@pytest.mark.parametrize("pem", [KUBELET, LONG])
def test_a_certificate_in_the_kubeconfig(name, pem):
    user = {"client-certificate-data": data(pem), "client-key-data": data(PRIVATE)}
    expected = "worker1.example" if pem == KUBELET else "w" * 52
    assert name(json.dumps({"users": [{"name": "x", "user": user}]})) == expected
    assert name(f"users:\n- user:\n    client-certificate-data: {data(pem)}\n") == expected


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "users:\n- user: {token: x}\n",
        "users:\n- user: {exec: {command: aws-iam-authenticator}}\n",
        "users:\n- user: {client-certificate: missing.pem}\n",
        "users:\n- user: {client-certificate: /dev/zero}\n",
        "users:\n- user: {client-certificate-data: '%%%'}\n",
        # Another user of the cluster, and two users of whom only one is the kubelet's.
        f"users:\n- user: {{client-certificate-data: {data(of('kubernetes-admin'))}}}\n",
        f"- client-certificate-data: {data(KUBELET)}\n- client-certificate-data: {data(of('system:node:other'))}\n",
        f"- client-certificate-data: {data(KUBELET)}\n- client-certificate-data: {data(of('admin'))}\n",
        f"- client-certificate-data: {data(certificate((NameOID.ORGANIZATION_NAME, 'system:nodes')))}\n",
        f"- client-certificate-data: {data(KUBELET[:300] + KUBELET[-40:])}\n",
        f"- client-certificate-data: {data(BROKEN)}\n",
    ],
)
def test_credentials_that_name_no_node(name, text):
    assert name(text) is None


def test_without_a_kubelet_nothing_is_named(tmp_path):
    assert node_identity(None, str(tmp_path)) == {"name": None, "machine_id": None, "system_uuid": None}
    assert node_identity({"kubeconfig": None}, str(tmp_path))["name"] is None


@pytest.mark.parametrize(
    ("files", "machine_id", "system_uuid"),
    [
        ({"etc/machine-id": "a1\n", "sys/class/dmi/id/product_uuid": "B2\n"}, "a1", "B2"),
        ({"var/lib/dbus/machine-id": "a1\n", "proc/device-tree/vm,uuid": "b2\0"}, "a1", "b2"),
        ({"etc/machine-id": "", "var/lib/dbus/machine-id": "a1"}, "a1", None),
        # s390x, and machines without firmware.
        ({"etc/machine-id": "a1\n"}, "a1", "a1"),
    ],
)
def test_the_ids_are_read_where_the_kubelet_reads_them(tmp_path, files, machine_id, system_uuid):
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert node_identity(None, str(tmp_path)) == {"name": None, "machine_id": machine_id, "system_uuid": system_uuid}


def test_an_id_that_this_user_may_not_read_is_unknown(tmp_path, monkeypatch):
    """A fallback would be the id of something else."""
    for path in ("etc/machine-id", "sys/class/dmi/id/product_uuid"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("a1")
    secret, read = str(tmp_path / "sys/class/dmi/id/product_uuid"), module.text_of
    monkeypatch.setattr(module, "text_of", lambda path: None if path == secret else read(path))
    assert node_identity(None, str(tmp_path))["system_uuid"] is None
