"""A namespace that loses its data and is recreated in the same moment: no program finds the namespace missing."""

from tickwheel.operations.namespace import _FIELDS
from tickwheel.storage.keys import namespace_key
from tickwheel.testing import PrivateServer


def recreate_namespace(server: PrivateServer, namespace: str, shards: int = 1) -> None:
    """Delete all keys of the namespace, and store the settings that it has now, with this number of shards."""
    key = namespace_key(namespace)
    with server.client() as client, client.pipeline(transaction=True) as transaction:
        values = client.hmget(key, list(_FIELDS))
        settings = {field: value for field, value in zip(_FIELDS, values, strict=True) if value is not None}
        transaction.delete(*client.scan_iter(match=f"{namespace}:{{*", count=10_000))
        transaction.hset(key, mapping=settings | {"shards": shards})
        transaction.execute()
