"""Watches files and devices with inotify and the kernel's uevents."""
