"""A lock's file that its holder takes away while another one waits for it."""

from __future__ import annotations

import os
import threading

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import kernel_lock


def test_who_waited_has_the_file_that_others_open(tmp_path):
    path, same = str(tmp_path / "lock"), []

    def wait():
        with kernel_lock.locked(path) as descriptor:
            same.append(os.path.exists(path) and os.path.samestat(os.stat(path), os.fstat(descriptor)))

    with kernel_lock.locked(path):
        waiting = threading.Thread(target=wait)
        waiting.start()
        # Until it has opened the file; who opens it later only makes the test weaker.
        waiting.join(0.3)
        os.unlink(path)
    waiting.join(10)
    assert same == [True]
