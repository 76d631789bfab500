"""The gateway: replicates a Redis or Valkey server, beside which it runs. `crdtcast gateway` starts
one.
"""
