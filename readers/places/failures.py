"""Messages for errors of remote storage, with the cause, the URL, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from readers.messages import printable
from readers.places.storage import Storage

_QUERY = re.compile(r"(://[^\s?\"')]*)\?[^\s\"')]*")
_METADATA = ("169.254.169.254", "/latest/api/token", "metadata.google.internal")
"""Addresses of the services for credentials on cloud machines."""
_STATUS = re.compile(r"non-2xx status code: (\d+ [A-Za-z ]+)")
_MOST_CHARACTERS = 300
_DEBUG = "Debug source:"
"""Start of the text that obstore appends to a message."""
_ANONYMOUS = "or set anonymous=True for a public bucket"
_OTHER_RANGE = re.compile(r"Requested (\d+)\.\.(\d+), got (\d+)\.\.(\d+)")
_HEADER = re.compile(r"(Content-Length|Content-Range) header|for (CONTENT_RANGE) header", re.I)
_ANOTHER_SERVER = "copy the file, or use another server"
_OTHER_REGION = "the bucket is in another region: set region"


class StorageError(OSError):
    """A request to remote storage failed."""


class NoAnswerError(StorageError):
    """The server did not answer in time, or its answers were invalid."""


class UnreachableError(NoAnswerError):
    """There is no connection to the server."""


class NoAccessError(StorageError):
    """No object can be read: no credentials, no trusted certificate, or a wrong bucket."""


class NoBucketError(NoAccessError, FileNotFoundError):
    """There is no such bucket."""


class ShortAnswerError(StorageError):
    """The server sent fewer bytes than requested."""


def nobody_answered(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, is a NoAnswerError."""
    return any(isinstance(each, NoAnswerError) for each in _causes(error))


def is_unreachable(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, is an UnreachableError."""
    return any(isinstance(each, UnreachableError) for each in _causes(error))


def is_of_store(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, concerns all objects of the store."""
    return any(
        isinstance(each, NoAnswerError | NoAccessError) or getattr(each, "is_of_store", False)
        for each in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


class ChangedError(StorageError):
    """The object has changed since it was indexed."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"it has changed since it was indexed or read, make the Index again: {url!r}"
        )


@contextmanager
def requesting(url: str, storage: Storage) -> Iterator[None]:
    """Convert errors of obstore to OSError, mostly `StorageError`."""
    try:
        yield
    except BaseException as error:
        # A panic in obstore's Rust code is not an Exception, and its class cannot be imported.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise failure(error, url, storage) from None
        raise


def failure(error: BaseException, url: str, storage: Storage) -> OSError:
    """Return a clear error for a request. The message ends with the URL, as with ``open``."""
    text = _QUERY.sub(r"\1", " ".join(str(error).split()))
    answered = _STATUS.search(text)
    status = answered[1] if answered else ""
    if type(error).__name__ == "PreconditionError" or status.startswith("412"):
        return ChangedError(url)
    kind, reason = _reason(error, text, status, url, storage)
    return kind(f"{reason}: {url!r}")


def _reason(
    error: BaseException, text: str, status: str, url: str, storage: Storage
) -> tuple[type[OSError], str]:
    """Return the type and the message of an error, without the URL."""
    name = type(error).__name__
    if "<Code>NoSuchBucket</Code>" in text:  # a listing does not raise FileNotFoundError
        return NoBucketError, "there is no such bucket"
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError, "there is no such object"
    if any(host in text for host in _METADATA):
        aws = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile"
        how = "set GOOGLE_APPLICATION_CREDENTIALS" if url.startswith("gs://") else aws
        return NoAccessError, f"there are no credentials: {how}, {_ANONYMOUS}"
    if name == "UnauthenticatedError" and "credential provider" in text:
        words = text.partition(_DEBUG)[0].rpartition("RuntimeError: ")[2]
        return NoAccessError, printable(words.strip())[:_MOST_CHARACTERS]
    if name == "NotSupportedError" or "non-partial response" in text:
        return StorageError, f"the server does not send ranges of bytes: {_ANOTHER_SERVER}"
    if ranges := _OTHER_RANGE.search(text):
        asked, sent = (" to ".join(ranges.group(*two)) for two in ((1, 2), (3, 4)))
        kind = ShortAnswerError if ranges[1] == ranges[3] else StorageError
        return kind, f"the server sent the bytes {sent}, expected {asked}: {_ANOTHER_SERVER}"
    if header := _HEADER.search(text):
        header_name = (header[1] or header[2]).replace("_", "-").title()
        return StorageError, (
            f"the answer, perhaps of a proxy, lacks a {header_name} with the length: "
            f"{_ANOTHER_SERVER}"
        )
    if name in ("PermissionDeniedError", "UnauthenticatedError") or status:
        return _answered(status, text)
    if "TimedOut" in text or "timed out" in text:
        return NoAnswerError, f"there was no answer within {storage.timeout:g} s"
    if untrusted := re.search(r"InvalidCertificate\(\s*(\w+)", text):
        return NoAccessError, (
            f"the certificate of the server is not trusted ({untrusted[1]}): set SSL_CERT_FILE to "
            "the file of its certificate authority"
        )
    if "error sending request" in text or "onnect" in text:
        endpoint = f", {storage.endpoint}" if storage.endpoint else ""
        kind = UnreachableError if "kind: Connect," in text else NoAnswerError
        return kind, f"the server cannot be reached: check the network and the endpoint{endpoint}"
    if "redirect" in text or "builder error" in text:
        if url.startswith("s3://"):
            return NoAccessError, _OTHER_REGION
        return StorageError, (
            f"the server redirects repeatedly to itself, or to an invalid URL: {_ANOTHER_SERVER}"
        )
    if odd := re.search(r"Invalid (last modified '[^']*')|(header containing non-ASCII)", text):
        what = "a Last-Modified that is not a date" if odd[1] else "a header that is not ASCII"
        return StorageError, f"the answer, perhaps of a proxy, has {what}: {_ANOTHER_SERVER}"
    if name == "InvalidPathError":
        found = re.search(r'"[^"]*"', text)
        return StorageError, (
            "a listing fails if the name of an object has an empty part, or a part . or ..: rename "
            f"{printable(found[0]) if found else 'the object'}, or pass URLs without it"
        )
    if "IncompleteBody" in text or "body error" in text:
        return NoAnswerError, "the answer was cut off in all attempts"
    words = printable(text.partition(_DEBUG)[0].strip())[:_MOST_CHARACTERS]
    return StorageError, f"{name}: {words}"


def _answered(status: str, text: str) -> tuple[type[StorageError], str]:
    """Return the error for a status such as ``403 Forbidden``; `text` is the server's message."""
    found = re.search(r"<Code>(\w+)</Code>", text)
    code = f" ({found[1]})" if found else ""
    if status[:3] in ("401", "403", ""):
        words = f"access is denied{code}: check the credentials, {_ANONYMOUS}"
        return NoAccessError, words
    if status.startswith("301"):
        return NoAccessError, _OTHER_REGION
    if status.startswith("416"):
        return StorageError, "the object is empty, or shorter than in the Index"
    if status.startswith(("429", "5")):
        words = f"the server answers {status} in all attempts: try later, or lower concurrency"
        return NoAnswerError, words
    return StorageError, f"the server answers {status}{code}"
