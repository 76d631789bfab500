"""Event logs: records of what applications saw, written during the run and checked afterwards."""
