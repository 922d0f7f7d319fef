"""Reading and writing files by shell text run inside the sandbox: links resolve as its commands see them."""

from __future__ import annotations

import errno
import os
import posixpath

from lab.engine.sandboxes.shell_program import quote

_NO_WORKSPACE = 40
_IS_FOLDER = 41
_NOT_REGULAR = 42
_BELOW_A_FILE = 43

# As GNU and musl say them, and shells of themselves; the first that fits counts.
_MESSAGES = {
    b"No such file or directory": errno.ENOENT,
    b"Permission denied": errno.EACCES,
    b"Operation not permitted": errno.EPERM,
    b"Not a directory": errno.ENOTDIR,
    b"Is a directory": errno.EISDIR,
    b"File exists": errno.ENOTDIR,
    b"No space left on device": errno.ENOSPC,
    b"Disk quota exceeded": errno.EDQUOT,
    b"Read-only file system": errno.EROFS,
    b"Too many levels of symbolic links": errno.ELOOP,
    b"Symbolic link loop": errno.ELOOP,
    b"File name too long": errno.ENAMETOOLONG,
    b"Filename too long": errno.ENAMETOOLONG,
    b"Text file busy": errno.ETXTBSY,
    b"No such file": errno.ENOENT,
    b"no such file": errno.ENOENT,
    b"nonexistent directory": errno.ENOENT,
    b"Directory nonexistent": errno.ENOENT,
}
_BY_CODE = {_NO_WORKSPACE: errno.ENOENT, _IS_FOLDER: errno.EISDIR, _BELOW_A_FILE: errno.ENOTDIR}


def read_body(workspace: str, path: str, limit: int) -> bytes:
    """Shell text that prints a regular file, one byte more than `limit` at most."""
    return b"%s\nexec head -c %d <%s" % (_checks(workspace, path), limit + 1, quote(path))


def write_body(
    workspace: str, path: str, mode: int | None, *, source: bytes = b"cat", add: bool = False
) -> bytes:
    """Shell text that puts what `source` prints into a file, its own input by default; `add`: at the end."""
    parent = quote(posixpath.dirname(path))
    lines = [_checks(workspace, path)]
    if posixpath.dirname(path):
        lines.append(b"[ -d %s ] || mkdir -p -- %s || exit 1" % (parent, parent))
    into = b"%s >%s%s" % (source, b">" if add else b"", quote(path))
    if mode is None:
        lines.append(b"exec " + into)
    else:
        lines.append(b"%s && exec chmod %o -- %s" % (into, mode & 0o7777, quote(path)))
    return b"\n".join(lines)


def _checks(workspace: str, path: str) -> bytes:
    """Ends with a code of its own for what shells say in different words, or would wait for."""
    name = quote(path)
    lines = [
        b"PATH=/usr/bin:/bin",
        b"cd -- %s || exit %d" % (quote(workspace), _NO_WORKSPACE),
        b"[ -d %s ] && exit %d" % (name, _IS_FOLDER),
        b"[ -e %s ] && [ ! -f %s ] && exit %d" % (name, name, _NOT_REGULAR),
    ]
    if "/" in path:
        above = (
            b'lab_x=${lab_x%%/*}; [ -z "$lab_x" ] || [ -d "$lab_x" ] || [ ! -e "$lab_x" ] || exit %d'
            % _BELOW_A_FILE
        )
        climb = b'while [ "$lab_x" != "${lab_x%%/*}" ]; do %s; done' % above
        lines.append(b"[ -e %s ] || { lab_x=%s; %s; }" % (name, name, climb))
    return b"\n".join(lines)


def raise_for(code: int | None, stderr: bytes, path: str) -> None:
    """Turn the end of such shell text into the error a local file would give.

    Raises:
        OSError: of the class that fits what went wrong.
        ValueError: the path is no regular file.
    """
    if code == 0:
        return
    if code == _NOT_REGULAR:
        raise ValueError(f"{path}: is no regular file")
    said = (value for text, value in _MESSAGES.items() if text in stderr)
    number = _BY_CODE.get(code or 0) or next(said, errno.EIO)
    reason = os.strerror(number)
    if number == errno.EIO:
        reason = stderr.decode("utf-8", "replace").strip()[-300:] or f"ended with code {code}"
    raise OSError(number, reason, path)
