"""What a kubeconfig's user proves itself with, for messages: an API server that refuses it says no more than that.

A certificate (RFC 5280) and a token of OpenID Connect or of a service account (JWT, RFC 7519) say when they end.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
import ssl
from typing import Optional

# Validity, which has no other form in DER: notBefore and notAfter, as UTCTime or GeneralizedTime.
_VALIDITY = re.compile(r"\x30[\x1e\x20\x22](?:\x17\x0d\d{12}Z|\x18\x0f\d{14}Z)(?:\x17\x0d(\d{12})Z|\x18\x0f(\d{14})Z)")
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
# Seconds: the last year that Python's datetime knows.
_FAR = 253_000_000_000


def end_of_certificate(pem: bytes) -> Optional[datetime.datetime]:
    """When the first certificate of a PEM file ends; None where it does not say so in a known form."""
    found = _PEM.search(pem.decode("ascii", errors="replace"))
    try:
        # A character for each byte.
        der = ssl.PEM_cert_to_DER_cert(found.group()).decode("latin-1") if found else ""
        validity = _VALIDITY.search(der)
        if validity is None:
            return None
        short, long = validity.groups()
        # Two digits of a year are of 1950 to 2049 (RFC 5280, 4.1.2.5.1); strptime would say 1969 to 2068.
        text = long or ("19" if short >= "50" else "20") + short
        return datetime.datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        return None


def end_of_token(token: str) -> Optional[datetime.datetime]:
    """When a token ends; None where it does not say so."""
    try:
        content = token.split(".")[1]
        end = json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))["exp"]
        if isinstance(end, bool) or not 0 < end < _FAR:
            return None
        return datetime.datetime.fromtimestamp(end, datetime.timezone.utc)
    except (IndexError, RecursionError, ValueError, KeyError, TypeError):
        return None


def described(what: str, end: Optional[datetime.datetime]) -> str:
    """``what``, and that it has ended where it has, by this machine's clock."""
    if end is None or end > datetime.datetime.now(datetime.timezone.utc):
        return what
    return "%s, which expired on %s UTC" % (what, end.strftime("%Y-%m-%d at %H:%M"))
