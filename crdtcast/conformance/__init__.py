"""Scenario files (Redis commands at several replicas, partitions, crashes) run against real
gateways.
"""
