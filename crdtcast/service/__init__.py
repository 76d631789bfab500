"""A member as a process: `crdtcast node`, and what operators do with it."""
