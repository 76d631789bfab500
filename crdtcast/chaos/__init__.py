"""Real processes under faults, from a seed: `crdtcast chaos`."""
