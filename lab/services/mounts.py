"""On what kind of disk a folder lies."""

from __future__ import annotations

from pathlib import Path

NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"}


def file_system(folder: Path) -> str:
    """The type of the file system that holds `folder`, "" where the machine does not say."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    holding = [
        fields for fields in mounts if folder.resolve().is_relative_to(fields[1].replace("\\040", " "))
    ]
    return max(holding, key=lambda fields: len(fields[1]))[2] if holding else ""


def is_network(folder: Path) -> bool:
    """Whether the folder is on another machine's disk, where SQLite loses data."""
    return file_system(folder) in NETWORK_FILE_SYSTEMS
