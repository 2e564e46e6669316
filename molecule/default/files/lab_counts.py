"""Counts how often each Python process reads containerd's configuration file, and lets containerd print one.

Every Python of the node imports this file at its start (count_reads.yml). Run as a program, the file prints a line for
each process that did either, in the order in which they began:

    2 reads, prints: file, copy
"""

import os
import sys

LOG = "/var/tmp/lab-counts"
CONFIG = "/etc/containerd/config.toml"


def audit(event, arguments):
    # Without a mode, it is one of the calls below open().
    if event == "open" and arguments[0] == CONFIG and arguments[1] == "r":
        note("read")
    elif event == "subprocess.Popen" and list(arguments[1])[-2:] == ["config", "dump"]:
        note("file" if CONFIG in arguments[1] else "copy")


def note(what):
    descriptor = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, b"%d %s\n" % (os.getpid(), what.encode()))
    os.close(descriptor)


def main():
    processes: dict[str, list[str]] = {}
    with open(LOG) as log:
        for line in log:
            pid, what = line.split()
            processes.setdefault(pid, []).append(what)
    for noted in processes.values():
        printed = [what for what in noted if what != "read"]
        print("%d reads, prints: %s" % (noted.count("read"), ", ".join(printed) or "none"))


if __name__ == "__main__":
    main()
elif os.geteuid() == 0:
    sys.addaudithook(audit)
