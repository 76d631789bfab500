"""Two replicas in a program of threads: each call returns when it is done."""

from concurrent.futures import ThreadPoolExecutor

from crdtcast import sync
from crdtcast.datatypes import AWSet, PNCounter

with sync.open_replica("eu", found=True) as eu, sync.open_replica("us", join=eu.address) as us:
    tag = eu.object("cart:42", AWSet).add("milk")
    eu.wait_delivered(tag, count=2, timeout=10)
    print("us has", set(us.object("cart:42", AWSet).value))

    visits = us.object("visits", PNCounter)
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(visits.increment) for _ in range(100)]:
            each.result()
    eu.at_least(us.token(), timeout=10)
    print("eu counts", eu.object("visits", PNCounter).value)
