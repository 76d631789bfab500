"""What all tests share: Hypothesis without a deadline, since a busy machine is no defect; `CRDTCAST_EXAMPLES=3000`
lets it try more before a release.

A failing property prints the seed and the blob that reproduce it.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "crdtcast",
    deadline=None,
    print_blob=True,
    max_examples=int(os.environ.get("CRDTCAST_EXAMPLES", 100)),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("crdtcast")
