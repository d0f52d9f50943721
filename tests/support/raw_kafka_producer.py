"""Writes records to Kafka that the Python client refuses to write."""

import ctypes
from pathlib import Path
from typing import Final

import confluent_kafka

# `rd_kafka_type_t`, `rd_kafka_vtype_t` and `RD_KAFKA_MSG_F_COPY` of librdkafka.
_PRODUCER: Final = 0
_END, _TOPIC, _VALUE, _FLAGS, _HEADER = 0, 1, 4, 7, 9
_COPY: Final = 2


def write_with_header(bootstrap: str, topic: str, value: bytes, header: bytes) -> None:
    """Write a record with a header of this name, with the library that the Python client contains."""
    package = Path(confluent_kafka.__file__).parent
    [path] = (package.parent / "confluent_kafka.libs").glob("librdkafka*")
    library = ctypes.CDLL(str(path))
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = ctypes.c_void_p
    library.rd_kafka_conf_set.argtypes = [ctypes.c_void_p, *[ctypes.c_char_p] * 3, ctypes.c_size_t]
    library.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    reason = ctypes.create_string_buffer(500)
    settings = library.rd_kafka_conf_new()
    assert library.rd_kafka_conf_set(settings, b"bootstrap.servers", bootstrap.encode(), reason, 500) == 0
    producer = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, settings, reason, 500))
    arguments = (
        *(producer, ctypes.c_int(_TOPIC), ctypes.c_char_p(topic.encode())),
        *(ctypes.c_int(_VALUE), ctypes.c_char_p(value), ctypes.c_size_t(len(value))),
        *(ctypes.c_int(_FLAGS), ctypes.c_int(_COPY)),
        *(ctypes.c_int(_HEADER), ctypes.c_char_p(header), ctypes.c_char_p(b"v"), ctypes.c_size_t(1)),
        ctypes.c_int(_END),
    )
    assert library.rd_kafka_producev(*arguments) == 0
    assert library.rd_kafka_flush(producer, 30_000) == 0
    library.rd_kafka_destroy(producer)
