"""Loaders over a real store of objects: the same samples, each once, whatever the server does."""

from __future__ import annotations

import io
import logging
import os
import pickle
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers.proxy import Fault, Proxy
from servers.weed import ACCESS_KEY, OPEN, SECRET_KEY, Weed

from dali_pipelines import Index, Loader, npy_pipeline
from readers.places.storage import Storage

ROWS = 40
OUTAGES = int(os.environ.get("CHAOS_OUTAGES", "20"))
KILLS = int(os.environ.get("CHAOS_SERVER_KILLS", "1"))
"""Of the server itself, each of which takes 2 s; the other outages are the proxy's."""
MOST_CUT = 1000
"""Bytes that a request gets at most which is cut off."""
logger = logging.getLogger(__name__)


def encoded(number: int) -> bytes:
    """Return an image of 256 kB whose pixels tell the row and their place."""
    file = io.BytesIO()
    image = np.arange(256 * 256, dtype=np.float32).reshape(256, 256) / 65536 + number
    np.save(file, image)
    return file.getvalue()


@pytest.fixture(scope="module")
def archive(weed: Weed) -> Weed:
    for bucket in (OPEN, "archive"):
        for number in range(ROWS):
            weed.put(bucket, f"rows/{number:03d}.npy", encoded(number))
    return weed


def storage_of(proxy: Proxy, **settings: Any) -> Storage:
    return Storage(endpoint=f"http://127.0.0.1:{proxy.port}", **settings)


def make_loader(index: Index, **settings: Any) -> Loader:
    chosen = {"batch_size": 4, "num_read_processes": 2, "devices": [None], "seed": 3}
    return Loader(npy_pipeline, index, **{**chosen, **settings})


def rows_of(loader: Loader) -> list[int]:
    """Return the rows of an epoch, after a look at all pixels."""
    rows: list[int] = []
    for batches in loader:
        for batch in batches:
            valid = batch["valid"].numpy()
            for image, row in zip(
                batch["image"].numpy()[valid], batch["row"].tolist(), strict=True
            ):
                np.testing.assert_array_equal(image[0], np.load(io.BytesIO(encoded(row))))
                rows.append(row)
    return rows


def take_away(weed: Weed, proxy: Proxy) -> None:
    """Take the server away again and again: a proxy before it, and some times the server itself."""
    chance, pause = random.Random(1), threading.Event()
    for number in range(OUTAGES):
        asked = len(proxy.requests)
        # The Loader gets on: else the same request may meet all outages, and is given up at last.
        while sum(one.nbytes >= MOST_CUT for one in proxy.requests[asked:]) < 3:
            pause.wait(0.01)
        if number < KILLS:
            weed.kill()
            weed.start()
            continue
        proxy.fault(Fault(cut=chance.randrange(MOST_CUT)), times=2)
        proxy.fault(Fault(status=503), times=2)
        proxy.stop()
        pause.wait(chance.uniform(0, 0.2))
        proxy.restart()


@pytest.mark.timeout(100 + 30 * KILLS)
def test_a_server_that_comes_and_goes(archive: Weed, s3_proxy: Proxy) -> None:
    storage = storage_of(s3_proxy, anonymous=True, retries=1000, timeout=60)
    index = Index.scan(f"s3://{OPEN}/rows/", storage=storage)
    epochs = 0
    with make_loader(index, storage=storage) as loader, ThreadPoolExecutor(1) as threads:
        outages = threads.submit(take_away, archive, s3_proxy)
        while not outages.done():
            assert sorted(rows_of(loader)) == list(range(ROWS))
            epochs += 1
        outages.result()
        assert not loader.stats.rejected
    logger.info("%d outages in %d epochs, %d requests", OUTAGES, epochs, len(s3_proxy.requests))


def test_a_second_epoch_needs_no_request_and_secrets_are_nowhere(
    archive: Weed,
    s3_proxy: Proxy,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    storage = storage_of(s3_proxy, retries=0)
    index = Index.scan("s3://archive/rows/", storage=storage)
    index.save(tmp_path / "index.parquet")
    s3_proxy.fault(Fault(status=403, body=b"<Error><Code>AccessDenied</Code></Error>"), "007.npy")
    s3_proxy.fault(Fault(cut=10), "008.npy")
    settings = {"storage": storage, "cache": str(tmp_path / "cache"), "cache_bytes": 10**9}
    # The fork server may have begun before the keys were in the environment.
    with make_loader(index, **settings, start_method="spawn", bad_sample="skip") as loader:
        good = sorted({*range(ROWS)} - {7, 8})
        assert sorted(rows_of(loader)) == good
        asked = len(s3_proxy.requests)
        assert sorted(rows_of(loader)) == good
        again = {request.path for request in s3_proxy.requests[asked:]}
        assert again <= {"/archive/rows/007.npy", "/archive/rows/008.npy"}
        state = loader.state_dict()
        reasons = {row: one.reason for row, one in loader.stats.rejected.items()}
    assert "access is denied (AccessDenied)" in reasons[7]
    assert "the answer was cut off" in reasons[8]
    texts = [caplog.text, *capfd.readouterr(), repr(loader), repr(loader.stats), repr(state)]
    pickled = [pickle.dumps(one) for one in (index, state, loader.stats, settings)]
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > ROWS
    for content in (*(text.encode() for text in texts), *pickled, *files):
        assert SECRET_KEY.encode() not in content
        assert ACCESS_KEY.encode() not in content
