"""A certificate authority for one test run, and what it signs."""

from __future__ import annotations

import datetime
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates; each is a file with certificate and key, as PEM."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        constraint = x509.BasicConstraints(ca=True, path_length=0)
        certificate = self._builder(self._name, self._key).add_extension(constraint, critical=True)
        self.path = directory / "ca.crt"
        self.path.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))

    def sign(self, user: str, dns_name: str = "localhost", end: datetime.datetime | None = None) -> pathlib.Path:
        """For a server at ``dns_name``, or for a client, who is ``user``. end: in a day where nobody says."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
        names = x509.SubjectAlternativeName([x509.DNSName(dns_name)])
        certificate = (
            self._builder(subject, key, end).add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        )
        path = self._directory / f"{user}.pem"
        path.write_bytes(
            _pem(certificate)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return path

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, end: datetime.datetime | None = None
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        end = end or now + _DAY
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder(
                self._name, subject, key.public_key(), x509.random_serial_number(), min(now, end) - _DAY, end
            )
            .add_extension(identifier, critical=False)
            .add_extension(authority, critical=False)
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
