"""Errors of remote storage in words: what failed, where, and what to do."""

from __future__ import annotations

import re

from readers.messages import printable
from readers.places.storage import Storage

_QUERY = re.compile(r"(://[^\s?\"')]*)\?[^\s\"')]*")
_METADATA = ("169.254.169.254", "metadata.google.internal")
_MOST_CHARACTERS = 300


class StorageError(OSError):
    """A request to remote storage failed."""


class ChangedError(StorageError):
    """The object is another one than was indexed."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"it has changed since it was indexed, or read: make the Index again: {url!r}"
        )


def failure(error: BaseException, url: str, storage: Storage) -> OSError:
    """Return the error of a request in words; the message ends in the URL, as that of ``open``."""
    text = _QUERY.sub(r"\1", " ".join(str(error).split()))
    reason = _reason(error, text, storage)
    if reason is None:
        return ChangedError(url)
    kind = FileNotFoundError if isinstance(error, FileNotFoundError) else StorageError
    return kind(f"{reason}: {url!r}")


def _reason(error: BaseException, text: str, storage: Storage) -> str | None:
    """Return what failed; None for an object that has changed."""
    name = type(error).__name__
    if isinstance(error, FileNotFoundError):
        return "there is no such bucket" if "NoSuchBucket" in text else "there is no such object"
    if name == "PreconditionError" or "412 Precondition" in text:
        return None
    if any(host in text for host in _METADATA):
        return (
            "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a "
            "profile, or give anonymous=True for a public bucket"
        )
    if name == "UnauthenticatedError" and "credential provider" in text:
        return printable(text.rpartition("RuntimeError: ")[2])[:_MOST_CHARACTERS]
    if name in ("PermissionDeniedError", "UnauthenticatedError") or re.search("40[13] [A-Z]", text):
        code = re.search(r"<Code>(\w+)</Code>", text)
        which = f" ({code[1]})" if code else ""
        return (
            f"access is denied{which}: check the credentials, or give anonymous=True for a public "
            "bucket"
        )
    if name == "NotSupportedError" or "non-partial response" in text:
        return "the server does not send ranges of bytes: copy the file, or use another server"
    if "PermanentRedirect" in text or "301 Moved" in text:
        return "the bucket is in another region: give its region"
    if "416 Range" in text:
        return "the object is empty, or shorter than was indexed"
    if re.search("(?:429|50[0-9]) [A-Z]", text):
        found = re.search("(?:429|50[0-9]) [A-Z][A-Za-z ]*[a-z]", text)
        return (
            f"the server answers {found[0] if found else 'with an error'}, after "
            f"{storage.retries} retries: ask later, or with less concurrency"
        )
    if "TimedOut" in text or "timed out" in text:
        return f"there was no answer within {storage.timeout:g} s"
    if "error sending request" in text or "onnect" in text:
        return "the server cannot be reached: check the network and the endpoint" + (
            f", {storage.endpoint}" if storage.endpoint else ""
        )
    if "IncompleteBody" in text or "body error" in text:
        return f"the answer was cut off, after {storage.retries} retries"
    return f"{name}: {printable(text)[:_MOST_CHARACTERS]}"
