"""Settings of remote storage. They hold no secrets, and are sent to reader processes."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from readers.messages import printable
from readers.values import check_bool, check_integer, check_positive


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Settings for requests of objects on S3, Google Cloud Storage and web servers.

    Credentials are not settings, so no pickle, state or log contains them. Each process takes its
    credentials from the environment (such as ``AWS_ACCESS_KEY_ID`` and
    ``GOOGLE_APPLICATION_CREDENTIALS``), from a profile in ``~/.aws``, or from the metadata of its
    cloud instance.

    Raises
    ------
    ValueError
        If a setting has an invalid value.
    """

    anonymous: bool = False
    """Send requests without a signature, for public buckets."""
    endpoint: str | None = None
    """URL of an S3 server other than AWS, e.g. ``http://localhost:9000``; by default
    AWS_ENDPOINT_URL, or AWS."""
    region: str | None = None
    """AWS region of the bucket; by default AWS_REGION, the region of the profile, or us-east-1."""
    profile: str | None = None
    """Profile in ``~/.aws``, with keys, a role, single sign-on, or another method of boto3; by
    default AWS_PROFILE, or "default"."""
    retries: int = 10
    """Attempts after the first one, for errors 5xx and 429, lost connections and missing answers.
    The pauses between them grow from 0.1 s to 1 s."""
    timeout: float = 60.0
    """Seconds without an answer until a request fails, including its retries. A request that keeps
    receiving bytes may take ten times as long."""
    concurrency: int = 32
    """Number of concurrent requests of one process."""

    def __post_init__(self) -> None:
        check_bool("anonymous", self.anonymous)
        for name in ("region", "profile"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ValueError(f"{name} must be a name, got {value!r}")
        if self.endpoint is not None:
            _check_endpoint(self.endpoint)
        check_integer("retries", self.retries, 0)
        check_integer("concurrency", self.concurrency, 1)
        check_positive("timeout", self.timeout)


def _check_endpoint(endpoint: object) -> None:
    if not isinstance(endpoint, str) or not endpoint.startswith(("http://", "https://")):
        raise ValueError(f"endpoint must be a URL, http:// or https://, got {endpoint!r}")
    if "@" in urlsplit(endpoint).netloc:
        raise ValueError(
            f"endpoint {printable(without_secrets(endpoint))} contains a password: set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment instead"
        )


def without_secrets(url: str) -> str:
    """Return a URL without its query, user and password, which may be secrets."""
    parts = urlsplit(url)
    # Not by urllib's geturl, which turns s3:// into s3:.
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
