"""Vector files: expected values of CRDTs for operations with given causal relations."""
