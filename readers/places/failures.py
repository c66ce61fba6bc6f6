"""Errors of remote storage in words: what failed, where, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from readers.messages import printable
from readers.places.storage import Storage

_QUERY = re.compile(r"(://[^\s?\"')]*)\?[^\s\"')]*")
_METADATA = ("169.254.169.254", "/latest/api/token", "metadata.google.internal")
"""Addresses that clients without credentials ask for them."""
_STATUS = re.compile(r"non-2xx status code: (\d+ [A-Za-z ]+)")
_MOST_CHARACTERS = 300
_NO_ANSWER = ("there was no answer", "cannot be reached", "each time")
_NO_ACCESS = (
    *("there are no credentials", "access is denied", "there is no such bucket"),
    *("the bucket is in another region", "has no aws_access_key_id"),
    "the certificate of the server",
)
_ANONYMOUS = "or give anonymous=True (in commands --anonymous) for a public bucket"


class StorageError(OSError):
    """A request to remote storage failed."""


class NoAnswerError(StorageError):
    """The server did not answer, or not as it should, until the time was over."""


def nobody_answered(error: BaseException | None) -> bool:
    """Return whether one of the causes of an error is a NoAnswerError."""
    while error is not None and not isinstance(error, NoAnswerError):
        error = error.__cause__
    return error is not None


def is_of_store(error: object) -> bool:
    """Return whether an error, or its text, is the store's, so that other objects have it, too."""
    return any(words in str(error) for words in (*_NO_ANSWER, *_NO_ACCESS))


class ChangedError(StorageError):
    """The object is another one than was indexed."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"it has changed since it was indexed, or read: make the Index again: {url!r}"
        )


@contextmanager
def requesting(url: str, storage: Storage) -> Iterator[None]:
    """Turn what obstore raises inside into the error of a request."""
    try:
        yield
    except BaseException as error:
        # A panic of its Rust code is no Exception, and has no class that can be imported.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise failure(error, url, storage) from None
        raise


def failure(error: BaseException, url: str, storage: Storage) -> OSError:
    """Return the error of a request in words; the message ends in the URL, as that of ``open``."""
    text = _QUERY.sub(r"\1", " ".join(str(error).split()))
    reason = _reason(error, text, url, storage)
    if reason is None:
        return ChangedError(url)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(f"{reason}: {url!r}")
    waited = any(words in reason for words in _NO_ANSWER)
    return (NoAnswerError if waited else StorageError)(f"{reason}: {url!r}")


def _reason(error: BaseException, text: str, url: str, storage: Storage) -> str | None:
    """Return what failed; None for an object that has changed."""
    name = type(error).__name__
    if "<Code>NoSuchBucket</Code>" in text:  # of a listing it is no FileNotFoundError
        return "there is no such bucket"
    if isinstance(error, FileNotFoundError):
        return "there is no such object"
    answered = _STATUS.search(text)
    status = answered[1] if answered else ""
    if name == "PreconditionError" or status.startswith("412"):
        return None
    if any(host in text for host in _METADATA):
        aws = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile"
        how = "set GOOGLE_APPLICATION_CREDENTIALS" if url.startswith("gs://") else aws
        return f"there are no credentials: {how}, {_ANONYMOUS}"
    if name == "UnauthenticatedError" and "credential provider" in text:
        return printable(text.rpartition("RuntimeError: ")[2])[:_MOST_CHARACTERS]
    if name == "NotSupportedError" or "non-partial response" in text:
        return "the server does not send ranges of bytes: copy the file, or use another server"
    if name in ("PermissionDeniedError", "UnauthenticatedError") or status:
        return _answered(status, text)
    if "TimedOut" in text or "timed out" in text:
        return f"there was no answer within {storage.timeout:g} s"
    if untrusted := re.search(r"InvalidCertificate\(\s*(\w+)", text):
        return (
            f"the certificate of the server is not trusted ({untrusted[1]}): name the file of its "
            "authority by SSL_CERT_FILE"
        )
    if "error sending request" in text or "onnect" in text:
        return "the server cannot be reached: check the network and the endpoint" + (
            f", {storage.endpoint}" if storage.endpoint else ""
        )
    if name == "InvalidPathError":
        found = re.search(r'"[^"]*"', text)
        return (
            "objects whose names have empty parts, or parts . or .., are not read, nor what is "
            f"listed with them: rename {printable(found[0]) if found else 'it'}, or give URLs "
            "without it"
        )
    if "IncompleteBody" in text or "body error" in text:
        return "the answer was cut off, each time"
    return f"{name}: {printable(text.partition('Debug source:')[0].strip())[:_MOST_CHARACTERS]}"


def _answered(status: str, text: str) -> str:
    """Return what an answer means, e.g. ``403 Forbidden``; text is what the server says of it."""
    found = re.search(r"<Code>(\w+)</Code>", text)
    code = f" ({found[1]})" if found else ""
    if status[:3] in ("401", "403", ""):
        return f"access is denied{code}: check the credentials, {_ANONYMOUS}"
    if status.startswith("301"):
        return "the bucket is in another region: give its region"
    if status.startswith("416"):
        return "the object is empty, or shorter than was indexed"
    if status.startswith(("429", "5")):
        return f"the server answers {status}, each time: ask later, or with less concurrency"
    return f"the server answers {status}{code}"
