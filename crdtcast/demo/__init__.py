"""The demonstration: three regions that take writes everywhere, a partition, a comparison, an
audit.
"""
