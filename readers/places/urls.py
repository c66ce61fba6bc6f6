"""URLs of objects: s3://bucket/key, gs://bucket/key, and http:// or https:// of a web server."""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from readers.messages import printable
from readers.places.storage import without_secrets

SCHEMES = ("s3", "gs", "http", "https")
URL = re.compile("^[A-Za-z][A-Za-z0-9+.-]*://")
ORDINARY = "^(?:s3|gs|https?)://[^/@?#]+/[^@?#]*$"
"""Regular expression of most valid URLs. All its matches are valid, except too long ones."""
LONGEST = 16 << 10
"""Maximum number of bytes of a URL. Keys have at most 1024; few web servers accept 8 KiB."""
_SHOWN = 100
"""Number of characters of longer URLs in messages."""
_SIGNED = re.compile(r"[?&](?:[a-z-]*signature|sig|token|key|password)=", re.IGNORECASE)


class Location(NamedTuple):
    """Address of an object."""

    root: str
    """Scheme and bucket, or scheme and host: ``s3://archive``."""
    key: str
    """Name in the bucket, or path on the host, without percent-encoding."""


def is_url(path: str) -> bool:
    """Return whether a path is a URL."""
    return URL.match(path) is not None


def check_url(url: str) -> None:
    """Raise ValueError if the scheme of a URL is not supported, or it contains a secret."""
    if (nbytes := len(os.fsencode(url))) > LONGEST:
        start = printable(without_secrets(url)[:_SHOWN])
        raise ValueError(f"{start}...: the URL has {nbytes} bytes, expected {LONGEST} at most")
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES:
        expected = f"{', '.join(SCHEMES)}, or a path"
        raise _error(url, f"{scheme}:// is not supported, expected {expected}")
    if scheme in ("s3", "gs"):
        bucket, _, _ = url.partition("://")[2].partition("/")
        if not bucket or "@" in bucket:
            raise _error(url, f"expected {scheme}://bucket/key")
        return
    parts = urlsplit(url)
    if "@" in parts.netloc or _SIGNED.search(url):
        raise _error(
            url,
            "a URL with a password or a signature cannot be in an Index: use s3:// or gs:// with "
            "credentials in the environment",
        )
    if not parts.hostname or parts.query or parts.fragment:
        rest = ", without ? and #" * bool(parts.query or parts.fragment)
        raise _error(url, f"expected {scheme}://host/path{rest}")


def _error(url: str, reason: str) -> ValueError:
    return ValueError(f"{printable(without_secrets(url))}: {reason}")


def check_object(url: str) -> None:
    """Raise ValueError if the client would request another object than that of this URL.

    The client strips slashes, and encodes the paths of web servers again.
    """
    check_url(url)
    scheme, _, rest = url.partition("://")
    key, reason = rest.partition("/")[2], ""
    if key.startswith("/") or key.endswith("/"):
        reason = "begins or ends with a slash"
    elif scheme in ("http", "https"):
        if "%2f" in key.lower():
            reason = "has an encoded slash"
        elif unquote(key, errors="ignore") != unquote(key):
            reason = "has bytes that are not UTF-8"
    if reason:
        raise _error(
            url,
            f"the object cannot be requested, because its name {reason}; expected a name such as "
            "folder/file",
        )


def located(url: str) -> Location:
    """Return the address of the object of a URL."""
    scheme, _, rest = url.partition("://")
    host, _, key = rest.partition("/")
    return Location(f"{scheme}://{host}", key if scheme in ("s3", "gs") else unquote(key))
