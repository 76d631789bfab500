"""The gateway: runs next to a Redis or Valkey server and replicates it. `crdtcast redis` starts one."""
