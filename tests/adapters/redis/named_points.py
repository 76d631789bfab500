"""The points of `crdtcast.adapters.redis.crash_points`, by what a gateway does there."""

POINTS = (
    "piece-encoded",
    "piece-decoded",
    "batch-prepared",
    "exec-sent",
    "exec-answered",
    "client-answered",
    "remote-applied",
)
"""On the path of a local write, or of a message of another region."""
RECORDED_POINTS = ("dot-reserved", "record-derived")
"""Further ones, for a write that the server decides."""
NEXT_POINTS = ("next-prepared", "next-sent")
"""Further ones, for a commit that is prepared while another one is in flight."""
HIDING_POINTS = ("hidden-prepared", "hidden-sent", "hidden-answered")
"""Further ones, for a commit that may bring out a value which another type hides."""
JOIN_POINTS = (
    "copy-begun",
    "copy-slice-written",
    "copy-page-written",
    "join-about-to-be-asked",
    "join-noted-in-file",
    "join-finished",
)
"""While a member copies the group's data: at a join, after an eviction, or when its server was emptied."""
GIVING_POINTS = ("copy-page-read",)
"""While a member sends its data to another one."""
ADOPTION_POINTS = (
    "founding-noted",
    "founding-claimed",
    "adopted-step-asked",
    "adopted-step-done",
    "adopted-index-made",
)
"""While a founder takes over the data of its server."""
PLAIN_POINTS = ("plain-begun", "plain-made")
"""While a member that has left hands its server back."""
REPAIR_POINTS = ("repair-page-written",)
"""While a large key is repaired."""
