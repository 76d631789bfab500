"""How many examples Hypothesis tries of what strangers, peers and disks may give: more before a release.

`CRDTCAST_EXAMPLES=3000 pytest …`
"""

import os


def examples(usual: int) -> int:
    """So many, unless the environment says otherwise."""
    return int(os.environ.get("CRDTCAST_EXAMPLES", usual))
