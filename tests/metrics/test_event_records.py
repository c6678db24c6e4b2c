"""Records as TensorFlow frames them."""

import numpy as np
import pytest

from distrl.metrics.event_records import crc32c, framed


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # these three of RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_known_checksums(data, expected):
    assert crc32c(data) == expected


def test_tensorflow_writes_the_same(tmp_path):
    import tensorflow.compat.v1 as tf

    rng = np.random.default_rng(0)
    records = [rng.bytes(size) for size in (0, 1, 2, 100, 5000)]
    with tf.io.TFRecordWriter(str(tmp_path / "file")) as writer:
        for record in records:
            writer.write(record)
    assert (tmp_path / "file").read_bytes() == b"".join(map(framed, records))
