"""Which resource names a kubelet takes: its own rule, apart from the declaration's, so that each checks the other."""

from __future__ import annotations

import re

#: A DNS-1123 subdomain.
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
#: The name part of a qualified name.
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
#: Characters of a DNS-1123 subdomain.
_DOMAIN_LIMIT = 253
#: What the name of a quota for the resource begins with; it has to be a qualified name as well.
_QUOTA = "requests."


def is_extended_resource(name: str) -> bool:
    """As IsExtendedResourceName of pkg/apis/core/v1/helper of Kubernetes."""
    domain, slash, rest = name.partition("/")
    if not slash or "kubernetes.io/" in name or name.startswith(_QUOTA):
        return False
    quota = _QUOTA + domain
    return len(quota) <= _DOMAIN_LIMIT and bool(_DOMAIN.match(quota)) and bool(_NAME.match(rest))
