"""Real servers for tests and demonstrations: Valkey servers, replica sets and clusters, ZooKeeper, Kafka.

Servers start without root, on free ports of this machine, with their data in a folder that the caller chooses. When the
program that started a server ends, even by SIGKILL, the server is killed, unless it is detached.

__main__.py        the command: start, stop and list services in the background
process.py         one server or program as a process: start, stop, kill, pause
process_group.py   servers that form one service
serving_program.py a Python program that serves gRPC, such as `tickwheel serve`
valkey.py          a Valkey server
debian_redis.py    a Redis server, as Debian packages it
replica_set.py     a Valkey primary with replicas
redis_cluster.py   a cluster of Valkey servers
slot_migration.py  the move of one hash slot of a cluster, key by key
zookeeper.py       a ZooKeeper server or quorum
kafka.py           a Kafka broker
jvm.py             Java, and the jars of ZooKeeper and Kafka
stepped_clock.py   a wrong clock for a server or a program
apt.py             installation of Debian packages
background.py      the record of services that outlive their program
"""
