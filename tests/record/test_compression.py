from __future__ import annotations

import pytest

from client_core.errors import CorruptRecordError, UnsupportedCompressionTypeError
from client_core.record.compression import NO_COMPRESSION, Codec


@pytest.mark.behaviour("REC-06")
@pytest.mark.parametrize(
    ("codec_id", "name"), [(0, "none"), (1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")]
)
def test_codecs_have_kafkas_ids_and_names(codec_id: int, name: str) -> None:
    codec = Codec.of(codec_id)
    assert (codec.id, codec.config_name) == (codec_id, name)
    assert Codec.named(name) is codec


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_an_id_that_kafka_does_not_have_is_a_corrupt_batch(codec_id: int) -> None:
    with pytest.raises(CorruptRecordError, match=f"Unknown compression type id: {codec_id}"):
        Codec.of(codec_id)


@pytest.mark.parametrize("name", ["", "NONE", "brotli"])
def test_a_name_that_kafka_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match="Unknown compression name"):
        Codec.named(name)


def test_no_compression_leaves_records_as_they_are() -> None:
    assert NO_COMPRESSION.compress(b"records") == b"records"
    assert NO_COMPRESSION.decompress(b"records") == b"records"
