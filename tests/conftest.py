"""What all tests share: Hypothesis without a deadline, since a busy machine is no defect.

A failing property prints the seed and the blob that reproduce it.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "crdtcast", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("crdtcast")
