"""The gRPC service: any number of equal processes before one Redis, none of which keeps anything."""
