"""Damaged recordings are read or refused; nothing else happens, and nothing hangs."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from audio_files import sound, write

from readers import AudioReader, ReadError, Row, Window

FORMATS = [
    *(("wav", "PCM_16"), ("wav", "PCM_24"), ("wavex", "FLOAT"), ("rf64", "PCM_16")),
    *(("aiff", "PCM_16"), ("w64", "PCM_16"), ("wav", "IMA_ADPCM"), ("flac", "PCM_16")),
    *(("ogg", "VORBIS"), ("ogg", "OPUS")),
]


def damaged(content: bytes, random: Random) -> bytes:
    """Overwrite, remove or add some bytes, most of them in the header."""
    found = bytearray(content)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(max(1, min(len(found), 400 if random.random() < 0.7 else len(found))))
        match random.randrange(5):
            case 0:
                found[at : at + 1] = random.randbytes(1)
            case 1:
                words = ("ffffffff", "00000000", "ffffff7f", "00000080")
                found[at : at + 4] = bytes.fromhex(random.choice(words))
            case 2:
                del found[at:]
            case 3:
                del found[at : at + random.randrange(50)]
            case 4:
                found[at:at] = random.randbytes(random.randrange(50))
    return bytes(found)


@pytest.mark.parametrize(("format", "kind"), FORMATS)
def test_damage(tmp_path: Path, format: str, kind: str) -> None:
    content = write(tmp_path / "a", sound(9000, 2), format=format, subtype=kind).read_bytes()
    reader, refused = AudioReader(16000), 0
    for seed in range(60):
        path = tmp_path / str(seed)
        path.write_bytes(damaged(content, Random(seed)))
        for window in (None, Window(height=1, width=1000, x=0.6)):
            try:
                sample = reader.read(Row(0, str(path)), window)
                assert window is None or sample["image"].shape == (1, 1000, 1)
            except ReadError:
                refused += 1
    assert refused > 20
