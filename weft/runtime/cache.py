"""A disk cache of compiled kernels, addressed by the hash of everything that determines them.

An entry is a file: the payload, then a trailer with its length and a checksum of its key and itself. The trailer comes
last so that an entry which is a shared library can be opened from where it lies. Entries appear by an atomic rename, so
several processes may fill one cache; an entry that is truncated, corrupt or another one's is a miss. So nothing waits
for the disk: what a crash leaves torn is compiled anew. A directory that cannot be used costs one warning, and compilation
goes on without a cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import struct
import warnings
from pathlib import Path

_TRAILER = struct.Struct("<Q16s8s")  # length of the payload, its BLAKE2b, the mark of this format
_MARK = b"weft-2\n\0"
_warned: set[str] = set()  # directories that a warning was given for


def directory() -> Path | None:
    """$WEFT_CACHE, else $XDG_CACHE_HOME/weft, else ~/.cache/weft; None where there is no such place."""
    chosen = os.environ.get("WEFT_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.cache")
    return Path(base, "weft") if os.path.isabs(base) else None


def key(*parts: str | bytes) -> str:
    """A hexadecimal SHA-256 of the parts; different sequences of parts have different keys."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%s%d:" % (b"s" if isinstance(part, str) else b"b", len(data)))
        digest.update(data)
    return digest.hexdigest()


def path(key: str) -> Path | None:
    """Where the entry of `key` lies or would lie; None where there is no cache."""
    root = directory()
    return None if root is None else root / key[:2] / key[2:]


def load(key: str) -> bytes | None:
    """The payload stored under `key`; None if there is none, or none that is whole."""
    place = path(key)
    if place is None:
        return None
    try:
        entry = place.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn(str(directory()), "read", str(error))
        return None
    if len(entry) < _TRAILER.size:
        return None
    length, checksum, mark = _TRAILER.unpack_from(entry, len(entry) - _TRAILER.size)
    if mark != _MARK or length != len(entry) - _TRAILER.size:
        return None
    payload = entry[:length]
    return payload if _checksum(key, payload) == checksum else None


def store(key: str, payload: bytes) -> Path | None:
    """Put the payload under `key`, replacing what is there. Returns the entry's file, None if it could not be made."""
    place = path(key)
    if place is None:
        _warn("~/.cache/weft", "write", "there is no home directory")
        return None
    temporary = place.with_name(f"{place.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "xb") as file:
                file.write(payload)
                file.write(_TRAILER.pack(len(payload), _checksum(key, payload), _MARK))
            os.replace(temporary, place)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        _warn(str(directory()), "write", str(error))
        return None
    return place


def _checksum(key: str, payload: bytes) -> bytes:
    digest = hashlib.blake2b(key.encode(), digest_size=16)
    digest.update(payload)
    return digest.digest()


def _warn(root: str, what: str, why: str) -> None:
    """Once for each directory: a cache that fails at every call must not flood the terminal."""
    if root in _warned:
        return
    _warned.add(root)
    message = f"weft cannot {what} its cache in {root} ({why}), so kernels are compiled anew in every process"
    warnings.warn(f"{message}; set WEFT_CACHE to a directory of yours", RuntimeWarning, stacklevel=3)
