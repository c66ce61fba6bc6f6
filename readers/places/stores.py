"""Clients of remote storage, by the library obstore, which is imported on first use."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from readers.messages import install
from readers.places.failures import NoAccessError, StorageError
from readers.places.storage import Storage
from readers.places.threads import DaemonThreads

if TYPE_CHECKING:
    from obstore.store import ObjectStore

Result = TypeVar("Result")

_VARIABLES = ("AWS_", "GOOGLE_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_")
"""Prefixes of environment variables, in capitals."""
_KEYS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Environment variables from which obstore takes credentials for AWS."""
_FILES = {
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
    "AWS_CONFIG_FILE": "~/.aws/config",
}
"""Files of profiles, by the environment variable that can replace each path."""
_LIFETIME = timedelta(minutes=10)
"""Time until obstore asks again for the credentials of a profile. botocore renews them earlier."""
_GOOGLE_KEYS = (
    *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"),
    "GOOGLE_SERVICE_ACCOUNT_KEY",
)
_GOOGLE_FILE = ".config/gcloud/application_default_credentials.json"
"""File in the home folder where obstore finds credentials for Google Cloud Storage."""
_SLOWEST = 10
"""Limit for a request that keeps receiving bytes, in multiples of the timeout."""
_owners: list[int] = []
"""Id of the process that has made clients. In a fork of it, these clients would wait forever."""


def store_of(root: str, storage: Storage) -> ObjectStore:
    """Return the client of a bucket or host, e.g. ``s3://archive``, for all threads.

    Raises
    ------
    ImportError
        If obstore is missing.
    OSError
        If this process was forked from one that has made requests.
    """
    if os.getpid() not in (_owners or [os.getpid()]):
        raise StorageError(
            f"{root}: requests to remote storage do not work in a process that was forked after "
            "other requests: start processes by 'spawn' or 'forkserver', e.g. with "
            "multiprocessing.set_start_method"
        )
    return _store(root, storage, tuple(sorted(environment().items())))


def environment() -> dict[str, str]:
    """Return the environment variables of remote storage, including secrets."""
    names = (name for name in os.environ if name.upper().startswith(_VARIABLES))
    return {name: os.environ[name] for name in names}


@lru_cache(maxsize=64)
def _store(root: str, storage: Storage, variables: tuple[tuple[str, str], ...]) -> ObjectStore:
    del variables  # part of the key: they may change, e.g. in a notebook
    try:
        from obstore.store import GCSStore, HTTPStore, S3Store
    except ImportError as error:
        raise ImportError(f"reading {root} needs obstore: {install('remote')}") from error
    _owners[:] = [os.getpid()]
    scheme, _, name = root.partition("://")
    # An attempt without an answer ends after a third of the timeout, and is repeated. No attempt
    # begins after two thirds. An attempt that receives bytes continues.
    third = timedelta(seconds=storage.timeout / 3)
    options: dict[str, Any] = {
        "client_options": {
            "timeout": timedelta(seconds=_SLOWEST * storage.timeout),
            "read_timeout": third,
            "connect_timeout": third,
            "allow_http": True,
        },
        "retry_config": {
            "max_retries": storage.retries,
            "retry_timeout": 2 * third,
            "backoff": {
                "init_backoff": timedelta(seconds=0.1),
                "max_backoff": timedelta(seconds=1),
                "base": 2,
            },
        },
    }
    if scheme == "s3":
        return S3Store(name, **_of_s3(storage), **options)
    if scheme == "gs":
        options |= {"skip_signature": True} if storage.anonymous else {}
        return GCSStore(name, **options)
    return HTTPStore(root, **options)


@lru_cache(maxsize=8)
def threads_of(storage: Storage) -> DaemonThreads:
    """Return the threads of this process for concurrent requests."""
    return DaemonThreads(storage.concurrency)


def waited(storage: Storage, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function that makes requests; Ctrl-C ends the wait at once."""
    if threading.current_thread() is not threading.main_thread():
        return function(*args)
    return threads_of(storage).submit(function, *args).result()


def credentials_of(root: str, storage: Storage) -> str | None:
    """Return the source of the credentials for a bucket or host, as text without their values.

    None if only the cloud instance may have credentials.
    """
    scheme = root.partition("://")[0]
    if scheme.startswith("http"):
        return "none are needed"
    unsigned = scheme == "s3" and os.environ.get("AWS_SKIP_SIGNATURE", "").lower() == "true"
    if storage.anonymous or unsigned:
        return "none are sent, requests are anonymous"
    if scheme == "gs":
        if key := next(filter(os.environ.get, _GOOGLE_KEYS), None):
            return f"{key} of the environment"
        return f"~/{_GOOGLE_FILE}" if (Path.home() / _GOOGLE_FILE).exists() else None
    if (provider := _of_s3(storage).get("credential_provider")) is not None:
        return f"profile {provider.name!r} of ~/.aws"
    key = next(filter(os.environ.get, _KEYS), None)
    return f"{key} of the environment" if key else None


@lru_cache(maxsize=8)
def slots_of(storage: Storage) -> threading.Semaphore:
    """Return the semaphore that limits the concurrent requests of this process."""
    return threading.Semaphore(storage.concurrency)


def endpoint_of(storage: Storage) -> str:
    """Return the endpoint from settings or environment, not from a profile; empty for AWS."""
    return storage.endpoint or _environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") or ""


def _of_s3(storage: Storage) -> dict[str, Any]:
    profile = _Profile(storage.profile)
    region = _environment("AWS_REGION", "AWS_DEFAULT_REGION")
    found: dict[str, Any] = {
        "region": storage.region or region or profile.settings.get("region"),
        "endpoint": endpoint_of(storage) or profile.settings.get("endpoint_url"),
        "skip_signature": storage.anonymous or None,
    }
    is_chosen = storage.profile is not None
    is_asked = not storage.anonymous and (is_chosen or not _environment(*_KEYS))
    if is_asked and (profile.credentials is not None or is_chosen):
        found["credential_provider"] = profile
    return {name: value for name, value in found.items() if value is not None}


def _environment(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


class _Profile:
    """A profile in ~/.aws, read by botocore; obstore calls it for credentials.

    Parameters
    ----------
    name : str, optional
        Name of the profile; by default AWS_PROFILE, or "default".

    Raises
    ------
    ImportError
        If there are profiles, but botocore is missing.
    NoAccessError
        If the files cannot be read.
    """

    def __init__(self, name: str | None) -> None:
        self.name = name or os.environ.get("AWS_PROFILE", "default")
        self.settings: dict[str, Any] = {}
        """Entries of the profile in the files; empty if there are none."""
        files = (os.environ.get(variable, path) for variable, path in _FILES.items())
        if not any(Path(file).expanduser().exists() for file in files):
            return
        try:
            from botocore.exceptions import BotoCoreError, ProfileNotFound
            from botocore.session import Session
        except ImportError as error:
            raise ImportError(
                f"reading profiles of ~/.aws needs botocore: {install('remote')}"
            ) from error
        self._session = Session(profile=name)
        try:
            with suppress(ProfileNotFound):
                self.settings = self._session.get_scoped_config()
        except BotoCoreError as error:
            raise NoAccessError(f"profile {self.name!r} of ~/.aws: {error}") from error

    @cached_property
    def credentials(self) -> Any:
        """Credentials, which botocore renews; None if the profile has none."""
        if not self.settings:
            return None
        from botocore.exceptions import BotoCoreError

        resolver = self._session.get_component("credential_provider")
        for instance in ("container-role", "iam-role"):  # obstore asks the instance itself
            resolver.remove(instance)
        try:
            return self._session.get_credentials()
        except BotoCoreError as error:
            raise NoAccessError(f"profile {self.name!r} of ~/.aws: {error}") from error

    def __call__(self) -> dict[str, Any]:
        """Return the credentials in the form for obstore."""
        if self.credentials is None:
            raise RuntimeError(
                f"profile {self.name!r} of ~/.aws has no credentials: it needs aws_access_key_id "
                "and aws_secret_access_key, a role, or single sign-on ('aws configure sso')"
            )
        try:
            found = self.credentials.get_frozen_credentials()
        except Exception as error:  # any error of the services that botocore asks
            raise RuntimeError(
                f"profile {self.name!r} of ~/.aws: {error}. For single sign-on, run "
                f"'aws sso login --profile {self.name}'"
            ) from error
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": datetime.now(UTC) + _LIFETIME,
        }
