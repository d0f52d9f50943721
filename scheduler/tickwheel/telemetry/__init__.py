"""Telemetry: metrics for Prometheus and spans for OpenTelemetry.

The package turns measurements into exported metrics and spans. It takes no measurements itself: the processes count and
time their own work and define their own tables of metrics. `histogram` needs no extra; `metrics`, `metrics_server` and
`metrics_socket` need the extra `metrics`, and `spans` needs the extra `tracing`.

histogram       cumulative counts by bucket, in plain numbers
metrics         the specification of a metric, and the collector made from a table of specifications
metrics_server  the HTTP endpoint that Prometheus scrapes
metrics_socket  the metrics of a child, on a Unix socket
spans           spans of messages and calls, by OpenTelemetry's semantic conventions
"""
