"""The stand-in as the kubelet of a lab node: ``python -m kubelet_stand_in.kubelet``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from . import lab_node

#: The release whose transcripts the stand-in must match.
KUBERNETES_VERSION = "v1.36.2"
# Add a build suffix, as distributions do (+k3s1), so that no program mistakes the stand-in for a kubelet.
_VERSION = "Kubernetes %s+stand-in" % KUBERNETES_VERSION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; containers keep running."""
    parser = argparse.ArgumentParser(prog="kubelet", description=_VERSION)
    parser.add_argument("--config", metavar="FILE", help="a KubeletConfiguration")
    parser.add_argument("--root-dir", default="/var/lib/kubelet", metavar="DIR")
    parser.add_argument("--v", "-v", type=int, default=0, metavar="N", help="how much is logged")
    parser.add_argument("--version", action="store_true")
    options = parser.parse_args(arguments)
    if options.version:
        print(_VERSION)
        return 0
    if not options.config:
        parser.error("--config is missing")
    if lab_node.refuse_elsewhere("kubelet"):
        return 1
    # Import late, because every preflight check runs --version, which must be as fast as a real kubelet's.
    from . import klog
    from .kubelet_process import run

    klog.write_to_stderr(options.v)
    return run(options.config, options.root_dir)


if __name__ == "__main__":
    sys.exit(main())
