"""The access to the cluster that a pod has, by its service account and the variables that the kubelet sets."""

from __future__ import annotations

import pathlib
import ssl
from collections.abc import Mapping

from .kubeconfig import Access, KubeconfigError

#: The directory of a pod with its token and the API server's certificate authority.
DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"


def access(environment: Mapping[str, str], directory: str = DIRECTORY) -> Access:
    """Read the token and the authority, which the kubelet renews. Raises KubeconfigError."""
    try:
        host, port = (environment["KUBERNETES_SERVICE_" + part] for part in ("HOST", "PORT"))
        token = pathlib.Path(directory, "token").read_text().strip()
        # Not create_default_context, whose checks refuse the authorities of some clusters from Python 3.13 on.
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.load_verify_locations(cafile=str(pathlib.Path(directory, "ca.crt")))
    except KeyError as error:
        raise KubeconfigError(f"the variable {error.args[0]} is not set: the kubelet sets it in every pod") from error
    except (OSError, ValueError) as error:
        raise KubeconfigError(f"cannot use the service account in {directory}: {error}") from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Access(server, tls, {"Authorization": f"Bearer {token}"}, "", directory, "the pod's service account")
