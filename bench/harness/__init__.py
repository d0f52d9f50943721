"""What measuring needs: servers, calibration, the report."""
