"""News of files and devices, by inotify and the kernel's messages."""
