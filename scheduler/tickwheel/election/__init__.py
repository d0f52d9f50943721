"""Who drives a shard: by a lock file on one host, by ZooKeeper on many."""
