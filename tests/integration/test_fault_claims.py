"""The fault harness reads claims from the append-only file of a real server on which scripts claimed shards."""

from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from services.valkey import ValkeyServer
from tests.fault.harness.claims import claims, was_rewritten
from tests.fault.harness.run_evidence import Claim
from tests.fault.harness.system_under_test import NAMESPACE
from tests.support.wait_until import eventually
from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.storage import scripts
from tickwheel.storage.fence import pack_fence

pytestmark = pytest.mark.integration

# The fence of the second claim contains bytes that also occur in the protocol.
CLAIMS = [
    Claim(0, (1, 1), "zookeeper", "host-a:17"),
    Claim(1, (0x0D0A, 0x240D0A), "lockfile", "host b, 18"),
    Claim(0, (2, 9), "zookeeper", "hôte:19"),
]


def claim(client: Any, wanted: Claim) -> None:
    shard = FencedShard(NAMESPACE, wanted.shard)
    call = scripts.bind(
        shard.script("claim_shard"),
        shard.keys | {"slot": ""},
        [pack_fence(*wanted.fence), wanted.election, "", wanted.owner],
    )
    client.eval(call.script.source, len(call.keys), *call.keys, *call.args)


def test_all_accepted_claims_are_read_in_order(tmp_path: Path) -> None:
    server = ValkeyServer("valkey", tmp_path, {"appendfsync": "always"})
    server.start()
    try:
        with server.client(decode_responses=False) as client:
            for line in CLAIMS:
                claim(client, line)
            with pytest.raises(ResponseError, match="FENCED"):
                claim(client, Claim(0, (1, 2), "zookeeper", "host-a:17"))
            assert claims(tmp_path) == CLAIMS
            assert not was_rewritten(tmp_path)

            client.bgrewriteaof()
            # The server removes the file at the end, perhaps while it is read.
            before = tmp_path / "appendonlydir" / "appendonly.aof.1.incr.aof"
            eventually(lambda: not before.exists(), "the file is rewritten")
            assert claims(tmp_path) == []
            assert was_rewritten(tmp_path)
    finally:
        server.kill()
