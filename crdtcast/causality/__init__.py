"""The vocabulary of causality: dots, vectors, tags, ids of members, messages, clocks."""
