"""Whether the tests run in `make soak`, which has all cases of tests that are a slice in `make test`."""

import os
from typing import Final

IN_SOAK: Final = "TICKWHEEL_SOAK" in os.environ
