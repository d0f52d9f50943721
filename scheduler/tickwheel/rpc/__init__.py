"""The protocol of the gRPC service, shared by client and service.

Both sides convert values and errors with the same functions, so that a client of the service gets the same values and
exceptions as a client of Redis. The protobuf messages are generated from `proto/`. This package opens no connection:
channels are in `tickwheel.client.grpc`, servers in `tickwheel.service`.

    message_conversion.py  messages, leases, results and states, to and from protobuf
    queue_conversion.py    queue settings and statistics, to and from protobuf
    status.py              exceptions, to and from the status of a call
    methods.py             METHODS: every RPC by its name, with path and message classes
    request_form.py        RequestForm: the number of items and fields that the requests of an RPC can have
    field_walk.py          the walk over the bytes of a request that counts its items and fields
    message_copies.py      MessageCopies: one large message is copied from gRPC to Python in a turn of the event loop
    url.py                 GrpcUrl: a parsed grpc:// or grpcs:// URL
"""
