"""Audit of event logs with Apache Spark. `crdtcast.integrations.spark.audit` is the entry point."""
