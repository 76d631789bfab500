"""A member as a process: `crdtcast node`, and the commands of operators."""
