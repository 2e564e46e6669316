"""Creates the keys of a throwaway control plane if they are missing: credentials.py DIRECTORY ADDRESS NODE...

Files in DIRECTORY: service-account.key, apiserver.key, apiserver.crt (self-signed, for ADDRESS and the API server's
names within a cluster) and tokens.csv, with a token for the administrator and for each NODE. Prints JSON with changed,
certificate, and tokens by user. Runs on the control plane's node and needs openssl there.
"""

from __future__ import annotations

import csv
import json
import os
import secrets
import subprocess
import sys

# The first address of --service-cluster-ip-range.
SERVICE = "10.96.0.1"
# In this format, the API server also accepts the private key where it needs the public key.
KEY = ("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out")


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, stderr=subprocess.PIPE)


def make(address: str, nodes: list[str]) -> None:
    """Create all files in the current directory. The tokens' file comes last, so it marks a complete set."""
    names = f"IP:{address},IP:127.0.0.1,IP:{SERVICE},DNS:kubernetes.default.svc"
    openssl(*KEY, "service-account.key")
    openssl(*KEY, "apiserver.key")
    openssl(
        *("req", "-x509", "-key", "apiserver.key", "-out", "apiserver.crt", "-days", "3650", "-subj", "/CN=lab"),
        *("-addext", f"subjectAltName={names}"),
        # Without this extension, Python does not accept a certificate as its own authority.
        *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
    )
    users = [("admin", "system:masters"), *((f"system:node:{node}", "system:nodes") for node in nodes)]
    with open("tokens.csv.new", "w", encoding="utf-8") as file:
        csv.writer(file).writerows([secrets.token_hex(16), user, user, group] for user, group in users)
    os.rename("tokens.csv.new", "tokens.csv")


def main() -> None:
    directory, address, *nodes = sys.argv[1:]
    os.umask(0o077)
    os.makedirs(directory, exist_ok=True)
    os.chdir(directory)
    changed = not os.path.exists("tokens.csv")
    if changed:
        make(address, nodes)
    with open("tokens.csv", encoding="utf-8") as file:
        tokens = {user: token for token, user, *_rest in csv.reader(file)}
    with open("apiserver.crt", encoding="utf-8") as file:
        print(json.dumps({"changed": changed, "certificate": file.read(), "tokens": tokens}))


main()
