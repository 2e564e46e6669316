"""The stand-in as a command: the kubelet of a node that has none. ``python -m kubelet_stand_in.kubelet``"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from . import lab_node

#: The release whose transcripts the stand-in must match.
KUBERNETES_VERSION = "v1.36.2"
# Marked as distributions mark their builds (+k3s1), so that nothing mistakes it for a kubelet of that version.
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
    # Imported late: every preflight runs --version, which must be as fast as the real kubelet's.
    from . import klog
    from .kubelet_process import run

    klog.write_to_stderr(options.v)
    return run(options.config, options.root_dir)


if __name__ == "__main__":
    sys.exit(main())
