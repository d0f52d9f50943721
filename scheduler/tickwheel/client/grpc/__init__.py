"""The client's side of the gRPC service: the operations as calls, and the two layers that carry them."""
