#!/usr/bin/env python3
"""Changes one byte in the middle of one wheel of a bundle's archive, and prints the wheel's name in the bundle.

Usage: tamper.py ARCHIVE COPY NAME. NAME: the beginning of the wheel's name.
"""

import shutil
import sys
import tarfile

archive, copy, name = sys.argv[1:]
shutil.copyfile(archive, copy)
with tarfile.open(archive) as tar:
    (wheel,) = (member for member in tar if f"/wheels/{name}" in member.name)
with open(copy, "r+b") as file:
    file.seek(wheel.offset_data + wheel.size // 2)
    byte = file.read(1)[0]
    file.seek(-1, 1)
    file.write(bytes([byte ^ 1]))
print(wheel.name.partition("/")[2])
