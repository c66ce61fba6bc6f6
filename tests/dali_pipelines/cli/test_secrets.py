"""Secrets are never printed, and credentials are named by where they are found."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dali_pipelines import Storage
from dali_pipelines.cli.doctor.data import credentials
from dali_pipelines.cli.doctor.job import Job
from dali_pipelines.cli.run_config import RunConfig
from readers.places.stores import credentials_of

KEY, SECRET = "AKIDOFATEST", "wJalrXUtnFEMIK7MDENG"


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home without any, which is returned."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.mark.parametrize(
    "flags", ["index {}", "verify {} --device=cpu", "show {} -o a.png", "run --data={}"]
)
@pytest.mark.parametrize(
    "url",
    [
        f"https://user:{SECRET}@127.0.0.1/a.fits",
        f"https://127.0.0.1/a.fits?X-Amz-Signature={SECRET}",
        f"ftp://user:{SECRET}@127.0.0.1/a.fits?token={SECRET}",
    ],
)
def test_in_urls(
    command: Callable[..., tuple[str, str]],
    no_credentials: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: str,
    url: str,
) -> None:
    monkeypatch.chdir(no_credentials)
    name, *words = flags.format(url).split()
    out, err = command(name, *words, status=2)
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"dali-pipelines {name}: ")
    assert SECRET not in err


def test_in_the_endpoint(command: Callable[..., tuple[str, str]]) -> None:
    _, err = command("index", "s3://a/b", f"--endpoint=http://user:{SECRET}@host", status=2)
    assert SECRET not in err


def test_credentials_are_named(monkeypatch: pytest.MonkeyPatch, no_credentials: Path) -> None:
    home = no_credentials / ".aws"
    home.mkdir()
    keys = f"aws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    (home / "credentials").write_text(f"[default]\n{keys}[lab]\n{keys}")
    assert credentials_of("s3://a", Storage()) == "profile 'default' of ~/.aws"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert credentials_of("s3://a", Storage()) == "AWS_ACCESS_KEY_ID of the environment"
    assert credentials_of("s3://a", Storage(profile="lab")) == "profile 'lab' of ~/.aws"
    assert credentials_of("gs://a", Storage()) is None
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", SECRET)
    assert credentials_of("gs://a", Storage()) == "GOOGLE_SERVICE_ACCOUNT_KEY of the environment"


@pytest.mark.parametrize(
    ("url", "variable"),
    [("s3://a/b/", "AWS_ACCESS_KEY_ID"), ("gs://a/b/", "GOOGLE_APPLICATION_CREDENTIALS")],
)
def test_doctor_names_what_to_set(no_credentials: Path, url: str, variable: str) -> None:
    assert credentials_of(url, Storage()) is None
    finding = credentials(Job(RunConfig(data=url)))
    assert finding is not None
    assert finding.level == "NOTE"
    assert variable in finding.text
