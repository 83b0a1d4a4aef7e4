"""Stores the tables: as Parquet, computed again from bronze, or as Delta, merged in place."""
