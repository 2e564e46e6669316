"""Checks resource names by the kubelet's rule. The declaration has its own check, so that tests can compare both."""

from __future__ import annotations

import re

#: A DNS-1123 subdomain.
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
#: The name part of a qualified name.
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
#: Maximum length of a DNS-1123 subdomain.
_DOMAIN_LIMIT = 253
#: Prefix of the name of a resource's quota, which must also be a qualified name.
_QUOTA = "requests."


def is_extended_resource(name: str) -> bool:
    """Whether a name is valid by IsExtendedResourceName in pkg/apis/core/v1/helper of Kubernetes."""
    domain, slash, rest = name.partition("/")
    if not slash or "kubernetes.io/" in name or name.startswith(_QUOTA):
        return False
    quota = _QUOTA + domain
    return len(quota) <= _DOMAIN_LIMIT and bool(_DOMAIN.match(quota)) and bool(_NAME.match(rest))
